"""`fallow simulate` as a user runs it: a world without and with enforcement, compared."""

import resource
import subprocess
import sys
import tempfile
import time

from benchmarks.result import Result

COMMAND = "import sys; from runtime.cli import main; sys.exit(main())"
SEED = 7


def run(small: bool) -> list[Result]:
    """Measure 14 days of 512 GPUs; small: one day of 32."""
    days, gpus = (1, 32) if small else (14, 512)
    words = ["simulate", "--days", str(days), "--gpus", str(gpus), "--seed", str(SEED)]
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as home:
        subprocess.run(
            [sys.executable, "-c", COMMAND, *words, "--home", home, "-o", "json"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    took = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    worked = used.ru_utime + used.ru_stime
    return [
        Result(
            name=f"fallow {' '.join(words)}",
            value=took,
            unit="s",
            reach=180,
            note=f"{worked:.0f} CPU-s, peak {used.ru_maxrss / 2**20:.2f} GiB",
        )
    ]

"""Whole sites as a user runs them: two worlds of hourly and other turns, and the demo."""

import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from benchmarks.result import Result
from benchmarks.stopwatch import Stopwatch

COMMAND = "import sys; from runtime.cli import main; sys.exit(main())"
SITES = (
    (("simulate", "--days", "3", "--gpus", "128", "--seed", "7", "--every", "1h"), None),
    (("simulate", "--days", "14", "--gpus", "512", "--seed", "7"), 180),
    (("demo",), 15),
)
"""The words of a command, and its reach in seconds."""
SMALL_SITES = ((("simulate", "--days", "1", "--gpus", "32", "--seed", "7"), None),)


def run(small: bool) -> list[Result]:
    """Measure three commands; small: a day of 32 GPUs."""
    return [_measure(words, reach_s) for words, reach_s in (SMALL_SITES if small else SITES)]


def _measure(words: Sequence[str], reach_s: float | None) -> Result:
    with tempfile.TemporaryDirectory() as home:
        watch = Stopwatch()
        subprocess.run(
            [sys.executable, "-c", COMMAND, *words, "--home", f"{home}/home"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        lap = watch.read()
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    return Result(
        name=f"fallow {' '.join(words)}",
        value=lap.wall_s,
        unit="s",
        cpu_s=lap.cpu_s,
        reach=reach_s,
        note=f"peak {peak:.2f} GiB so far",
    )

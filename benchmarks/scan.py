"""`fallow scan` of a fleet's week out of a real Prometheus: our time and memory, and its time.

The command runs as a user runs it, in a process of its own. Prometheus has the default limits of
its queries, and serves on the same cores; its CPU seconds stand apart.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks import servers
from benchmarks.backfill import METRICS, STEP_S, fill
from benchmarks.result import Result

COMMAND = "import sys; from runtime.cli import main; sys.exit(main())"
RATE = "2.00"
REACH_S, REACH_GB = 60, 1.5


def run(small: bool) -> list[Result]:
    """Measure 1,000 GPUs and 7 days at 60 s; small: 24 GPUs and a day."""
    gpus, days = (24, 1) if small else (1000, 7)
    size = f"{gpus} GPUs x {days} d at {STEP_S} s"
    work = Path(tempfile.mkdtemp(prefix="fallow-scan-bench-"))
    start = (datetime.now(UTC) - timedelta(days=days)).replace(second=0, microsecond=0)
    try:
        with servers.run_receiving(work / "prometheus", block="30d") as (url, pid):
            fill(url, gpus, start, days)
            return _measure(url, pid, work, days, size)
    except servers.PeerMissingError as error:
        return [Result(name=f"fallow scan, {size}", value=0, unit="s", note=f"absent: {error}")]
    finally:
        shutil.rmtree(work)


def _measure(url: str, pid: int, work: Path, days: int, size: str) -> list[Result]:
    served = _read_processor_s(pid)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    story = _scan(url, days, work)
    took = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    ours = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    served = _read_processor_s(pid) - served
    values = 24 * 3600 // STEP_S * days
    return [
        Result(
            name=f"fallow scan, {size}",
            value=took,
            unit="s",
            reach=REACH_S,
            note=f"{len(METRICS)} metrics of {values:,} values; ours {ours:.1f} CPU-s, "
            f"Prometheus {served:.1f} CPU-s; {story}",
        ),
        Result(
            name="fallow scan: peak memory",
            value=after.ru_maxrss / 1e6,
            unit="GB",
            reach=REACH_GB,
        ),
    ]


def _scan(url: str, days: int, work: Path) -> str:
    """Return the paid GPU-hours and dollars of the report."""
    words = ["scan", "--prometheus", url, "--since", f"{days}d", "--rate", RATE, "-o", "json"]
    home = {"FALLOW_HOME": str(work / "home"), "HOME": str(work)}
    process = subprocess.run(
        [sys.executable, "-c", COMMAND, *words],
        check=True,
        stdout=subprocess.PIPE,
        env={**os.environ, **home},
    )
    states = json.loads(process.stdout)["states"]
    hours, usd = (sum(float(row[name] or 0) for row in states) for name in ("gpu_hours", "usd"))
    return f"{hours:,.0f} GPU-hours, ${usd:,.2f}"


def _read_processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

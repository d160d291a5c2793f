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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks import servers
from benchmarks.backfill import METRICS, STEP_S, fill
from benchmarks.result import Result
from benchmarks.simulated_series import fill_simulated
from benchmarks.stopwatch import Stopwatch, read_processors_of

COMMAND = "import sys; from runtime.cli import main; sys.exit(main())"
RATE = "2.00"
REACH_S, REACH_GB, REACH_PCT = 40, 1.5, 1.0
SIMULATED_GPUS, SEED = 96, 7
LEAST_SHARE = 0.01
WASTES = "wastes"


def run(small: bool) -> list[Result]:
    """Measure 1,000 GPUs and 7 days at 60 s, then thinned dollars; small: 24 GPUs and a day."""
    gpus, days = (24, 1) if small else (1000, 7)
    size = f"{gpus} GPUs x {days} d at {STEP_S} s"
    start = (datetime.now(UTC) - timedelta(days=days)).replace(second=0, microsecond=0)
    try:
        with _serve() as (url, pid, work):
            fill(url, gpus, start, days)
            # The one with less memory first: the peak is that of all commands so far.
            results = [
                result
                for more in (("--step", "5m"), ())
                for result in _measure(url, pid, work, days, size, more)
            ]
        if not small:
            with _serve() as (url, _, work):
                fill_simulated(url, SIMULATED_GPUS, start, days, SEED)
                results.append(_compare_thinned(url, work, days))
    except servers.PeerMissingError as error:
        return [Result(name=f"fallow scan, {size}", value=0, unit="s", note=f"absent: {error}")]
    return results


@contextmanager
def _serve() -> Iterator[tuple[str, int, Path]]:
    work = Path(tempfile.mkdtemp(prefix="fallow-scan-bench-"))
    try:
        with servers.run_receiving(work / "prometheus", block="30d") as (url, pid):
            yield url, pid, work
    finally:
        shutil.rmtree(work)


def _measure(  # noqa: PLR0917  (one caller)
    url: str, pid: int, work: Path, days: int, size: str, more: Sequence[str]
) -> list[Result]:
    served = read_processors_of(pid)
    watch = Stopwatch()
    story = _scan(url, days, work, *more)
    lap = watch.read()
    served = read_processors_of(pid) - served
    values = 24 * 3600 // STEP_S * days
    hours, usd = (
        sum(float(row[name] or 0) for row in story["states"]) for name in ("gpu_hours", "usd")
    )
    return [
        Result(
            name=" ".join(("fallow scan", *more)) + f", {size}",
            value=lap.wall_s,
            unit="s",
            cpu_s=lap.cpu_s,
            reach=REACH_S,
            note=f"{len(METRICS)} metrics of {values:,} values; Prometheus {served:.1f} CPU-s, "
            f"peak {_read_peak_mib(pid):.0f} MiB; {hours:,.0f} GPU-hours, ${usd:,.2f}",
        ),
        Result(
            name=" ".join(("fallow scan", *more)) + ": peak memory",
            value=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6,
            unit="GB",
            reach=REACH_GB,
        ),
    ]


def _compare_thinned(url: str, work: Path, days: int) -> Result:
    """Compare the dollars of each state and of all wastes: thinned, and of every sample."""
    thinned, whole = (
        _list_dollars(_scan(url, days, work, "--step", step)) for step in ("5m", f"{STEP_S}s")
    )
    total = sum(usd for name, usd in whole.items() if name != WASTES)
    large = [name for name, usd in whole.items() if usd > LEAST_SHARE * total]
    differences = {name: thinned.get(name, 0) / whole[name] - 1 for name in large}
    worst = max(differences, key=lambda name: abs(differences[name]))
    parts = ", ".join(f"{name} {part:+.2%}" for name, part in differences.items())
    return Result(
        name=f"fallow scan: dollars from 5-minute samples, {SIMULATED_GPUS} simulated GPUs",
        value=abs(differences[worst]) * 100,
        unit="%",
        reach=REACH_PCT,
        note=f"against every sample, of the states above {LEAST_SHARE:.0%}: {parts}",
    )


def _list_dollars(story: dict[str, Any]) -> dict[str, float]:
    usd = {row["state"]: float(row["usd"] or 0) for row in story["states"]}
    return {**usd, WASTES: sum(float(row["usd"] or 0) for row in story["wastes"])}


def _scan(url: str, days: int, work: Path, *more: str) -> dict[str, Any]:
    """Return the report of the command."""
    words = ["scan", "--prometheus", url, "--since", f"{days}d", "--rate", RATE, "-o", "json"]
    home = {"FALLOW_HOME": str(work / "home"), "HOME": str(work)}
    process = subprocess.run(
        [sys.executable, "-c", COMMAND, *words, *more],
        check=True,
        stdout=subprocess.PIPE,
        env={**os.environ, **home},
    )
    document: dict[str, Any] = json.loads(process.stdout)
    return document


def _read_peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))

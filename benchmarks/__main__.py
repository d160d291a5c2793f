"""Run the benchmarks: a table on stdout, JSON beside it.

    python -m benchmarks [--small] [--out FOLDER] [--store-gates] [NAME ...]
    python -m benchmarks acting [--seeds 3,5 | 1-10 | x10] [--days 3] [--gpus 128] [--quirks all]

Each benchmark module runs in a process of its own, so that its peak memory is its own and one
failure does not hide the others. It fails where a figure crosses its gate (gates.py), and
`--store-gates` stores the figures of this run as gates.
"""

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from benchmarks.gates import build_gates, find_crossed, read_gates, write_gates
from benchmarks.month import KEPT_FOLDER
from benchmarks.reference import measure_reference
from benchmarks.result import Result

NAMES = (
    "parse",
    "scrape",
    "sources",
    "store",
    "shards",
    "backfill",
    "scan",
    "rollup",
    "scale",
    "inventory",
    "idle",
    "ledger",
    "analyzers",
    "planning",
    "pages",
    "memory",
    "fragmentation",
    "pools",
    "queue",
    "incidents",
    "whatif",
    "peers",
    "simulate",
    "simulator",
    "simulator_kube",
)
STUDIES = ("acting", "accuracy", "equality")
"""How right answers are, not how fast: they run by name, and small ones with all."""
AGAIN_S = 60.0
"""What takes less runs three times, and the least counts."""

ALL_NAMES = (*NAMES, *STUDIES)
OF_ACTING = {"seeds": str, "days": int, "gpus": int, "quirks": str}
"""Options that one benchmark alone has."""


def main() -> int:
    """Run the named benchmarks and report; 1 when one failed to run or crossed its gate."""
    options = parse_options()
    if options.child:
        return _measure(options)
    options.out.mkdir(parents=True, exist_ok=True)
    size = "small" if options.small else "full"
    more = _list_options(options)
    names = options.names or (ALL_NAMES if options.small else NAMES)
    with TemporaryDirectory(prefix="fallow-bench-") as folder:
        os.environ.setdefault(KEPT_FOLDER, folder)
        runs = {name: _run(name, size, options.out, more) for name in names}
    failed = [name for name, measured in runs.items() if measured is None]
    measurements = {name: measured for name, measured in runs.items() if measured is not None}
    if options.store_gates:
        write_gates(
            {
                (size, n): build_gates(size, n, m.results, m.reference_cpu_s)
                for n, m in measurements.items()
            }
        )
    crossed = _list_crossed(size, measurements)
    for line in crossed:
        print(f"gate: {line}", file=sys.stderr)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed or crossed)


def parse_options() -> argparse.Namespace:
    """Return the options of the command line; one that is wrong ends the process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ALL_NAMES)}")
    parser.add_argument("--small", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--out", type=Path, default=Path("bench-results"))
    for option, kind in OF_ACTING.items():
        parser.add_argument(f"--{option}", type=kind, help="of acting")
    parser.add_argument("--store-gates", action="store_true", help="this run's figures are gates")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.names) - set(ALL_NAMES)
    if unknown:
        parser.error(f"no benchmark called {sorted(unknown)}; there are {', '.join(ALL_NAMES)}")
    if _list_options(options) and (options.names or [options.child]) != ["acting"]:
        parser.error(f"{', '.join(_list_options(options))} are options of acting alone")
    return options


def _list_options(options: argparse.Namespace) -> list[str]:
    """Return the given options of the benchmark that has some of its own."""
    return [f"--{n}={v}" for n in OF_ACTING if (v := getattr(options, n)) is not None]


def _measure(options: argparse.Namespace) -> int:
    """Run one benchmark in this process, and the reference after it."""
    options_given = {n: v for n in OF_ACTING if (v := getattr(options, n)) is not None}
    run = importlib.import_module(f"benchmarks.{options.child}").run
    measured = Measured(run(options.small, **options_given), measure_reference())
    Path(options.out).write_bytes(msgspec.json.encode(measured))
    return 0


def _list_crossed(size: str, measurements: "Mapping[str, Measured]") -> list[str]:
    gates = [gate for gate in read_gates() if gate.size == size]
    return [
        line
        for name, measured in measurements.items()
        for line in find_crossed(
            [gate for gate in gates if gate.benchmark == name],
            measured.results,
            measured.reference_cpu_s,
        )
    ]


class Measured(msgspec.Struct, frozen=True):
    """The figures of one run, and the reference's processor seconds beside them."""

    results: list[Result]
    reference_cpu_s: float


def _run(name: str, size: str, out: Path, more: Sequence[str] = ()) -> Measured | None:
    """Run a benchmark, a short one three times; None where it failed."""
    began = time.perf_counter()
    runs = [_run_once(name, size, out, more)]
    if size == "full" and name not in STUDIES and time.perf_counter() - began < AGAIN_S:
        runs += [_run_once(name, size, out, more) for _ in range(2)]
    measurements = [measured for measured in runs if measured is not None]
    if len(measurements) < len(runs):
        return None
    results = [
        _choose_best(same) for same in zip(*(run.results for run in measurements), strict=True)
    ]
    measured = Measured(results, min(run.reference_cpu_s for run in measurements))
    document = {
        "schema": "fallow.bench/v2",
        "benchmark": name,
        "size": size,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version()},
        "reference_cpu_s": measured.reference_cpu_s,
        "results": [msgspec.to_builtins(r) for r in results],
    }
    (out / f"{name}.{size}.json").write_text(json.dumps(document, indent=2) + "\n")
    for result in results:
        print(_line(result, judged=size == "full"), flush=True)
    return measured


def _run_once(name: str, size: str, out: Path, more: Sequence[str]) -> Measured | None:
    raw = out / f"{name}.{size}.raw.json"
    raw.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks", "--child", name, "--out", str(raw)]
    flags = ["--small"] if size == "small" else []
    process = subprocess.run([*command, *flags, *more], check=False)
    if process.returncode or not raw.exists():
        return None
    measured = msgspec.json.decode(raw.read_bytes(), type=Measured)
    raw.unlink()
    return measured


def _choose_best(same: Sequence[Result]) -> Result:
    """Return the best of several runs' figures, with the least processor seconds of them."""
    best = (min if same[0].at_most else max)(same, key=lambda result: result.value)
    worked = [result.cpu_s for result in same if result.cpu_s is not None]
    return msgspec.structs.replace(best, cpu_s=min(worked, default=None))


def _line(result: Result, *, judged: bool) -> str:
    met = _is_met(result) if judged else None
    mark = {True: "ok   ", False: "SHORT", None: "     "}[met]
    limit = ""
    if result.reach is not None:
        limit = f"reach {'<=' if result.at_most else '>='} {result.reach:g}"
    peer = ""
    if result.peer is not None and result.ratio is not None:
        wanted = "" if result.reach_ratio is None else f" (reach {result.reach_ratio:g}x)"
        peer = f"{result.ratio:.1f}x {result.peer}{wanted}"
    columns = f"{mark} {result.name:<58} {result.value:>12.4g} {result.unit:<12} {limit:<18} {peer}"
    worked = "" if result.cpu_s is None else f"{result.cpu_s:.3g} CPU-s; "
    return f"{columns}  {worked}{result.note}".rstrip("; ")


def _is_met(result: Result) -> bool | None:
    verdicts: list[bool] = []
    if result.reach is not None:
        good = result.value <= result.reach if result.at_most else result.value >= result.reach
        verdicts.append(good)
    if result.reach_ratio is not None and result.ratio is not None:
        verdicts.append(result.ratio >= result.reach_ratio)
    return all(verdicts) if verdicts else None


if __name__ == "__main__":
    sys.exit(main())

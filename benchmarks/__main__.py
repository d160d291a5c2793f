"""Run the benchmarks: a table on stdout, JSON beside it.

    python -m benchmarks [--small] [--out FOLDER] [NAME ...]
    python -m benchmarks acting [--seeds 3,5 | 1-10 | x10] [--days 3] [--gpus 128] [--quirks all]

Each benchmark module runs in a process of its own, so that its peak memory is its own and one
failure does not hide the others.
"""

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

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
    "equality",
    "ledger",
    "idle",
    "analyzers",
    "memory",
    "fragmentation",
    "pools",
    "planning",
    "queue",
    "incidents",
    "whatif",
    "acting",
    "pages",
    "peers",
    "simulate",
    "simulator",
    "simulator_kube",
    "accuracy",
)

OF_ACTING = {"seeds": str, "days": int, "gpus": int, "quirks": str}
"""Options that one benchmark alone has."""


def main() -> int:
    """Run the named benchmarks and report; 1 when one of them failed to run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--small", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--out", type=Path, default=Path("bench-results"))
    for option, kind in OF_ACTING.items():
        parser.add_argument(f"--{option}", type=kind, help="of acting")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        options_given = {n: v for n in OF_ACTING if (v := getattr(options, n)) is not None}
        results = importlib.import_module(f"benchmarks.{options.child}").run(
            options.small, **options_given
        )
        Path(options.out).write_bytes(msgspec.json.encode(results))
        return 0
    unknown = set(options.names) - set(NAMES)
    if unknown:
        parser.error(f"no benchmark called {sorted(unknown)}; there are {', '.join(NAMES)}")
    options.out.mkdir(parents=True, exist_ok=True)
    size = "small" if options.small else "full"
    more = [f"--{n}={v}" for n in OF_ACTING if (v := getattr(options, n)) is not None]
    if more and options.names != ["acting"]:
        parser.error(f"{', '.join(more)} are options of acting alone")
    failed = [n for n in options.names or NAMES if not _run(n, size, options.out, more)]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


def _run(name: str, size: str, out: Path, more: Sequence[str] = ()) -> bool:
    raw = out / f"{name}.{size}.raw.json"
    raw.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks", "--child", name, "--out", str(raw)]
    flags = ["--small"] if size == "small" else []
    process = subprocess.run([*command, *flags, *more], check=False)
    if process.returncode or not raw.exists():
        return False
    results = msgspec.json.decode(raw.read_bytes(), type=list[Result])
    raw.unlink()
    document = {
        "schema": "fallow.bench/v1",
        "benchmark": name,
        "size": size,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version()},
        "results": [msgspec.to_builtins(r) for r in results],
    }
    (out / f"{name}.{size}.json").write_text(json.dumps(document, indent=2) + "\n")
    for result in results:
        print(_line(result, judged=size == "full"), flush=True)
    return True


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
    return f"{columns}  {result.note}".rstrip()


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

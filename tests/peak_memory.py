"""Run a command and measure it alone: a process begins with the peak of the one that starts it."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_LAUNCHER = """
import json, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
print(json.dumps([done.returncode, done.stderr, peak]))
"""
START = "from runtime.cli import main; main()"


class MeasuredRun(NamedTuple):
    """How a command ended, what it said, and its peak in MiB."""

    code: int
    err: str
    peak_mib: float


def run_measured(words: Sequence[object], environ: Mapping[str, str] | None = None) -> MeasuredRun:
    """Run `fallow` with these words in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _LAUNCHER, sys.executable, "-c", START]
        + [str(word) for word in words],
        env={**os.environ, **(environ or {})},
        capture_output=True,
        text=True,
        check=True,
    )
    return MeasuredRun(*json.loads(done.stdout))

"""Recognise the home of a demo by its marker: a file with the settings of the simulated fleet.

A demo home brings its own settings: neither `./fallow.yaml` nor `FALLOW_*` variables of a site
apply to it, so that no command reads or writes a site's warehouse in the demo's place.
"""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

from fallow.errors import UsageError

MARKER = "demo.yaml"
"""Settings of the demo, and the proof that `fallow demo` may replace the folder."""

WORLD = "world.jsonl"
"""What happened in the demo's simulated cluster, one entry a line."""


def is_demo_home(home: Path) -> bool:
    """Return whether `fallow demo` wrote this home."""
    return (home / MARKER).is_file()


def has_demo_cluster(home: Path) -> bool:
    """Return whether the simulated cluster of a demo's home is kept in it."""
    return is_demo_home(home) and (home / WORLD).is_file()


def read_demo_time(home: Path) -> datetime | None:
    """Return the time that the simulated cluster of a demo's home has reached; None = has none."""
    if not has_demo_cluster(home):
        return None
    reached = None
    for line in (home / WORLD).read_bytes().splitlines(keepends=True):
        # A last line without its end is being written.
        if line.startswith(b'{"type":"advance"') and line.endswith(b"\n"):
            reached = datetime.fromtimestamp(json.loads(line)["until_s"], UTC)
    return reached


def read_now(home: Path) -> datetime:
    """Return the current time of a home's fleet, UTC: the clock's; in a demo's, its fleet's."""
    return read_demo_time(home) or datetime.now(UTC)


def require_own_home(home: Path, command: str) -> None:
    """Refuse a demo's home for a command that is about a real fleet: `command`, as it is typed.

    Raises:
        UsageError: `fallow demo` wrote `home`.
    """
    if is_demo_home(home):
        unset = "unset FALLOW_HOME; " if "FALLOW_HOME" in os.environ else ""
        raise UsageError(
            f"`{command}` is about a fleet of your own, and {home} has a demo's, which is "
            "simulated: one home never has both",
            hint=f"your own home is used without --home: {unset}{command}",
        )

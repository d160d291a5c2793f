"""Recognise the home of a demo by its marker: a file with the settings of the simulated fleet.

A demo home brings its own settings: neither `./fallow.yaml` nor `FALLOW_*` variables of a site
apply to it, so that no command reads or writes a site's warehouse in the demo's place.
"""

import os
from pathlib import Path

from fallow.errors import UsageError

MARKER = "demo.yaml"
"""Settings of the demo, and the proof that `fallow demo` may replace the folder."""


def is_demo_home(home: Path) -> bool:
    """Return whether `fallow demo` wrote this home."""
    return (home / MARKER).is_file()


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

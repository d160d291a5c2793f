"""Recognise the home of a demo by its marker: a file with the settings of the simulated fleet.

A demo home brings its own settings: neither `./fallow.yaml` nor `FALLOW_*` variables of a site
apply to it, so that no command reads or writes a site's warehouse in the demo's place.
"""

from pathlib import Path

MARKER = "demo.yaml"
"""Settings of the demo, and the proof that `fallow demo` may replace the folder."""


def is_demo_home(home: Path) -> bool:
    """Return whether `fallow demo` wrote this home."""
    return (home / MARKER).is_file()

"""List the lines of code that switch to another number format, per framework."""

from collections.abc import Mapping
from functools import cache

import msgspec

from fallow.resources import read_table


class FrameworkLine(msgspec.Struct, frozen=True):
    """The lines for one framework."""

    format: str
    framework: str
    line: str
    source: str


@cache
def read_framework_lines() -> Mapping[str, tuple[FrameworkLine, ...]]:
    """Return the lines of each format."""
    by_format: dict[str, list[FrameworkLine]] = {}
    for row in read_table("fallow", "precision_lines.csv"):
        by_format.setdefault(row["format"], []).append(FrameworkLine(**row))
    return {name: tuple(rows) for name, rows in by_format.items()}

"""What to write to compute in another number format, framework by framework."""

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import msgspec


class FrameworkLine(msgspec.Struct, frozen=True):
    """What to write in one framework."""

    format: str
    framework: str
    line: str
    source: str


@cache
def framework_lines() -> Mapping[str, tuple[FrameworkLine, ...]]:
    """Return the lines of each format."""
    text = files("fallow").joinpath("precision_lines.csv").read_text(encoding="utf-8")
    by_format: dict[str, list[FrameworkLine]] = {}
    for row in csv.DictReader(text.splitlines()):
        by_format.setdefault(row["format"], []).append(FrameworkLine(**row))
    return {name: tuple(rows) for name, rows in by_format.items()}

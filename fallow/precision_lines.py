"""What to write to compute in another number format, framework by framework."""

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import msgspec


class Line(msgspec.Struct, frozen=True):
    """What to write in one framework."""

    format: str
    framework: str
    line: str
    source: str


@cache
def lines() -> Mapping[str, tuple[Line, ...]]:
    """Return the lines of each format."""
    text = files("fallow").joinpath("precision_lines.csv").read_text(encoding="utf-8")
    found: dict[str, list[Line]] = {}
    for row in csv.DictReader(text.splitlines()):
        found.setdefault(row["format"], []).append(Line(**row))
    return {name: tuple(rows) for name, rows in found.items()}

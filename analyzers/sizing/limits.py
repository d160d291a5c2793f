"""Limits and advice of sizing: rows of `limits.csv` and `advice.csv`, each with its source."""

import csv
from functools import cache
from importlib.resources import files


@cache
def limit(name: str) -> float:
    """Return one limit of `limits.csv`."""
    return _limits()[name]


@cache
def advice() -> dict[str, dict[str, str]]:
    """Return what to do about each kind of finding, by kind."""
    return {row["kind"]: row for row in _rows("advice.csv")}


@cache
def _limits() -> dict[str, float]:
    return {row["name"]: float(row["value"]) for row in _rows("limits.csv")}


def _rows(name: str) -> list[dict[str, str]]:
    text = files("analyzers").joinpath(f"sizing/{name}").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))

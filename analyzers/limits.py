"""Limits that tables name: `limits.csv` beside an analyzer, each row with its source."""

from collections.abc import Mapping
from functools import cache

from analyzers.queries import load_records
from fallow.rows import Row


class Limit(Row, frozen=True):
    """One row of a `limits.csv`."""

    name: str
    value: float
    meaning: str
    source: str


@cache
def read_limits(analyzer: str) -> Mapping[str, float]:
    """Return the limits of an analyzer's `limits.csv` by name."""
    return {row.name: row.value for row in load_records(f"{analyzer}/limits", Limit)}

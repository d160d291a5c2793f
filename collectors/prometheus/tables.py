"""Read this folder's tables (`*.csv`): metrics, labels, and the queries that fill columns."""

import csv
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

Row = dict[str, str]


@cache
def table(name: str) -> tuple[Row, ...]:
    """Return the rows of `<name>.csv` in the order of the file."""
    text = files("collectors.prometheus").joinpath(f"{name}.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def available(name: str, present: Sequence[str]) -> list[Row]:
    """Return the queries of a table whose metrics the server has."""
    metrics_present = set(present)
    return [row for row in table(name) if row["needs"] in metrics_present]

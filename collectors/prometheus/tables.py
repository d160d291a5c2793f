"""Read this folder's tables (`*.csv`): metrics, labels, and the queries that fill columns."""

from collections.abc import Sequence
from functools import cache

from fallow.resources import read_table

Row = dict[str, str]


@cache
def load_table(name: str) -> tuple[Row, ...]:
    """Return the rows of `<name>.csv` in the order of the file."""
    return tuple(read_table("collectors.prometheus", f"{name}.csv"))


def list_available(name: str, present: Sequence[str]) -> list[Row]:
    """Return the queries of a table whose metrics the server has."""
    metrics_present = set(present)
    return [row for row in load_table(name) if row["needs"] in metrics_present]

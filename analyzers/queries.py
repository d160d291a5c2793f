"""The analyzers' SQL and facts: one statement, step or table per file, beside what uses it."""

from functools import cache

from fallow.resources import read_table, read_text
from warehouse.steps import compose_query

LAST_SCRAPES = "warehouse:inventory/last_lists"
"""Step: when each cluster's pods were last polled."""
OWNERS = "owners"
"""Step: the owner of each pod's name when it was last seen."""


@cache
def load_sql(name: str) -> str:
    """Return the text of `<name>.sql`."""
    return read_text("analyzers", f"{name}.sql").strip()


@cache
def compose_steps(*names: str, once: str = "") -> str:
    """Return one query of steps that are files, each `<name>.sql`; the last one's rows answer.

    A step is read by the last part of its name. `once` names one that is worked out once, however
    many read it.
    """
    return compose_query(names, "analyzers", once=(once,))


def load_rows(name: str) -> list[dict[str, str]]:
    """Return the rows of `<name>.csv`."""
    return read_table("analyzers", f"{name}.csv")

"""The analyzers' SQL and tables.

One statement, step or table per file, beside the code that uses it.
"""

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
    """Return one query composed of steps that are files, each `<name>.sql`.

    The last one is the result.

    Other steps refer to a step by the last part of its name. `once` names a step that is computed
    once, however many steps read it.
    """
    return compose_query(names, "analyzers", once=(once,))


def load_rows(name: str) -> list[dict[str, str]]:
    """Return the rows of `<name>.csv`."""
    return read_table("analyzers", f"{name}.csv")

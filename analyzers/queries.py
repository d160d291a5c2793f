"""The analyzers' SQL and tables.

One statement, step or table per file, beside the code that uses it.
"""

from functools import cache
from typing import TypeVar

import msgspec

from fallow.resources import read_table, read_text
from fallow.rows import Row, RowShapeError
from warehouse import pricing
from warehouse.steps import compose_query

R = TypeVar("R", bound=Row)

ERAS = tuple(f"warehouse:{step}" for step in pricing.ERAS)
"""Steps: what each node was from when to when (`node_eras`)."""
NODE_SHARES = tuple(f"warehouse:{step}" for step in pricing.NODE_SHARES)
"""Steps: what commitments paid of each node's hours (`node_shares`), with `ERAS`."""
COVERED = "warehouse:coverage/covered_hours"
"""Step: how many seconds of each hour are accounted; $cluster null = of any."""
LAST_SCRAPES = "warehouse:inventory/last_lists"
"""Step: when each cluster's pods were last polled."""
OWNERS = "owners"
"""Step: the owner of each pod's name when it was last seen."""
DEVICE_OWNERS = "device_owners"
"""Step: the owner of each pod that had a device allocated in the window."""
POD_HOURS = "pod_hours"
"""Step: hours with the pod that worked in them, of a step `busy_hours`."""


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


def load_records(name: str, record: type[R]) -> list[R]:
    """Return the rows of `<name>.csv` as records; an empty cell is its field's default.

    Raises:
        RowShapeError: a column is no field, a cell without a default is empty, or a cell cannot be
            read as its field's type.
    """
    table = read_table("analyzers", f"{name}.csv")
    rows = [{column: cell for column, cell in row.items() if cell} for row in table]
    try:
        return msgspec.convert(rows, list[record], strict=False)  # type: ignore[valid-type]
    except msgspec.ValidationError as error:
        raise RowShapeError(f"rows of {name}.csv: {error}") from error

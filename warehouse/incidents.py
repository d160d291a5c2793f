"""Store incidents as pages and reports show them: the table `incident`."""

from typing import TYPE_CHECKING

import pyarrow as pa

from fallow.tables import get_schema
from fallow.window import Window

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

REPLACED = "start >= $since AND start < $until OR list_contains($ids, id)"


def write_incidents(wh: "Warehouse", rows: pa.Table, window: Window) -> int:
    """Replace the incidents that began in a window; return how many were written.

    An incident that began before it and is read again keeps one row.
    """
    rows = rows.cast(get_schema("incident"))
    parameters = {**window.bounds(), "ids": rows["id"].to_pylist()}
    return wh.replace("incident", rows, REPLACED, parameters)

"""Replace the tables of idle rows where a data file of theirs is gone: they follow from others."""

import logging

from warehouse.opened import OpenWarehouse
from warehouse.schema import create_again
from warehouse.statements import fetch_row, write_literal

log = logging.getLogger("fallow.ledger")


def replace_lost_rows(wh: OpenWarehouse) -> None:
    """Begin again where a data file is gone: nobody could read or replace the rows of its day."""
    if wh.place.in_memory:
        return
    there = f"glob({write_literal(wh.place.data.rstrip('/') + '/main/idle_row/**')})"
    files = "SELECT data_file FROM ducklake_list_files('lake', 'idle_row')"
    with wh.snapshot() as cursor:
        lost = fetch_row(cursor, f"{files} ANTI JOIN {there} ON data_file = file LIMIT 1")
    if lost:
        log.warning("idle rows are kept again: a data file is gone", extra={"file": lost[0]})
        with wh.transaction() as cursor:
            create_again(cursor, "idle_row", "idle_hour")

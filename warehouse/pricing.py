"""Decide which rate prices which device when, and store rates in the warehouse."""

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from fallow.clean_texts import clean_rows
from fallow.protocols import Views
from fallow.rejections import build_batch
from fallow.tables import Batch
from fallow.window import Window
from warehouse import dirty
from warehouse.steps import compose_query

if TYPE_CHECKING:
    import duckdb

    from warehouse.lake import Warehouse

STRETCHES = tuple(f"pricing/{name}" for name in ("subjects", "kinds", "offers", "stretches"))
"""Steps that need the step `devices` before them and the parameters since, until, region."""
PRICES = (*STRETCHES, "pricing/prices")
"""The same steps, averaged per bucket of `step_s` seconds."""
WHOLE_SOURCES = ("settings", "rate-card", "derived", "on-prem")
"""Sources that report all their rates each time: a rate that they no longer report has ended."""
_OF_SOURCES = "list_contains($sources, source)"


def store_rates(wh: "Warehouse", rates: Batch) -> int:
    """Store a price source's `rate` rows; return how many.

    Sources that have only the present state (settings, rate card, on-prem) replace their earlier
    rows, so that a removed setting is gone. Where that changes a price, all hours of the ledger are
    marked to be written again. Histories (spot, commitments) are added to.
    """
    clean, rejections = clean_rows("rate", rates.rows)
    sources = set(clean["source"].to_pylist())
    if sources & {"rate-card", "derived"}:
        sources |= set(WHOLE_SOURCES)
    whole = sorted(sources & set(WHOLE_SOURCES))
    replaces = pc.is_in(clean["source"], value_set=pa.array(whole, pa.string()))
    if whole:
        rows = clean.filter(replaces)
        # One transaction: a process that dies in between would leave hours at the old prices.
        with wh.transaction() as cursor:
            before = _read_latest(cursor, whole)
            cursor.execute(f"DELETE FROM rate WHERE {_OF_SOURCES}", {"sources": whole})
            cursor.register("incoming", rows)
            cursor.execute("INSERT INTO rate BY NAME SELECT * FROM incoming")
            cursor.unregister("incoming")
            if not _read_latest(cursor, whole).equals(before):
                dirty.mark_all_hours(cursor)
    rest = clean.filter(pc.invert(replaces))
    if rest.num_rows:
        wh.ingest([Batch("rate", rest)])
    if rejections:
        cluster, at = wh.settings.cluster, wh.clock()
        wh.ingest([build_batch(rejections, cluster=cluster, source="prices", at=at)])
    return int(clean.num_rows)


def _read_latest(cursor: "duckdb.DuckDBPyConnection", sources: list[str]) -> pa.Table:
    sql = f"SELECT * EXCLUDE (as_of) FROM rate WHERE {_OF_SOURCES} ORDER BY ALL"
    return cursor.execute(sql, {"sources": sources}).to_arrow_table()


def derive_device_rates(views: Views, window: Window, *, region: str = "") -> pa.Table:
    """Return which rate prices each device and when: the rows behind the ledger's dollars.

    Columns: cluster, device, from_at, to_at, loaded_usd_h and gpu_usd_h (USD per hour of this
    device, by its weight), source, reference, as_of, rank (docs/prices.md). A device without a rate
    has no row.
    """
    return views.query(
        compose_query(
            ("ledger/begun", "ledger/spans", "pricing/devices", *STRETCHES, "pricing/device_rates")
        ),
        {**window.bounds(), "region": region},
    )

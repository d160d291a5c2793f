"""Decide which rate prices which device when, and store rates in the warehouse."""

import logging
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from fallow.clean_texts import clean_rows
from fallow.protocols import Views
from fallow.rejections import build_batch
from fallow.tables import Batch
from fallow.window import Window
from warehouse import dirty
from warehouse.catalog import CatalogLocation
from warehouse.steps import compose_query, load_step

if TYPE_CHECKING:
    import duckdb

    from warehouse.lake import Warehouse

STRETCHES = tuple(
    f"pricing/{name}" for name in ("subjects", "kinds", "offers", "covered", "stretches")
)
"""Steps that need the step `devices` before them and the parameters since, until, region."""
PRICES = (*STRETCHES, "pricing/prices")
"""The same steps, averaged per bucket of `step_s` seconds."""
WHOLE_SOURCES = ("settings", "rate-card", "derived", "on-prem", "commitment")
"""Sources that report all their rates each time: a rate that they no longer report has ended."""
STANDING = timedelta(days=1)
"""How long prices of settings stand against another home's: a service stores its own every few
minutes (`service.inventory_every`)."""
_OF_SOURCES = "(list_contains($sources, source) OR (nodes > 0 AND valid_to > $now))"
_DELETE = (
    f"DELETE FROM rate WHERE {_OF_SOURCES}"
    " AND (source <> 'settings' OR \"cluster\" IN ('', $cluster))"
)

log = logging.getLogger("fallow.prices")


def store_rates(wh: "Warehouse", rates: Batch) -> int:
    """Store a price source's `rate` rows; return how many it gave.

    Sources that have only the present state (settings, rate card, on-prem) replace their earlier
    rows, so that a removed setting is gone; a removed commitment that had ended stays. Where that
    changes a price, all hours of the ledger are marked to be written again. Histories (spot) are
    added to. Prices of settings replace those of their cluster only, and none that `find_conflict`
    finds.
    """
    cluster, (clean, rejections) = wh.settings.cluster, clean_rows("rate", rates.rows)
    sources = set(clean["source"].to_pylist())
    whole_sources = {
        *WHOLE_SOURCES,
        *clean.filter(pc.is_valid(clean["nodes"]))["source"].to_pylist(),
    }
    now = None
    if sources & {"rate-card", "derived"}:
        sources |= whole_sources
        now = wh.clock().astimezone(UTC).replace(tzinfo=None)
    whole = sorted(sources & whole_sources)
    replaces = pc.is_in(clean["source"], value_set=pa.array(whole, pa.string()))
    if whole:
        rows, home = clean.filter(replaces), identify_home(wh.place, write=True)
        rows = rows.set_column(rows.column_names.index("home"), "home", pa.repeat(home, len(rows)))
        # One transaction: a process that dies in between would leave hours at the old prices.
        with wh.transaction() as cursor:
            conflict = find_conflict(cursor.execute, rows, cluster, home, wh.clock())
            if conflict is not None:
                whole = [source for source in whole if source != "settings"]
                rows = rows.filter(pc.not_equal(rows["source"], "settings"))
            if conflict:
                log.warning("prices of the settings are not used", extra={"why": conflict})
            before = _read_latest(cursor, whole, now)
            cursor.execute(_DELETE, {"sources": whole, "now": now, "cluster": cluster})
            cursor.register("incoming", rows)
            cursor.execute("INSERT INTO rate BY NAME SELECT * FROM incoming")
            cursor.unregister("incoming")
            if not _read_latest(cursor, whole, now).equals(before):
                dirty.mark_all_hours(cursor)
    rest = clean.filter(pc.invert(replaces))
    if rest.num_rows:
        wh.ingest([Batch("rate", rest)])
    if rejections:
        at = wh.clock()
        wh.ingest([build_batch(rejections, cluster=cluster, source="prices", at=at)])
    return int(clean.num_rows)


def identify_home(place: CatalogLocation, *, write: bool = False) -> str:
    """Return the id of a home among those that share a catalog; "" where it is the only one.

    `write`: a home that has none gets one.
    """
    path = place.home / "home-id"
    if place.embedded or not (write or path.exists()):
        return ""
    with suppress(FileExistsError), path.open("x", encoding="utf-8") as file:
        file.write(uuid.uuid4().hex)
    return path.read_text(encoding="utf-8").strip()


def find_conflict(
    execute: Callable[[str, dict[str, Any]], Any],
    rates: pa.Table,
    cluster: str,
    home: str,
    now: datetime,
) -> str | None:
    """Return why prices of settings among `rates` are not for a cluster; None: they are.

    Another home's prices stay for `STANDING` after they were stored last, unless these are equal;
    also where there are none among `rates`, which is no conflict: "".
    """
    since = f"{(now - STANDING).astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    values = {"cluster": cluster, "home": home, "since": since}
    theirs = _list_prices(execute(load_step("pricing/standing"), values).to_arrow_table())
    ours = _list_prices(rates.filter(pc.equal(rates["source"], "settings")))
    if not theirs or theirs == ours:
        return None
    text = f"another home over this catalog prices cluster {cluster} at {theirs} USD per GPU-hour"
    return ours and f"{text}, which stays, not {ours}"


def _list_prices(rates: pa.Table) -> str:
    prices = zip(rates["gpu_model"].to_pylist(), rates["node_usd_h"].to_pylist(), strict=True)
    return ", ".join(f"{usd.normalize():f} {model}".rstrip() for model, usd in sorted(prices))


def _read_latest(
    cursor: "duckdb.DuckDBPyConnection", sources: list[str], now: datetime | None
) -> pa.Table:
    sql = f"SELECT * EXCLUDE (as_of, home) FROM rate WHERE {_OF_SOURCES} ORDER BY ALL"
    return cursor.execute(sql, {"sources": sources, "now": now}).to_arrow_table()


def derive_device_rates(views: Views, window: Window, *, region: str = "") -> pa.Table:
    """Return which rate prices each device and when: the rows behind the ledger's dollars.

    Columns: cluster, device, from_at, to_at, loaded_usd_h and gpu_usd_h (USD per hour of this
    device, by its weight), source, reference, as_of, rank (docs/prices.md). A device without a rate
    has no row.
    """
    return views.query(
        compose_query(
            (
                "ledger/begun",
                "ledger/node_models",
                "ledger/spans",
                "pricing/devices",
                *STRETCHES,
                "pricing/device_rates",
            )
        ),
        {**window.bounds(), "region": region},
    )

"""Decide which rate prices which device when, and store rates in the warehouse."""

import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fallow.clean_texts import clean_rows
from fallow.price_settings import PriceSettings
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

ERAS = ("inventory/every_era", "inventory/node_eras")
"""Steps that need the parameters since and until: what each node was from when to when."""
STRETCHES = tuple(
    f"pricing/{name}" for name in ("subjects", "kinds", "offers", "covered", "stretches")
)
"""Steps that need the step `devices` and `ERAS` before them, and the parameter region."""
PRICES = (*STRETCHES, "pricing/timelines", "pricing/prices")
"""The same steps, averaged per bucket of `step_s` seconds."""
WHOLE_SOURCES = ("settings", "rate-card", "derived", "on-prem", "commitment")
"""Sources that report all their rates each time: a rate that they no longer report has ended."""
STANDING = timedelta(days=1)
"""How long prices of settings stand against another home's: a service stores its own every few
minutes (`service.inventory_every`)."""
SHIPPED = ("rate-card", "derived")
"""Prices that every home has; of a home they are where its settings have a card or a discount."""
_OF_SOURCES = "(list_contains($sources, source) OR (nodes > 0 AND valid_to > $now))"
_CURSOR = "prices of "
"""A home's cursor has the time when it stored its prices last."""
_MOST_LISTED = 3

Execute = Callable[[str, dict[str, Any]], Any]
Scope = tuple[str, str]
"""A source and a cluster ("" = any): what two homes may price differently."""

log = logging.getLogger("fallow.prices")


def store_rates(wh: "Warehouse", rates: Batch) -> int:
    """Store a price source's `rate` rows; return how many it gave.

    Sources that have only the present state (settings, rate card, on-prem) replace their earlier
    rows, so that a removed setting is gone; a removed commitment that had ended stays. Where that
    changes a price, all hours of the ledger are marked to be written again. Histories (spot) are
    added to. Prices of settings replace those of their cluster only, and none that another home
    over the catalog has (`find_conflicts`).
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
        _replace_rates(wh, clean.filter(replaces), whole, now)
    rest = clean.filter(pc.invert(replaces))
    if rest.num_rows:
        wh.ingest([Batch("rate", rest)])
    if rejections:
        at = wh.clock()
        wh.ingest([build_batch(rejections, cluster=cluster, source="prices", at=at)])
    return int(clean.num_rows)


def _replace_rates(
    wh: "Warehouse", rates: pa.Table, whole: list[str], now: datetime | None
) -> None:
    home, prices = identify_home(wh.place, write=True), wh.settings.prices
    clusters = sorted({"", wh.settings.cluster, *rates["cluster"].to_pylist()})
    # One transaction: a process that dies in between would leave hours at the old prices.
    with wh.transaction() as cursor:
        others = list_other_homes(cursor.execute, home, wh.clock())
        conflicts = find_conflicts(cursor.execute, rates, prices, others)
        for why in filter(None, conflicts.values()):
            log.warning("prices of the settings are not used", extra={"why": why})
        stored = [scope not in conflicts for scope in _list_scopes(rates)]
        rates = rates.filter(pa.array(stored, pa.bool_()))
        homes = pc.if_else(_is_shipped(rates, prices), "", home)
        rates = rates.set_column(rates.column_names.index("home"), "home", homes)
        before = _read_latest(cursor, whole, now)
        values = {"sources": whole, "now": now, "home": home}
        cursor.execute(
            load_step("pricing/remove_replaced"),
            {**values, "others": others, "clusters": clusters},
        )
        cursor.register("incoming", rates)
        cursor.execute("INSERT INTO rate BY NAME SELECT * FROM incoming")
        cursor.unregister("incoming")
        if home:
            name = _CURSOR + home
            cursor.execute("DELETE FROM cursor WHERE source = ?", [name])
            at = wh.clock().astimezone(UTC).replace(tzinfo=None)
            cursor.execute("INSERT INTO cursor VALUES (?, ?)", [name, at])
        if not _read_latest(cursor, whole, now).equals(before):
            dirty.mark_all_hours(cursor)


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


def list_other_homes(execute: Execute, home: str, now: datetime) -> list[str]:
    """Return the ids of the other homes that stored prices within `STANDING`."""
    since = (now - STANDING).astimezone(UTC).replace(tzinfo=None)
    rows = execute("SELECT source FROM cursor WHERE done_until > $since", {"since": since})
    names = [source for (source,) in rows.fetchall() if source.startswith(_CURSOR)]
    return [other for name in names if (other := name.removeprefix(_CURSOR)) != home]


def find_conflicts(
    execute: Execute, rates: pa.Table, prices: PriceSettings, others: Sequence[str]
) -> dict[Scope, str]:
    """Return where prices of other homes stay, so that none of `rates` is stored, and why.

    "": because these are equal, or none, or of the rate card as it ships.
    """
    ours = _group_prices(rates.filter(pc.invert(_is_shipped(rates, prices))))
    theirs = execute(load_step("pricing/standing"), {"others": others}).to_arrow_table()
    return {
        scope: _explain_conflict(scope, group, ours.get(scope, group))
        for scope, group in _group_prices(theirs).items()
    }


class _Price(msgspec.Struct, frozen=True):
    """What of a rate two homes may say differently."""

    node_usd_h: Decimal | None
    gpu_usd_h: Decimal | None
    gpu_count: int | None
    gpu_model: str
    provider: str
    instance_type: str
    region: str
    zone: str
    term: str
    nodes: int | None
    valid_from: datetime
    valid_to: datetime | None

    def describe(self) -> str:
        """Return the price of a GPU-hour, and for what it is."""
        usd = (self.node_usd_h or Decimal()) / (self.gpu_count or 1)
        nodes = f"x {self.nodes}" if self.nodes else ""
        where = (self.gpu_model, self.instance_type, self.region, self.zone, nodes)
        return " ".join(filter(None, (f"{round(usd, 4).normalize():f}", *where)))


def _group_prices(rates: pa.Table) -> dict[Scope, set[_Price]]:
    groups: dict[Scope, set[_Price]] = {}
    columns = [rates[name].to_pylist() for name in _Price.__struct_fields__]
    for scope, *values in zip(_list_scopes(rates), *columns, strict=True):
        groups.setdefault(scope, set()).add(_Price(*values))
    return groups


def _explain_conflict(scope: Scope, theirs: set[_Price], ours: set[_Price]) -> str:
    if theirs == ours:
        return ""
    source, cluster = scope
    where = f"cluster {cluster}" if cluster else "all clusters"
    prices = f"prices {where} at {_list_prices(theirs - ours or theirs)} USD per GPU-hour"
    listed = _list_prices(ours - theirs or ours)
    return f"another home over this catalog {prices} ({source}), which stays, not {listed}"


def _list_prices(prices: Iterable[_Price]) -> str:
    texts = sorted(price.describe() for price in prices)
    more = [f"{len(texts) - _MOST_LISTED} more"] if len(texts) > _MOST_LISTED else []
    return ", ".join(texts[:_MOST_LISTED] + more)


def _list_scopes(rates: pa.Table) -> list[Scope]:
    return list(zip(rates["source"].to_pylist(), rates["cluster"].to_pylist(), strict=True))


def _is_shipped(rates: pa.Table, prices: PriceSettings) -> pa.ChunkedArray:
    sources = () if prices.rate_card or prices.discount_pct else SHIPPED
    return pc.is_in(rates["source"], value_set=pa.array(sources, pa.string()))


def _read_latest(
    cursor: "duckdb.DuckDBPyConnection", sources: list[str], now: datetime | None
) -> pa.Table:
    sql = f"SELECT * EXCLUDE (as_of, home) FROM rate WHERE {_OF_SOURCES} ORDER BY ALL"
    return cursor.execute(sql, {"sources": sources, "now": now}).to_arrow_table()


def derive_device_rates(views: Views, window: Window, *, region: str = "") -> pa.Table:
    """Return which rate prices each device and when: the rows behind the ledger's dollars.

    Columns: cluster, device, from_at, to_at, loaded_usd_h and gpu_usd_h (USD per hour of this
    device, by its weight), source, reference, as_of, rank (docs/prices.md), committed (the
    share that commitments pay, 0-1). A device without a rate has no row.
    """
    return views.query(
        compose_query(
            (
                *ERAS,
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

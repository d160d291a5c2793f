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
from fallow.errors import UsageError
from fallow.protocols import Views
from fallow.rejections import build_batch
from fallow.settings.prices import PriceSettings
from fallow.tables import Batch, get_schema
from fallow.window import Window, get_month_start
from warehouse import dirty
from warehouse.catalog import CatalogLocation
from warehouse.ingest import upsert_rows
from warehouse.rate_history import (
    BEGIN,
    SHIPPED,
    PricedHours,
    RateChange,
    RateRow,
    Validity,
    end_rates,
    merge_rates,
)
from warehouse.statements import fetch_row, read_rows, run_change
from warehouse.steps import compose_query, load_step
from warehouse.views.copies import LAKE_SNAPSHOT

if TYPE_CHECKING:
    import duckdb

    from warehouse.lake import Warehouse

ERAS = ("inventory/every_era", "inventory/node_eras")
"""Steps that need the parameters since and until: what each node was from when to when."""
STRETCHES = tuple(
    f"pricing/{name}" for name in ("subjects", "kinds", "offers", "covered", "stretches")
)
"""Steps that need the step `device_places` and `ERAS` before them, and the parameter region."""
NODE_SHARES = (*ERAS, "pricing/billed/device_places", *STRETCHES, "pricing/node_shares")
"""Steps of what part of a node's hours and dollars commitments paid, by the ledger."""
PRICES = (*STRETCHES, "pricing/timelines", "pricing/prices")
"""The same steps, averaged per bucket of `step_s` seconds."""
WHOLE_SOURCES = (*SHIPPED, "settings", "on-prem", "commitment")
"""Sources that report all their rates each time: a rate that they no longer report has ended."""
STANDING = timedelta(days=1)
"""How long prices of settings stand against another home's: a service stores its own every few
minutes (`service.inventory_every`)."""
IMPORT = "import"
"""The source of prices that imports are given."""
_CURSOR = "prices of "
"""A home's cursor has the time when it stored its prices last."""
_MOST_LISTED = 3
DUE, PRICE = "due", "price"
"""Of rows of `restatement`: what is not compared yet, here for the price alone."""

Execute = Callable[[str, dict[str, Any]], Any]
Scope = tuple[str, str]
"""A source and a cluster ("" = any): what two homes may price differently."""

log = logging.getLogger("fallow.prices")


def store_rates(wh: "Warehouse", rates: Batch, *, is_restating: bool = False) -> int:
    """Store a price source's `rate` rows; return how many it gave.

    Sources that have only the present state (settings, rate card, on-prem) say all their prices: a
    setting that was removed has ended. Histories (spot, imports) are added to. From when on a price
    holds is decided by `merge_rates`; the hours of the ledger that it changes are marked to be
    written again. `is_restating`: hours of months that have ended are, too. Prices of settings
    replace those of their cluster only, and none that another home over the catalog has
    (`find_conflicts`).

    Raises:
        UsageError: a price of an import would change a month that has ended.
    """
    cluster, (clean, rejections) = wh.settings.cluster, clean_rows("rate", rates.rows)
    sources = set(clean["source"].to_pylist())
    whole = {*WHOLE_SOURCES, *clean.filter(pc.is_valid(clean["nodes"]))["source"].to_pylist()}
    is_all = bool(sources & set(SHIPPED))
    replaces = pc.is_in(clean["source"], value_set=pa.array(sorted(whole), pa.string()))
    rest = clean.filter(pc.invert(replaces))
    # One transaction: a process that dies in between would leave hours at the old prices.
    with wh.transaction() as cursor:
        if is_all or sources & whole:
            _replace_rates(
                wh,
                cursor,
                clean.filter(replaces),
                sorted(whole if is_all else sources & whole),
                is_all=is_all,
                is_restating=is_restating,
            )
        if rest.num_rows:
            _add_rates(cursor, rest, _get_now(wh), is_restating=is_restating)
    if rejections:
        at = wh.clock()
        wh.ingest([build_batch(rejections, cluster=cluster, source="prices", at=at)])
    return int(clean.num_rows)


def _replace_rates(
    wh: "Warehouse",
    cursor: "duckdb.DuckDBPyConnection",
    rates: pa.Table,
    sources: list[str],
    *,
    is_all: bool,
    is_restating: bool,
) -> None:
    home, prices, now = identify_home(wh.place, write=True), wh.settings.prices, _get_now(wh)
    clusters = sorted({"", wh.settings.cluster, *rates["cluster"].to_pylist()})
    others = list_other_homes(cursor.execute, home, wh.clock())
    conflicts = find_conflicts(cursor.execute, rates, prices, wh.clock(), others)
    for why in filter(None, conflicts.values()):
        log.warning("prices of the settings are not used", extra={"why": why})
    stored = [scope not in conflicts for scope in _list_scopes(rates)]
    rates = rates.filter(pa.array(stored, pa.bool_()))
    homes = pc.if_else(_is_shipped(rates, prices), "", home)
    rates = rates.set_column(rates.column_names.index("home"), "home", homes)
    scope = {"sources": sources, "now": now if is_all else None, "home": home}
    stated = prices.valid_from and prices.valid_from.astimezone(UTC).replace(tzinfo=None)
    validity = _read_validity(cursor, now, stated, is_restating=is_restating)
    changes = _merge_stored(
        cursor,
        load_step("pricing/replaced"),
        {**scope, "others": others, "clusters": clusters},
        rates,
        validity,
    )
    if is_all:
        cursor.execute("DELETE FROM restatement WHERE state = 'price' AND snapshot IS NULL")
    _note_changes(cursor, changes, now)
    _log_kept_prices(changes, validity, "prices.valid_from")
    if home:
        name = _CURSOR + home
        run_change(cursor, "DELETE FROM cursor WHERE source = $name", {"name": name})
        run_change(cursor, "INSERT INTO cursor VALUES ($name, $now)", {"name": name, "now": now})


def _add_rates(
    cursor: "duckdb.DuckDBPyConnection", rates: pa.Table, now: datetime, *, is_restating: bool
) -> None:
    is_import = pc.equal(rates["source"], IMPORT)
    validity = _read_validity(cursor, now, None, is_restating=is_restating)
    changes = _merge_stored(
        cursor,
        "SELECT *, rowid FROM rate WHERE source = $source",
        {"source": IMPORT},
        rates.filter(is_import),
        validity,
        is_whole=False,
    )
    ended = sorted(f"{c.from_at:%Y-%m}" for c in changes if c.is_waiting)
    if ended:
        raise UsageError(
            f"the price changes hours of months that have ended, {ended[0]} on",
            hint="--restate changes these, too; a later --valid-from does not",
        )
    _note_changes(cursor, changes, now)
    _log_kept_prices(changes, validity, "--valid-from")
    live = rates.filter(pc.invert(is_import))
    if live.num_rows:
        cursor.register("incoming", live)
        row = fetch_row(cursor, load_step("pricing/first_change"))
        cursor.unregister("incoming")
        upsert_rows(cursor, "rate", live)
        # A market's price is known later: hours of the open month follow it, as no correction.
        if row and row[0] is not None:
            dirty.mark_ledger_hours(cursor, max(row[0], validity.open_from), dirty.FAR)


def _get_now(wh: "Warehouse") -> datetime:
    return wh.clock().astimezone(UTC).replace(tzinfo=None)


def _read_validity(
    cursor: "duckdb.DuckDBPyConnection",
    now: datetime,
    stated: datetime | None,
    *,
    is_restating: bool,
) -> Validity:
    rows = cursor.execute(load_step("pricing/priced_hours"), {"now": now}).to_arrow_table()
    return Validity(
        stated,
        BEGIN if is_restating else get_month_start(now),
        tuple(msgspec.convert(rows.to_pylist(), list[PricedHours])),
    )


def _merge_stored(
    cursor: "duckdb.DuckDBPyConnection",
    sql: str,
    parameters: dict[str, Any],
    rates: pa.Table,
    validity: Validity,
    *,
    is_whole: bool = True,
) -> tuple[RateChange, ...]:
    """Store what `merge_rates` makes of the rows that a query selects; return what changes."""
    stored = read_rows(cursor, sql, parameters)
    history = merge_rates(_convert(stored), _convert(rates), validity, is_whole=is_whole)
    run_change(
        cursor, f"DELETE FROM rate WHERE rowid IN (SELECT rowid FROM ({sql}) AS stored)", parameters
    )
    rows = [msgspec.structs.asdict(row) for row in history.rows]
    cursor.register("incoming", pa.Table.from_pylist(rows, schema=get_schema("rate")))
    cursor.execute("INSERT INTO rate BY NAME SELECT * FROM incoming")
    cursor.unregister("incoming")
    return history.changes


def _convert(rates: pa.Table) -> list[RateRow]:
    return msgspec.convert(rates.to_pylist(), list[RateRow])


def _note_changes(
    cursor: "duckdb.DuckDBPyConnection", changes: Sequence[RateChange], now: datetime
) -> None:
    """Mark the hours of the ledger that changes of prices concern, and note their months.

    What changed is stored when the hours are written (`restatements.finish_price_changes`).
    """
    if not changes:
        return
    rows = [msgspec.structs.asdict(change) for change in changes]
    cursor.register("change", pa.Table.from_pylist(rows))
    marked, months = (
        compose_query(("pricing/changed_hours", step))
        for step in ("pricing/marked_hours", "restatement/changed_months")
    )
    hour = now.replace(minute=0, second=0, microsecond=0)
    due = read_rows(cursor, months, {"hour": hour}).to_pylist()
    if due:
        row = fetch_row(cursor, LAKE_SNAPSHOT)
        before = row[0] if row else None
        notes = [
            {"cluster": d["cluster"], "month": d["month"], "cause": DUE, "state": PRICE}
            | {"snapshot": None if d["is_waiting"] else before}
            for d in due
        ]
        table = pa.Table.from_pylist(notes, schema=get_schema("restatement"))
        upsert_rows(cursor, "restatement", table)
    cursor.execute(f"INSERT INTO unposted BY NAME {marked}")
    cursor.unregister("change")


def _log_kept_prices(changes: Sequence[RateChange], validity: Validity, name: str) -> None:
    """Log which hours keep their price though another one is reported."""
    if any(change.is_waiting for change in changes):
        log.warning(
            "prices change hours of months that have ended",
            extra={"why": "these keep their price until `fallow warehouse upgrade --restate`"},
        )
    if validity.stated is None and any(
        change.fits(hours) for change in changes for hours in validity.priced
    ):
        log.warning(
            "prices have changed",
            extra={"why": f"hours that have a price keep it; {name} says from when on others hold"},
        )


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
    execute: Execute,
    rates: pa.Table,
    prices: PriceSettings,
    now: datetime,
    others: Sequence[str],
) -> dict[Scope, str]:
    """Return where prices of other homes stay, so that none of `rates` is stored, and why.

    "": because these are equal, or none, or of the rate card as it ships. Prices that have ended
    are not compared, and of prices only commitments by their start.
    """
    at = now.astimezone(UTC).replace(tzinfo=None)
    own = rates.filter(pc.invert(_is_shipped(rates, prices)))
    ours = _group_prices(
        row for row in end_rates(_convert(own)) if (row.valid_to or dirty.FAR) > at
    )
    theirs = execute(load_step("pricing/standing"), {"others": others, "now": at}).to_arrow_table()
    return {
        scope: _explain_conflict(scope, group, ours.get(scope, group))
        for scope, group in _group_prices(_convert(theirs)).items()
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
    valid_to: datetime | None

    def describe(self) -> str:
        """Return the price of a GPU-hour, and for what it is."""
        usd = (self.node_usd_h or Decimal()) / (self.gpu_count or 1)
        nodes = f"x {self.nodes}" if self.nodes else ""
        where = (self.gpu_model, self.instance_type, self.region, self.zone, nodes)
        return " ".join(filter(None, (f"{round(usd, 4).normalize():f}", *where)))


def _group_prices(rates: Iterable[RateRow]) -> dict[Scope, set[_Price]]:
    groups: dict[Scope, set[_Price]] = {}
    for rate in rates:
        price = msgspec.convert(rate, _Price, from_attributes=True)
        groups.setdefault((rate.source, rate.cluster), set()).add(price)
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
                "inventory/value_eras",
                "ledger/spans",
                "pricing/device_places",
                *STRETCHES,
                "pricing/device_rates",
            )
        ),
        {**window.bounds(), "region": region},
    )

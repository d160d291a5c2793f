"""Account months of before anew by today's rules, and keep what that changed, by cause.

A month that older rules accounted has a row `due` in the table `restatement` (a migration writes
it). It is marked in the transaction that notes the lake's snapshot, so that a run that was killed
goes on, and compares with what was before the first one. What was not stored is not filled with
today's values: hours are derived from the same rows as before.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import polars as pl

from fallow.errors import WarehouseError
from fallow.tables import Batch
from fallow.window import Window
from warehouse.dirty import mark_ledger_hours
from warehouse.ingest import upsert_rows
from warehouse.lake import Warehouse
from warehouse.pricing import DUE, PRICE
from warehouse.statements import fetch_row
from warehouse.steps import load_step

if TYPE_CHECKING:
    from fallow.protocols import Views

CAUSES = ("capacity", "state", "owner", PRICE)
_HOUR = ("cluster", "device", "hour")
_LEAST_S, _LEAST_USD = 1.0, 0.00001
"""GPU-seconds and dollars of an hour of a device that are a difference, not rounding."""


class DueMonth(msgspec.Struct, frozen=True, order=True):
    """A month of all clusters that older rules or prices accounted; naive UTC."""

    start: datetime
    snapshot: int | None
    """The lake's snapshot before it was marked; None = it has not begun."""

    @property
    def window(self) -> Window:
        """Return its time."""
        return Window(self.start.replace(tzinfo=UTC), self.end.replace(tzinfo=UTC))

    @property
    def end(self) -> datetime:
        """Return the start of the next month."""
        year, month = divmod(self.start.year * 12 + self.start.month, 12)
        return datetime(year, month + 1, 1)  # noqa: DTZ001  (as in the tables)


class Restatement(msgspec.Struct, frozen=True):
    """What one cause changed in a month of a cluster: GPU-hours and dollars before and after.

    After: of the whole month (of a state: its hours) when the last change was accounted. Before:
    the same without this cause's changes, the first to the last.
    """

    cluster: str
    month: datetime
    cause: str
    state: str
    accounted_at: datetime
    is_ended: bool
    """Whether the month had ended: its figures were known before."""
    gpu_hours_before: float | None
    gpu_hours_after: float | None
    usd_before: float | None
    usd_after: float | None

    def describe(self) -> str:
        """Return it in words: `2026-10 of prod: state idle: 120.0 to 80.0 GPU-hours, ...`."""
        what = f"{self.month:%Y-%m} of {self.cluster}: {self.cause} {self.state}".rstrip()
        if self.usd_before is None or self.usd_after is None:
            return f"{what}: what was before is not readable any more"
        return (
            f"{what}: {self.gpu_hours_before:,.1f} to {self.gpu_hours_after:,.1f} GPU-hours,"
            f" ${self.usd_before:,.2f} to ${self.usd_after:,.2f}"
        )


def list_due_months(views: "Views") -> list[DueMonth]:
    """Return the months that older rules or prices accounted, oldest first."""
    rows = views.query(load_step("restatement/due_months")).to_pylist()
    return msgspec.convert(rows, list[DueMonth])


def has_waiting_prices(views: "Views") -> bool:
    """Return whether prices of the settings would change months that have ended."""
    sql = f"FROM restatement WHERE state = '{PRICE}' AND snapshot IS NULL LIMIT 1"
    return bool(views.query(sql).num_rows)


def read_restatements(
    views: "Views", window: Window, cluster: str | None = None
) -> list[Restatement]:
    """Return what was restated in the months that a window touches."""
    return msgspec.convert(
        views.query(
            load_step("restatement/restated"), {**window.bounds(), "cluster": cluster}
        ).to_pylist(),
        list[Restatement],
    )


def write_notes(views: "Views", window: Window, cluster: str | None = None) -> list[str]:
    """Return a line per change of a price, or of an ended month, that a window touches."""
    return [
        f"Restated on {row.accounted_at:%Y-%m-%d}: {row.describe()}."
        for row in read_restatements(views, window, cluster)
        if row.is_ended or row.cause == PRICE
    ]


def begin_month(warehouse: Warehouse, month: DueMonth) -> DueMonth:
    """Mark all that a month's hours are derived from; return it with its snapshot."""
    if month.snapshot is not None:
        return month
    bounds = month.window.bounds()
    with warehouse.transaction() as cursor:
        row = fetch_row(cursor, "SELECT id FROM ducklake_current_snapshot('lake')")
        cursor.execute(load_step("restatement/mark_buckets"), bounds)
        mark_ledger_hours(cursor, bounds["since"], bounds["until"])
        cursor.execute(
            f"UPDATE restatement SET snapshot = $snapshot WHERE cause = '{DUE}' AND month = $month",
            {"snapshot": row[0] if row else None, "month": month.start},
        )
    return msgspec.structs.replace(month, snapshot=row[0] if row else None)


def finish_price_changes(warehouse: Warehouse) -> None:
    """Store what changed prices have changed in months whose hours are all written since."""
    for row in warehouse.query(load_step("restatement/written_months")).to_pylist():
        finish_month(warehouse, msgspec.convert(row, DueMonth), only=PRICE)


def finish_month(warehouse: Warehouse, month: DueMonth, *, only: str = "") -> None:
    """Store what accounting a month anew has changed; it is due no more.

    `only`: the one cause that is stored; rows that came meanwhile changed what else differs.
    """
    due = f"cause = '{DUE}' AND month = $month AND state IN ($only, '{PRICE}')"
    of_month = {"month": month.start, "only": only}
    clusters = pl.DataFrame(
        warehouse.query(f"SELECT DISTINCT cluster FROM restatement WHERE {due}", of_month)
    )
    if clusters.is_empty():  # the accounting has finished a month of changed prices
        return
    after = _read_cells(warehouse, month)
    causes = ("capacity", only) if only else CAUSES
    try:
        with Warehouse.open(warehouse.settings, snapshot=month.snapshot) as earlier:
            rows = compare_cells(_read_cells(earlier, month), after, causes)
    except WarehouseError:  # a snapshot is kept for a day
        rows = pl.DataFrame({"cluster": after["cluster"].unique(), "cause": "unknown", "state": ""})
    if only:
        rows = rows.filter(pl.col("cause").is_in([only, "unknown"]))
        rows = rows.join(clusters, on="cluster", how="semi")
    none = clusters.join(rows, on="cluster", how="anti")
    rows = pl.concat(
        [rows, none.with_columns(cause=pl.lit("none"), state=pl.lit(""))], how="diagonal"
    )
    stored = pl.DataFrame(
        warehouse.query("FROM restatement WHERE month = $month", {"month": month.start})
    )
    rows = add_changes(rows, stored, after).with_columns(
        month=pl.lit(month.start), accounted_at=pl.lit(warehouse.clock().replace(tzinfo=None))
    )
    columns: dict[str, object] = rows.to_dict(as_series=False)  # type: ignore[assignment]
    with warehouse.transaction() as cursor:
        upsert_rows(cursor, "restatement", Batch.of("restatement", columns).rows)
        taken_back = f"cause = '{PRICE}' AND abs(usd_after - usd_before) < {_LEAST_USD}"
        cursor.execute(f"DELETE FROM restatement WHERE {due} OR ({taken_back})", of_month)


def add_changes(changes: pl.DataFrame, stored: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of changes as they are stored: with what changed before, of the whole month.

    So the hours of two changes may be the same ones, others, or both. `changes`: of
    `compare_cells`; `stored`: the month's rows of `restatement`; `cells`: the month's hours now.
    """
    keys, sums = ["cluster", "cause", "state"], ("gpu_seconds", "usd")
    if "usd_after" not in changes.columns:  # none is known
        return changes
    of_states = cells.group_by("cluster", "state").agg(pl.col(sums).sum())
    of_all = of_states.group_by("cluster").agg(pl.col(sums).sum()).with_columns(state=pl.lit(""))
    month = pl.concat([of_states, of_all], how="diagonal")
    change = {name: pl.col(f"{name}_after") - pl.col(f"{name}_before") for name in sums}
    earlier = stored.select(*keys, **{name: change[name].cast(pl.Float64) for name in sums})
    rows = changes.join(earlier, on=keys, how="left").with_columns(
        **{name: change[name] + pl.col(name).fill_null(0.0) for name in sums}
    )
    rows = rows.join(month, on=["cluster", "state"], how="left", suffix="_now")
    now = {name: pl.col(f"{name}_now").fill_null(0.0) for name in sums}
    return rows.select(
        *keys,
        **{f"{name}_before": now[name] - pl.col(name) for name in sums},
        **{f"{name}_after": pl.when(pl.col(name).is_not_null()).then(now[name]) for name in sums},
    )


def _read_cells(views: "Views", month: DueMonth) -> pl.DataFrame:
    bounds = month.window.bounds()
    return pl.DataFrame(views.query(load_step("restatement/cells"), bounds))


def compare_cells(
    before: pl.DataFrame, after: pl.DataFrame, causes: Sequence[str] = CAUSES
) -> pl.DataFrame:
    """Return what differs between two readings of `cells.sql`, summed by cluster and cause.

    An hour of a device has one cause, the first that it has of `causes`: its GPU time (capacity),
    its states, who held it (owner), its price. For states there is a row per state.
    """
    keys = [*_HOUR, "state", "holder"]
    # Later hours were written meanwhile by a service.
    after = after.join(
        before.select("cluster", "hour").unique(), on=["cluster", "hour"], how="semi"
    )
    both = before.join(after, on=keys, how="full", coalesce=True, suffix="_after").rename(
        {"gpu_seconds": "gpu_seconds_before", "usd": "usd_before"}
    )
    both = both.with_columns(pl.col("^(gpu_seconds|usd)_.*$").fill_null(0.0))

    def differ(by: Sequence[str]) -> pl.DataFrame:
        change = pl.col("gpu_seconds_after").sum() - pl.col("gpu_seconds_before").sum()
        return (
            both.group_by(*_HOUR, *by)
            .agg(change.abs().alias("change"))
            .group_by(_HOUR)
            .agg(pl.col("change").sum())
            .filter(pl.col("change") > _LEAST_S)
        )

    usd = (pl.col("usd_after").sum() - pl.col("usd_before").sum()).abs()
    parts = {
        "capacity": differ(()),
        "state": differ(["state"]),
        "owner": differ(["holder"]),
        PRICE: both.group_by(_HOUR).agg(usd.alias("change")).filter(pl.col("change") > _LEAST_USD),
    }
    first = pl.concat([parts[name].select(*_HOUR, cause=pl.lit(name)) for name in causes]).unique(
        _HOUR, keep="first", maintain_order=True
    )
    changed = both.join(first, on=_HOUR).with_columns(
        state=pl.when(pl.col("cause") == "state").then("state").otherwise(pl.lit(""))
    )
    sums = pl.col("gpu_seconds_before", "gpu_seconds_after", "usd_before", "usd_after").sum()
    summed = changed.group_by("cluster", "cause", "state").agg(sums)
    moved = (pl.col("gpu_seconds_after") - pl.col("gpu_seconds_before")).abs() > _LEAST_S
    paid = (pl.col("usd_after") - pl.col("usd_before")).abs() > _LEAST_USD
    return summed.filter((pl.col("state") == "") | moved | paid).sort("cluster", "cause", "state")

"""Prove that the tables add up: each audit is SQL that returns no rows when all is well.

The audits check that:

- the ledger's seconds equal the devices' seconds, and its dollars equal seconds times rates
- the ledger's totals per hour and day equal its rows
- no device is allocated more than once over, and no two exact allocations overlap
- energy only increases, and no faster than a GPU can use it
- no row is later than now
- device samples are valid for no more seconds than their bucket has
- every covered second is of exactly one class
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from fallow.gpu_models import read_gpu_models
from fallow.window import Window
from warehouse.dirty import MARKED_HOURS, find_hours_end
from warehouse.pricing import ERAS, PRICES
from warehouse.steps import load_step

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

MOST_SHOWN = 5
"""Rows of a failed audit that are kept for people to read, at most."""

MOST_NAMED = 3
"""Failed audits that the banner spells out; the others are counted."""

AGAINST_LEDGER = ("bill_sum", "ledger_capacity")
"""Audits that compare the ledger with devices and rates, which change before it is written."""

HOUR = timedelta(hours=1)
_EVER = (datetime(1970, 1, 1), datetime(9999, 1, 1))  # noqa: DTZ001  (tables hold naive UTC)


class AuditFailure(msgspec.Struct, frozen=True):
    """An audit that found rows: how many, and the first few."""

    audit: str
    rows: int
    sample: tuple[dict[str, Any], ...]

    def __str__(self) -> str:
        # Two runs of one sum can differ in a float's last digits: the sentence must not differ.
        columns = {
            k: f"{v:.10g}" if isinstance(v, float) else v
            for k, v in next(iter(self.sample), {}).items()
        }
        first = ", ".join(f"{k} {v}" for k, v in columns.items())
        return f"{self.audit}: {self.rows} rows, the first: {first}"


def format_banner(failures: Sequence[AuditFailure | str]) -> str | None:
    """Return the warning that pages, reports, CLI and log show; None = no audit failed."""
    if not failures:
        return None
    sentences = "; ".join(str(failure) for failure in failures[:MOST_NAMED])
    more = len(failures) - MOST_NAMED
    others = f"; and {more} more audits" if more > 0 else ""
    return (
        f"The ledger does not add up: {sentences}{others}. Do not rely on the figures of these "
        "hours; `fallow warehouse verify` runs every audit."
    )


@cache
def list_audits() -> tuple[str, ...]:
    """Return the audits' names."""
    entries = files("warehouse").joinpath("audits").iterdir()
    return tuple(sorted(p.name.removesuffix(".sql") for p in entries if p.name.endswith(".sql")))


def run_audits(
    warehouse: "Warehouse",
    window: Window | None = None,
    *,
    marked: bool = False,
    without: Collection[str] = (),
) -> list[AuditFailure]:
    """Run every audit over the whole hours of a window, or over all rows; return the failures.

    `without`: audits that are known to refuse nothing there.

    Hours that wait to be written again are newer in their devices and rates than in the ledger:
    the audits `AGAINST_LEDGER` compare them only with `marked`, which is for the accounting that
    has just written them.
    """
    since, until = find_hours(warehouse, window)
    rows = {
        name: run_audit(warehouse, name, since, until, marked=marked)
        for name in list_audits()
        if name not in without
    }
    return list_failures(rows)


def list_unaccounted_hours(warehouse: "Warehouse") -> list[tuple[str, datetime]]:
    """Return the hours, naive UTC, that the audits `AGAINST_LEDGER` leave out at present.

    Each has its cluster, "" = all clusters.
    """
    since, until = find_hours(warehouse, None)
    sql = f"FROM ({MARKED_HOURS}) WHERE bucket >= $since AND bucket < $until"
    rows = warehouse.query(sql, {"since": since, "until": until}).to_pylist()
    return sorted((row["cluster"] or "", row["bucket"]) for row in rows)


def has_accounted_hours(warehouse: "Warehouse") -> bool:
    """Return whether the ledger has an hour that does not wait to be written again."""
    sql = f"SELECT bucket FROM ledger_1h ANTI JOIN ({MARKED_HOURS}) USING (bucket) LIMIT 1"
    return bool(warehouse.query(sql).num_rows)


def run_audit(
    warehouse: "Warehouse", name: str, since: datetime, until: datetime, *, marked: bool = False
) -> pa.Table:
    """Run one audit over the hours of [since, until), naive UTC; return the rows it refuses.

    `marked`: as `run_audits`.
    """
    sql = load_step(f"audits/{name}")
    if name == "bill_sum":
        sql = add_prices(sql)
    return run_hours(warehouse, sql, since, until, marked=marked)


def run_hours(
    warehouse: "Warehouse", sql: str, since: datetime, until: datetime, *, marked: bool = False
) -> pa.Table:
    """Run a query of this package over the hours of [since, until), naive UTC."""
    limit = warehouse.clock() + warehouse.settings.warehouse.future_tolerance
    parameters = {
        "since": since,
        "until": until,
        "latest_legal": limit.astimezone(UTC).replace(tzinfo=None),
        "models": [m.gpu_model for m in read_gpu_models()],
        "tdp_w": [m.tdp_w for m in read_gpu_models()],
        "step_s": 3600,
        "region": warehouse.settings.prices.region,
        "marked": marked,
    }
    return warehouse.query(sql, {k: v for k, v in parameters.items() if f"${k}" in sql})


def add_prices(sql: str) -> str:
    """Return a query with the steps before it that price each hour."""
    named = {path.rpartition("/")[2]: path for path in (*ERAS, *PRICES)}
    named = {"device_places": "pricing/billed/device_places", **named}
    steps = ", ".join(f"{noun} AS (\n{load_step(path)}\n)" for noun, path in named.items())
    return f"WITH {steps}\n{sql}"


def list_failures(rows: Mapping[str, pa.Table]) -> list[AuditFailure]:
    """Return the audits that refused rows, by name."""
    return [
        AuditFailure(name, refused.num_rows, tuple(refused.slice(0, MOST_SHOWN).to_pylist()))
        for name, refused in sorted(rows.items())
        if refused.num_rows
    ]


def find_hours(warehouse: "Warehouse", window: Window | None) -> tuple[datetime, datetime]:
    """Return the time range of the whole hours inside a window, or of all rows, naive UTC."""
    since, until = _round_hours(window) if window else _find_ledger_range(warehouse)
    # The audit `future` names hours that have not begun; the next accounting step removes them.
    return since, min(until, find_hours_end(warehouse).replace(tzinfo=None))


def _round_hours(window: Window) -> tuple[datetime, datetime]:
    start = window.start.astimezone(UTC).replace(tzinfo=None)
    end = window.end.astimezone(UTC).replace(tzinfo=None)
    return start + -(start - _EVER[0]) % HOUR, end - (end - _EVER[0]) % HOUR


def _find_ledger_range(warehouse: "Warehouse") -> tuple[datetime, datetime]:
    """Return the time range of all rollups and ledger rows: pricing all of time would be slow."""
    rows = warehouse.query(
        "SELECT min(since) AS since, max(until) AS until FROM ("
        "SELECT min(bucket) AS since, max(bucket) AS until FROM rollup_1h"
        " UNION ALL SELECT min(bucket), max(bucket) FROM ledger)"
    ).to_pylist()[0]
    if rows["since"] is None:
        return _EVER[0], _EVER[0] + HOUR
    return rows["since"], rows["until"] + HOUR

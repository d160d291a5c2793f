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

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from fallow.gpu_models import gpu_models
from fallow.window import Window
from warehouse.dirty import find_hours_end
from warehouse.pricing import PRICES
from warehouse.steps import load_step

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

MOST_SHOWN = 5
"""Rows of a failed audit that are kept for people to read, at most."""

MOST_NAMED = 3
"""Failed audits that the banner spells out; the others are counted."""

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


def run_audits(warehouse: "Warehouse", window: Window | None = None) -> list[AuditFailure]:
    """Run every audit over the whole hours of a window, or over all rows; return the failures."""
    since, until = _round_hours(window) if window else _find_ledger_range(warehouse)
    # The audit `future` names hours that have not begun; the next accounting step removes them.
    until = min(until, find_hours_end(warehouse).replace(tzinfo=None))
    limit = warehouse.clock() + warehouse.settings.warehouse.future_tolerance
    parameters = {
        "since": since,
        "until": until,
        "latest_legal": limit.astimezone(UTC).replace(tzinfo=None),
        "models": [m.gpu_model for m in gpu_models()],
        "tdp_w": [m.tdp_w for m in gpu_models()],
        "step_s": 3600,
        "region": warehouse.settings.prices.region,
    }
    failures = []
    for name in list_audits():
        sql = load_step(f"audits/{name}")
        if name == "bill_sum":
            named = {"devices": "pricing/billed"} | {p.rpartition("/")[2]: p for p in PRICES}
            steps = ", ".join(f"{noun} AS (\n{load_step(path)}\n)" for noun, path in named.items())
            sql = f"WITH {steps}\n{sql}"
        used = {k: v for k, v in parameters.items() if f"${k}" in sql}
        rows = warehouse.query(sql, used)
        if rows.num_rows:
            sample = tuple(rows.slice(0, MOST_SHOWN).to_pylist())
            failures.append(AuditFailure(name, rows.num_rows, sample))
    return failures


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

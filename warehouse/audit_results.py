"""Keep the results of audits by hour and day, so that readers audit only what has no result.

Accounting audits the hours that it writes and stores in `audit` which of them passed. A rewrite of
an hour deletes its result in the same transaction (`dirty.delete_audits`), and an hour that waits
to be written again (`unposted`) counts as one without a result. Readers run the audits over the
hours that have not passed: a failure is shown with the rows that it has now, and an hour that was
never audited is audited then. `stages.audit_stage.audit_due` repeats the audits of stored hours.

Most audits refuse rows of one hour, `ledger_totals` also rows of one day. `bill_sum` compares the
sum of a window: stored is by how much each hour differs, and the audit itself runs where the sum of
these may exceed its cent. The others (`LIVE`) read allocations and savings, or the newest rows, and
run each time.
"""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from fallow.gpu_models import read_gpu_models
from fallow.tables import Batch
from fallow.window import Window
from warehouse import audits
from warehouse.dirty import MARKED_HOURS
from warehouse.pricing import ERAS, PRICES
from warehouse.steps import load_step

if TYPE_CHECKING:
    import duckdb

    from warehouse.audits import AuditFailure
    from warehouse.lake import Warehouse

HOURLY = ("bill", "classes", "coverage", "energy", "ledger_capacity")
"""Audits whose rows are of one hour each: over two hours they refuse what they refuse in each."""
DAILY = "ledger_totals"
SEPARABLE = (*HOURLY, DAILY)
"""Audits that refuse of several days what they refuse of each."""
SUMMED = "bill_sum"
LIVE = ("future", "over_allocated", "overlap", "saved")
"""Audits that every reader runs: 0.15 s of CPU over 30 days of 2,000 GPUs."""

CERTAIN_USD = 0.009
"""Sum of the hours' differences up to which `bill_sum`, whose limit is 0.01, cannot fail."""
MERGE_GAP = timedelta(hours=6)
"""Hours to audit that are closer together than this are audited by one call."""
RECENT = timedelta(days=7)
"""The newest hours are audited again every `RECENT_AGE`, earlier hours every `AGE`."""
RECENT_AGE = timedelta(days=1)
AGE = timedelta(days=30)
MOST_DUE_HOURS = 168
"""What `list_due` returns: 5.5 to 6.1 s of CPU with 2,000 GPUs."""

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  (tables hold naive UTC)

_Span = tuple[datetime, datetime]


class ValidResults(msgspec.Struct, frozen=True):
    """Hours (with their difference from the bill, USD) and days whose audits passed."""

    hours: dict[datetime, float]
    days: frozenset[datetime]


def audit_hours(
    warehouse: "Warehouse", window: Window, *, marked: bool = False
) -> "list[AuditFailure]":
    """Run the audits over the hours that a window touches, store the results, return the failures.

    Hours that wait to be written again get a result only with `marked`, see `audits.run_audits`.
    The write transaction is open meanwhile, so that no other process changes an hour between its
    audit and the storing of the result.

    Raises:
        UnreadableDaysError: an hour needs archived days, and their store is away.
    """
    whole = window.whole()
    since, until = audits.find_hours(warehouse, whole)
    if since >= until:
        return audits.run_audits(warehouse, whole, marked=marked)
    with warehouse.transaction() as cursor:
        results = compute_results(warehouse, since, until, marked=marked)
        store_results(cursor, results, marked=marked)
    return read_failures(warehouse, whole, marked=marked)


def compute_results(
    warehouse: "Warehouse", since: datetime, until: datetime, *, marked: bool = False
) -> pa.Table:
    """Return the `audit` rows of the hours of [since, until), naive UTC, and of their days.

    Raises:
        UnreadableDaysError: an hour needs archived days, and their store is away.
    """
    rows = {name: audits.run_audit(warehouse, name, since, until, marked=marked) for name in HOURLY}
    differences = _read_differences(warehouse, since, until)
    hours = list_buckets(since, until, HOUR)
    first_day = _floor(since, DAY)
    end = _floor(until - HOUR, DAY) + DAY
    totals = {DAILY: audits.run_audit(warehouse.whole, DAILY, first_day, end)}
    days = list_buckets(first_day, until, DAY)
    return pa.concat_tables(
        [
            _build_results(warehouse, "1h", hours, rows, differences),
            _build_results(warehouse, "1d", days, totals, {}),
        ]
    )


def store_results(
    cursor: "duckdb.DuckDBPyConnection", results: pa.Table, *, marked: bool = False
) -> None:
    """Replace the results of hours and days; those that wait to be written only with `marked`.

    Slices that have hours of one day each return the result of this day: it is stored once.
    """
    cursor.register("incoming", results)
    cursor.execute(
        "DELETE FROM audit WHERE (period, bucket) IN (SELECT period, bucket FROM incoming)"
    )
    marked_hours = f"SELECT bucket FROM ({MARKED_HOURS}) WHERE cluster IS NULL"
    waits = f"period = '1h' AND bucket IN ({marked_hours}) AND NOT $marked"
    cursor.execute(
        f"INSERT INTO audit BY NAME SELECT DISTINCT * FROM incoming WHERE NOT ({waits})",
        {"marked": marked},
    )
    cursor.unregister("incoming")


def read_failures(
    warehouse: "Warehouse", window: Window, *, marked: bool = False
) -> "list[AuditFailure]":
    """Return what `audits.run_audits` returns for a window; hours that passed are not read again.

    Raises:
        UnreadableDaysError: an hour that has not passed needs archived days that are away.
    """
    since, until = audits.find_hours(warehouse, window)
    if since >= until:
        return audits.run_audits(warehouse, window, marked=marked)
    valid = _read_valid_results(warehouse, since, until, marked=marked)
    hours = _merge([h for h in list_buckets(since, until, HOUR) if h not in valid.hours], HOUR)
    first_day = _floor(since, DAY)
    days = _merge([d for d in list_buckets(first_day, until, DAY) if d not in valid.days], DAY)
    days = [(max(start, since), min(end, until)) for start, end in days]
    rows = {name: audits.run_audit(warehouse, name, since, until) for name in LIVE}
    rows |= {name: _run_spans(warehouse, name, hours, marked=marked) for name in HOURLY}
    rows[DAILY] = _run_spans(warehouse, DAILY, days)
    difference_usd = sum(valid.hours.values())
    for start, end in hours:
        difference_usd += sum(_read_differences(warehouse, start, end).values())
    if not difference_usd <= CERTAIN_USD:
        rows[SUMMED] = audits.run_audit(warehouse, SUMMED, since, until, marked=marked)
    return audits.list_failures(rows)


def list_due(warehouse: "Warehouse") -> list[_Span]:
    """Return the hours without a result, and those audited long ago, joined; naive UTC.

    They are at most `MOST_DUE_HOURS`.
    """
    now = warehouse.clock().astimezone(UTC).replace(tzinfo=None)
    parameters = {
        "digest": compute_digest(warehouse.settings.prices.region),
        "recent": now - RECENT,
        "recent_before": now - RECENT_AGE,
        "before": now - AGE,
        "most": MOST_DUE_HOURS,
    }
    due = warehouse.query(load_step("audit_results/due_hours"), parameters)["bucket"].to_pylist()
    return _merge(sorted(due), HOUR)


@cache
def compute_digest(region: str) -> str:
    """Return a digest of all that defines the audits with stored results, beside the tables."""
    texts = [f"{name}\n{load_step(f'audits/{name}')}" for name in (*SEPARABLE, SUMMED)]
    texts += [load_step(path) for path in ("pricing/billed/device_places", *ERAS, *PRICES)]
    texts += [load_step("audit_results/bill_differences"), region]
    texts += [f"{model.gpu_model} {model.tdp_w}" for model in read_gpu_models()]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def list_buckets(since: datetime, until: datetime, period: timedelta) -> list[datetime]:
    """Return the starts of the periods from `since`, which is one, to before `until`."""
    count = -(-(until - since) // period)
    return [since + n * period for n in range(count)]


def _read_valid_results(
    warehouse: "Warehouse", since: datetime, until: datetime, *, marked: bool
) -> ValidResults:
    rows = warehouse.query(
        load_step("audit_results/valid_results"),
        {
            "since": since,
            "until": until,
            "digest": compute_digest(warehouse.settings.prices.region),
            "marked": marked,
        },
    ).to_pylist()
    hours = {
        row["bucket"]: row["bill_difference_usd"]
        for row in rows
        if row["period"] == "1h" and row["bucket"] >= since
    }
    days = frozenset(row["bucket"] for row in rows if row["period"] == "1d")
    return ValidResults(hours, days)


def _run_spans(
    warehouse: "Warehouse", name: str, spans: list[_Span], *, marked: bool = False
) -> pa.Table:
    """Return the rows that one audit refuses in some time ranges, in the audit's own order."""
    refused = [
        (span, rows)
        for span in spans
        if (rows := audits.run_audit(warehouse, name, *span, marked=marked)).num_rows
    ]
    if not refused:
        return pa.table({})
    if len(refused) == 1:
        return refused[0][1]
    first, last = refused[0][0][0], refused[-1][0][1]
    return audits.run_audit(warehouse, name, first, last, marked=marked)


def _read_differences(
    warehouse: "Warehouse", since: datetime, until: datetime
) -> dict[datetime, float]:
    """Return by how many dollars each hour differs from its bill."""
    sql = audits.add_prices(load_step("audit_results/bill_differences"))
    rows = audits.run_hours(warehouse, sql, since, until).to_pylist()
    return {row["bucket"]: float(row["bill_difference_usd"]) for row in rows}


def _build_results(
    warehouse: "Warehouse",
    period: str,
    buckets: list[datetime],
    rows: Mapping[str, pa.Table],
    differences: Mapping[datetime, float],
) -> pa.Table:
    """Return the `audit` rows of consecutive hours or days; `rows`: what each audit refused."""
    length = HOUR if period == "1h" else DAY
    failed: dict[datetime, list[str]] = {}
    for name, refused in sorted(rows.items()):
        column = "hour_at" if "hour_at" in refused.column_names else "bucket"
        for bucket in {_floor(timestamp, length) for timestamp in _list_times(refused, column)}:
            failed.setdefault(bucket, []).append(name)
    now = warehouse.clock().astimezone(UTC).replace(tzinfo=None)
    count = len(buckets)
    columns: dict[str, object] = {
        "period": [period] * count,
        "bucket": buckets,
        "digest": [compute_digest(warehouse.settings.prices.region)] * count,
        "failed": [" ".join(failed.get(bucket, ())) for bucket in buckets],
        "bill_difference_usd": [differences.get(bucket, 0.0) for bucket in buckets],
        "audited_at": [now] * count,
    }
    return Batch.of("audit", columns).rows


def _list_times(rows: pa.Table, column: str) -> list[datetime]:
    return rows[column].unique().to_pylist() if rows.num_rows else []


def _merge(buckets: Iterable[datetime], period: timedelta) -> list[_Span]:
    """Return time ranges that contain these ascending buckets; close ones are joined."""
    spans: list[_Span] = []
    for bucket in buckets:
        if spans and bucket <= spans[-1][1] + MERGE_GAP:
            spans[-1] = (spans[-1][0], bucket + period)
        else:
            spans.append((bucket, bucket + period))
    return spans


def _floor(timestamp: datetime, period: timedelta) -> datetime:
    return timestamp - (timestamp - _EPOCH) % period

"""Mark what must be derived again: 5-minute buckets for the rollup, hours for the ledger.

A mark is set in the transaction that makes the work necessary, and cleared after the work is done.
A process that dies in between therefore causes repeated work, never missing work.
"""

import logging
from bisect import bisect
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

import duckdb
import numpy as np
import pyarrow as pa

from fallow.window import EARLIEST, Window
from warehouse.idle_rows import forget_hours
from warehouse.late_devices import Marks, SampleMarks, list_few_devices
from warehouse.opened import OpenWarehouse
from warehouse.sample_validity import VALIDITY
from warehouse.statements import fetch_row, fetch_rows, run_change, write_literal
from warehouse.steps import load_step

log = logging.getLogger("fallow.ledger")

BUCKET = timedelta(minutes=5)
HOUR = timedelta(hours=1)
MARK_OFFSET = timedelta(microseconds=1)
"""How much later than its hour a mark is after an accounting has taken it. What changes the hour
while it is written sets a mark of its own, which the accounting does not clear."""
UNMARKED = "EXCEPT SELECT bucket FROM unposted WHERE cluster IS NULL"
"""Which hours are to be marked: a mark without a cluster is of all clusters."""
MARKED_HOURS = "SELECT DISTINCT date_trunc('hour', bucket) AS bucket, cluster FROM unposted"
KEPT_AROUND = timedelta(days=45)
"""An hour is kept, and the ledger has it, where telemetry of a day at most so far from it is kept,
in the lake or archived: an outage of three months is unknown and paid. What one stray timestamp
makes is bounded."""
MERGE_GAP = timedelta(hours=6)
"""Hours to write that are closer together than this are written in one call."""
FAR = datetime.max  # noqa: DTZ901  (tables hold naive UTC)
_NEVER = datetime.min.replace(tzinfo=UTC)
_Part = tuple[datetime, datetime]
_IS_TAKEN = "bucket > date_trunc('hour', bucket)"


def mark_buckets(
    cursor: duckdb.DuckDBPyConnection, rows: pa.Table, marked_before: Marks
) -> SampleMarks:
    """Mark the buckets of sample rows, and the next one where a sample is still valid in it.

    Buckets in `marked_before` need no query: most samples are in a bucket that is marked already.
    """
    step = int(BUCKET.total_seconds() * 1e6)
    ts = rows.column("ts").to_numpy().astype("datetime64[us]").astype(np.int64)
    seconds = np.nan_to_num(rows.column("interval_s").to_numpy().astype(np.float64))
    first = ts // step
    last = np.clip((ts + (seconds * VALIDITY * 1e6).astype(np.int64) - 1) // step, first, first + 1)
    cluster = rows.column("cluster").combine_chunks()
    spoken = pa.table(
        {
            "cluster": pa.concat_arrays([cluster, cluster]),
            "bucket": pa.array(np.concatenate([first, last]) * step, pa.timestamp("us")),
        }
    )
    spoken = spoken.group_by(["cluster", "bucket"], use_threads=False).aggregate([])
    own = frozenset(
        zip(spoken.column("cluster").to_pylist(), spoken.column("bucket").to_pylist(), strict=True)
    )
    new, added = own - marked_before, None
    if new:
        names, buckets = zip(*sorted(new), strict=True)
        cursor.register(
            "marks", pa.table({"cluster": names, "bucket": pa.array(buckets, pa.timestamp("us"))})
        )
        added = fetch_row(
            cursor,
            "INSERT INTO dirty BY NAME SELECT * FROM marks ANTI JOIN dirty USING (cluster, bucket)",
        )
        cursor.unregister("marks")
    fresh = new if added and added[0] == len(new) else frozenset()
    return SampleMarks(marked_before | new, own, fresh, list_few_devices(rows))


def clear_buckets(
    cursor: duckdb.DuckDBPyConnection,
    cluster: str,
    first: datetime,
    last: datetime,
    but: str = "false",
) -> None:
    """Clear the marks of buckets in [first, last), but those of the SQL condition `but`."""
    # One expression that no file's statistics answer: for so few rows, finding out which files to
    # read takes longer than reading them.
    cursor.execute(
        'DELETE FROM dirty WHERE CASE WHEN "cluster" = $cluster'
        f" THEN bucket >= $first AND bucket < $last AND NOT ({but}) ELSE false END",
        {"cluster": cluster, "first": first, "last": last},
    )


def mark_hours(
    cursor: duckdb.DuckDBPyConnection, start: datetime, end: datetime, *, is_taken: bool = False
) -> None:
    """Mark the hours of [start, end), naive UTC on hour edges: the ledger must write them again.

    Their idle rows are no longer valid, nor those of the hour after, which begins as they end.
    `is_taken`: the accounting that runs does so.
    """
    forget_hours(cursor, start, end + HOUR)
    delay = MARK_OFFSET if is_taken else timedelta(0)
    start = max(start, EARLIEST)
    unmarked = cursor.execute(
        "SELECT unnest(range($start::TIMESTAMP, $end::TIMESTAMP, INTERVAL 1 HOUR)) AS bucket"
        f" {UNMARKED}",
        {"start": start + delay, "end": end},
    ).to_arrow_table()
    # Most hours are marked already, and a statement that inserts nothing costs the lake as much.
    if unmarked.num_rows:
        cursor.register("unmarked", unmarked)
        cursor.execute("INSERT INTO unposted BY NAME FROM unmarked")
        cursor.unregister("unmarked")


def mark_reassigned_hours(cursor: duckdb.DuckDBPyConnection, pods: pa.Table) -> None:
    """Mark the hours that were written before the owner or team of the incoming pods was known."""
    cursor.register("incoming", pods)
    cursor.execute(f"INSERT INTO unposted BY NAME {load_step('inventory/owners_known_later')}")
    cursor.unregister("incoming")


def mark_all_hours(cursor: duckdb.DuckDBPyConnection) -> None:
    """Mark every hour that the ledger has: the prices have changed."""
    mark_ledger_hours(cursor, EARLIEST, FAR)


def mark_ledger_hours(cursor: duckdb.DuckDBPyConnection, start: datetime, end: datetime) -> None:
    """Mark the hours of the ledger that [start, end), naive UTC, touches, and no others."""
    cursor.execute(
        "INSERT INTO unposted BY NAME"
        " SELECT DISTINCT time_bucket(INTERVAL 1 HOUR, bucket) AS bucket FROM ledger"
        " WHERE bucket >= date_trunc('hour', $start::TIMESTAMP) AND bucket < $end::TIMESTAMP"
        f" {UNMARKED}",
        {"start": start, "end": end},
    )


def find_hours_end(warehouse: OpenWarehouse) -> datetime:
    """Return the end of the current hour: later hours have not begun.

    A clock that is ahead by `warehouse.future_tolerance` is not yet wrong.
    """
    now = warehouse.clock().astimezone(UTC) + warehouse.settings.warehouse.future_tolerance
    return now.replace(minute=0, second=0, microsecond=0) + HOUR


def delete_audits(cursor: duckdb.DuckDBPyConnection, since: datetime, until: datetime) -> None:
    """Delete the results of audits of the hours and days that [since, until) touches (naive UTC).

    Called in the transaction that changes these hours of the ledger.
    """
    cursor.execute(
        "DELETE FROM lake.main.audit WHERE bucket < $until AND bucket > $since -"
        " CASE period WHEN '1h' THEN INTERVAL 1 HOUR ELSE INTERVAL 1 DAY END",
        {"since": since, "until": until},
    )


def take_marks(warehouse: OpenWarehouse) -> None:
    """Take the marks of all hours that have begun: `clear_marks` clears these and no later ones.

    Call it before anything is read that the ledger follows from. A mark that was taken by a process
    that died is still a mark.
    """
    parameters = {"end": find_hours_end(warehouse).replace(tzinfo=None), "taken": MARK_OFFSET}
    waiting = "bucket < $end AND bucket = date_trunc('hour', bucket)"
    count = f"SELECT bucket FROM unposted WHERE {waiting} LIMIT 1"
    if not warehouse.query(count, {"end": parameters["end"]}).num_rows:
        return
    with warehouse.transaction() as cursor:
        run_change(
            cursor,
            f"INSERT INTO unposted BY NAME SELECT bucket + $taken AS bucket FROM unposted"
            f" WHERE {waiting} {UNMARKED}",
            parameters,
        )
        run_change(cursor, f"DELETE FROM unposted WHERE {waiting}", parameters)


def list_marked_windows(warehouse: OpenWarehouse, window: Window) -> list[Window]:
    """Return the window and all hours whose marks are taken as windows, close ones joined.

    The oldest comes first. Hours that have not begun are left out and stay marked: rows of a clock
    that was ahead are in them, and they are accounted when the time has come.
    """
    marks = warehouse.query(f"SELECT DISTINCT bucket FROM unposted WHERE {_IS_TAKEN} ORDER BY ALL")
    hours = [(m - MARK_OFFSET).replace(tzinfo=UTC) for m in marks["bucket"].to_pylist()]
    end_of_hours = find_hours_end(warehouse)
    parts = sorted(
        (start, min(end, end_of_hours))
        for start, end in _cut_to_kept(
            warehouse, [(window.start, window.end), *((h, h + HOUR) for h in hours)]
        )
        if start < end_of_hours
    )
    ranges = parts[:1]
    for start, end in parts[1:]:
        if start <= ranges[-1][1] + MERGE_GAP:
            ranges[-1] = (ranges[-1][0], max(end, ranges[-1][1]))
        else:
            ranges.append((start, end))
    return [Window(start, end) for start, end in ranges]


def _cut_to_kept(warehouse: OpenWarehouse, parts: list[_Part]) -> list[_Part]:
    """Return times (aware) cut to the hours that are kept; marks of other hours are dropped."""
    recent = find_hours_end(warehouse) - KEPT_AROUND
    oldest = max(min(start for start, _ in parts), EARLIEST.replace(tzinfo=UTC))
    if min(start for start, _ in parts) >= recent:
        return parts
    spans = _list_kept(warehouse, oldest, recent)
    cut = [
        (max(start, first), min(end, last))
        for start, end in parts
        for first, last in spans[max(0, bisect(spans, (start,)) - 1) : bisect(spans, (end,))]
        if start < last and first < end
    ]
    if cut != parts:
        ends = [_NEVER, *(end for _, end in spans)]
        far = " OR ".join(
            f"bucket >= {write_literal(end)} AND bucket < {write_literal(start)}"
            for end, (start, _) in zip(ends, spans, strict=False)
        )
        with warehouse.transaction() as cursor:
            hours = run_change(cursor, f"DELETE FROM unposted WHERE {far}")
        if hours:
            log.warning(
                "hours far from all telemetry are not accounted",
                extra={"hours": hours, "first": f"{oldest:%Y-%m-%d %H:%M}"},
            )
    return cut


def _list_kept(warehouse: OpenWarehouse, oldest: datetime, recent: datetime) -> list[_Part]:
    """Return the kept times, apart and in order; what is `recent` is kept without telemetry."""
    with warehouse.snapshot() as cursor:
        days = fetch_rows(cursor, load_step("ingest/kept_days"), {"first": oldest - KEPT_AROUND})
    spans: list[_Part] = []
    middles = [day.replace(tzinfo=UTC) for (day,) in days if day <= recent.replace(tzinfo=None)]
    for start, end in [
        *((day - KEPT_AROUND, day + KEPT_AROUND) for day in middles),
        (recent, datetime.max.replace(tzinfo=UTC)),
    ]:
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return spans


def clear_marks(warehouse: OpenWarehouse, window: Window, left_out: Collection[str] = ()) -> None:
    """Clear the taken marks of the hours that a written window touches.

    `left_out`: clusters whose rows of these hours could not be written; these stay marked.
    """
    start, end = (m.astimezone(UTC).replace(tzinfo=None) for m in (window.start, window.end))
    with warehouse.transaction() as cursor:
        cursor.execute(
            f"DELETE FROM unposted WHERE bucket > $before AND bucket < $end AND {_IS_TAKEN}",
            {"before": start - HOUR + MARK_OFFSET, "end": end},
        )
        for cluster in left_out:
            cursor.execute(
                "INSERT INTO unposted BY NAME SELECT $cluster AS cluster, unnest("
                "range($first::TIMESTAMP, $end::TIMESTAMP, INTERVAL 1 HOUR)) AS bucket",
                {"cluster": cluster, "first": start + MARK_OFFSET, "end": end},
            )

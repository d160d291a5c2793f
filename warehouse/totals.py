"""Keep the ledger's totals: per hour by owner, per day by workload and node.

`ledger_1h` and `ledger_1d` are the sums of `totals/*.sql` over the ledger. Whoever replaces rows of
the ledger rewrites the totals of their hours and days in the same transaction, so that no reader
sees one without the other. The audit `ledger_totals` compares them. The results of the audits of
these hours and days are deleted with them.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from warehouse import dirty, idle_rows, statements
from warehouse.steps import load_step

if TYPE_CHECKING:
    import duckdb

PERIODS = {"ledger_1h": timedelta(hours=1), "ledger_1d": timedelta(days=1)}
"""The length of each table's buckets."""
FILL_STEP = timedelta(days=7)
"""What one statement of `fill_totals` sums: 10,000 GPUs have three million rows in it."""

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  (tables hold naive UTC)
_ENDLESS = datetime(9999, 1, 1)  # noqa: DTZ001

BY_DEVICE = "warehouse:totals/by_device/ledger_lines"
"""Step: the ledger's rows of $since to $until."""
BY_HOUR = "warehouse:totals/by_hour/ledger_lines"
"""Step: the same sums per hour; device, node and workload are null."""
BY_DAY = "warehouse:totals/by_day/ledger_lines"
"""Step: the same sums per day; device is null. The hours before the first and after the last
midnight are the ledger's rows."""


@contextmanager
def follow_changes(
    cursor: "duckdb.DuckDBPyConnection", table: str, where_sql: str, parameters: Mapping[str, Any]
) -> Iterator[None]:
    """Rewrite the totals of what the block changes in the ledger; leave other tables alone.

    The block replaces the rows that `where_sql` selects, in the transaction of the cursor. The idle
    rows of hours whose signals or holders it changes are no longer valid.
    """
    if table in {"signal", "allocation"}:
        since, until = parameters.get("since", _EPOCH), parameters.get("until", _ENDLESS)
        idle_rows.forget_hours(cursor, since, until)
    if table != "ledger":
        yield
        return
    before = _find_range(cursor, where_sql, parameters)
    yield
    cursor.execute("USE lake")  # the totals' SQL names the lake's tables
    ranges = [r for r in (before, _find_range(cursor, where_sql, parameters)) if r is not None]
    if ranges:
        since = min(first for first, _ in ranges)
        until = max(last for _, last in ranges) + timedelta(microseconds=1)
        _write_totals(cursor, since, until)
        dirty.delete_audits(cursor, since, until)


def fill_totals(cursor: "duckdb.DuckDBPyConnection") -> None:
    """Write the totals of the whole ledger, in the transaction of the cursor."""
    whole = _find_range(cursor, "true", {})
    if whole is None:
        return
    start = _floor(whole[0], timedelta(days=1))
    while start <= whole[1]:
        _write_totals(cursor, start, start + FILL_STEP)
        start += FILL_STEP


def _write_totals(cursor: "duckdb.DuckDBPyConnection", since: datetime, until: datetime) -> None:
    """Replace the totals of every hour and day that [since, until) touches (naive UTC)."""
    for table, period in PERIODS.items():
        end = _floor(until - timedelta(microseconds=1), period) + period
        span = {"since": _floor(since, period), "until": end}
        statements.run_change(
            cursor, f'DELETE FROM "{table}" WHERE bucket >= $since AND bucket < $until', span
        )
        insert = f'INSERT INTO "{table}" BY NAME {load_step(f"totals/{table}")}'
        statements.run_change(cursor, insert, span)


def _find_range(
    cursor: "duckdb.DuckDBPyConnection", where_sql: str, parameters: Mapping[str, Any]
) -> tuple[datetime, datetime] | None:
    """Return the first and last bucket of the ledger's rows that a condition selects."""
    sql = f"SELECT min(bucket), max(bucket) FROM lake.main.ledger WHERE {where_sql}"
    row = statements.fetch_row(cursor, sql, parameters)
    return None if row is None or row[0] is None else (row[0], row[1])


def _floor(timestamp: datetime, period: timedelta) -> datetime:
    return timestamp - (timestamp - _EPOCH) % period

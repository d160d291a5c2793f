"""Define what a table's view reads when its rows are in more than one tier.

`define_view(noun, state)` returns the SELECT of a table, or None for "the lake's table as it is".
`state` is read inside the reader's own snapshot, so that a reader sees a move between tiers
completely or not at all. SQL here names the lake's tables in full: `lake.main.sample`.

A row is in exactly one tier: the commit that registers a file deletes its rows from the lake. So a
view is the lake's rows plus those of the registered files, one branch per month (and schema). The
engine skips whole months by their constant bounds, and days inside a month by the files'
statistics. Files are listed, never globbed: a file without a registration is not read.
"""

from datetime import datetime

import msgspec

from warehouse.storage import get_storage


class TierState(msgspec.Struct, frozen=True):
    """In which tier rows are at one snapshot: watermarks by name, archived files by table."""

    watermarks: tuple[tuple[str, datetime], ...] = ()
    cold: tuple[tuple[str, str], ...] = ()
    """(table, path) of every archived Parquet file, in order."""
    bare: tuple[str, ...] = ()
    """Tables without any row so far, in order."""

    def watermark(self, name: str) -> datetime | None:
        """Return a watermark's timestamp (UTC, naive), or None when it was never set."""
        return dict(self.watermarks).get(name)

    def files(self, table: str) -> list[str]:
        """Return the archived files of a table."""
        return [path for name, path in self.cold if name == table]


def define_view(noun: str, state: TierState) -> str | None:
    """Return the SELECT of the table at this state, or None for the lake's table."""
    files = state.files(noun)
    if not files:
        # For a table without statistics DuckLake 1.5 queries the catalog again for each column.
        return f'SELECT * FROM lake.main."{noun}" WHERE false' if noun in state.bare else None
    months: dict[tuple[str, str], list[str]] = {}
    for path in files:
        day, shape = parse_name(path)
        months.setdefault((f"{day:%Y-%m}", shape), []).append(path)
    time_column = get_storage(noun).time_column
    branches = [f'SELECT * FROM lake.main."{noun}"']
    for (month, _), paths in sorted(months.items()):
        first = datetime.fromisoformat(f"{month}-01")
        following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
        branches.append(
            f"SELECT * FROM {read_files(paths)}"
            f" WHERE \"{time_column}\" >= TIMESTAMP '{first}'"
            f" AND \"{time_column}\" < TIMESTAMP '{following}'"
        )
    return " UNION ALL BY NAME ".join(branches)


def read_files(paths: list[str]) -> str:
    """Return the table function that reads these files; their folders are not read as columns."""
    listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
    return f"read_parquet([{listed}], hive_partitioning = false)"


def parse_name(path: str) -> tuple[datetime, str]:
    """Return the day and the schema's tag in an archived file's name.

    `.../sample/month=2026-11/day=2026-11-10/sample-20261110-<schema>-<rows>.parquet`
    """
    _, day, shape, _ = path.rpartition("/")[2].rsplit("-", 3)
    return datetime.strptime(day, "%Y%m%d"), shape  # noqa: DTZ007  (tables hold naive UTC)

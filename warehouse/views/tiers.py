"""Define what a table's view reads when its rows are in more than one tier.

`define_view(noun, state)` returns the SELECT of a table.
`state` is read inside the reader's own snapshot, so that a reader sees a move between tiers
completely or not at all. SQL here names the lake's tables in full: `lake.main.sample`.

A row is in exactly one tier: the commit that registers a file deletes its rows from the lake. So a
view is the lake's rows plus those of the registered files, one branch per month (and schema). The
engine skips whole branches by their constant bounds, and days inside a branch by the files'
statistics. Files are listed, never globbed: a file without a registration is not read. A branch
names its columns, so that no archived file is opened before a query needs its rows.

Where a place of archived files is away, its days have a branch each, over an empty table that has
the day in its name (`create_marker`). Such a view has the rows of the readable days only, and the
plan of a query shows which other days it would have read (`list_marked_days`). Nobody may show a
sum over such a view without reading them.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from datetime import date, datetime, timedelta

import msgspec

from fallow import tables
from warehouse.cold_reach import find_place
from warehouse.sql_access import INTERNAL_TABLES
from warehouse.statements import write_literal
from warehouse.storage import TYPES, get_storage

_DAY = timedelta(days=1)
_OF_ALL = frozenset({"node", "era", "rate"})
"""Tables that are read whole: what part of a commitment a cluster pays depends on all nodes."""
_COUNTED = frozenset({"node", "era"})
MOST_GPUS = 65_536
"""Of a node: collectors store no greater count (`untracked.sql` refuses one)."""
_MARKER = re.compile(r"\bunreadable (\w+) (\d{4}-\d\d-\d\d)\b")


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

    def overlap(self, table: str, start: datetime, end: datetime) -> list[str]:
        """Return the archived files of a table with days that [start, end) touches (naive UTC)."""
        return [p for p in self.files(table) if start - _DAY < parse_name(p)[0] < end]

    def places(self) -> frozenset[str]:
        """Return the places of all archived files."""
        return frozenset(find_place(path) for _, path in self.cold)

    def list_unreadable(self, table: str, away: frozenset[str]) -> list[date]:
        """Return the days of a table with files in places that are away."""
        paths = self.files(table) if away else []
        return sorted({parse_name(p)[0].date() for p in paths if find_place(p) in away})


def define_view(
    noun: str,
    state: TierState,
    away: frozenset[str] = frozenset(),
    schema: str = "",
    *,
    for_writer: bool = False,
    clusters: Collection[str] = (),
) -> str:
    """Return the SELECT of the table at this state.

    `away`: places that cannot be read; `schema` has the markers of their days (`create_marker`).
    `for_writer`: texts choose files too; only for this package's statements, whose texts are
    checked (`statements.bind_parameters`, `write_literal`). `clusters`: of which the view has rows,
    where not of all.
    """
    lake = f'SELECT * FROM lake.main."{noun}"' if for_writer else select_lake(noun)
    files = state.files(noun)
    of_clusters = select_clusters(noun, clusters)
    if not files:
        # For a table without statistics DuckLake 1.5 queries the catalog again for each column.
        rows = f"{lake} WHERE {'false' if noun in state.bare else of_clusters}"
        return _hide_damage(rows, clusters) if clusters and noun in _COUNTED else rows
    months: dict[tuple[str, str], list[str]] = {}
    for path in files:
        day, shape = parse_name(path)
        if find_place(path) not in away:
            months.setdefault((f"{day:%Y-%m}", shape), []).append(path)
    branches = [f"{lake} WHERE {of_clusters}"]
    for _, paths in sorted(months.items()):
        days = [parse_name(path)[0] for path in paths]
        source = f"SELECT * FROM {read_files(paths, noun)}"
        branches.append(f"{_bound(source, noun, min(days), max(days))} AND {of_clusters}")
    for missing in state.list_unreadable(noun, away):
        marker = f'{schema}."{_mark(noun, missing)}"'
        rows = f"SELECT unnest(u) FROM (SELECT unnest(u) AS u FROM {marker})"
        start = datetime.combine(missing, datetime.min.time())
        branches.append(_bound(f"SELECT * FROM ({rows})", noun, start, start))
    return " UNION ALL BY NAME ".join(branches)


def select_clusters(noun: str, clusters: Collection[str]) -> str:
    """Return the SQL condition of a table's rows that concern some clusters; none: of all rows."""
    has_cluster = noun not in INTERNAL_TABLES and "cluster" in tables.get_schema(noun).names
    if not clusters or not has_cluster or noun in _OF_ALL:
        return "true"
    return f'"cluster" IN ({", ".join(map(write_literal, sorted(clusters)))})'


def _hide_damage(rows: str, clusters: Collection[str]) -> str:
    """Return rows without the impossible counts of other clusters, which fail these alone."""
    of_clusters = select_clusters("device", clusters)
    count = f"CASE WHEN {of_clusters} OR gpu_count <= {MOST_GPUS} THEN gpu_count END"
    return f"SELECT * REPLACE ({count} AS gpu_count) FROM ({rows})"


def select_lake(noun: str) -> str:
    """Return the SELECT of a table's rows in the lake, so that no text reaches its file list.

    DuckLake 1.5.5 writes the constants of filters on columns, also those that a join finds, into
    the SQL that it runs over its catalog. A text ends there at a NUL, and what follows it is run. A
    filter on an expression is applied to rows only; this one copies nothing. Times and numbers
    still choose files.
    """
    if noun in INTERNAL_TABLES:
        texts = INTERNAL_TABLES[noun]
        replaced = f"REPLACE ({_hide(texts)})" if texts else ""
        return f"SELECT * {replaced} FROM lake.main.{noun}"
    columns = (
        _hide([c.name]) if c.type == "string" else f'"{c.name}"' for c in tables.list_columns(noun)
    )
    return f'SELECT {", ".join(columns)} FROM lake.main."{noun}"'


def create_markers(state: TierState, away: frozenset[str], schema: str) -> Iterator[str]:
    """Yield the statements that create the empty tables of the days that are not readable."""
    for noun in tables.list_table_names():
        columns = ", ".join(f'"{c.name}" {TYPES[c.type]}' for c in tables.list_columns(noun))
        for day in state.list_unreadable(noun, away):
            yield f'CREATE TABLE {schema}."{_mark(noun, day)}" (u STRUCT({columns})[])'


def list_marked_days(plan: str) -> dict[str, set[date]]:
    """Return the days, by table, that a query would have read, from its plan."""
    days: dict[str, set[date]] = {}
    for noun, day in _MARKER.findall(plan):
        days.setdefault(noun, set()).add(date.fromisoformat(day))
    return days


def read_files(paths: list[str], noun: str = "") -> str:
    """Return the table function that reads these files; their folders are not read as columns.

    With `noun` the table's columns are named, and no file is opened before its rows are read; a
    column that a file lacks is null.
    """
    listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
    columns = ", ".join(
        f"'{c.name}': {{name: '{c.name}', type: '{TYPES[c.type]}', default_value: NULL}}"
        for c in (tables.list_columns(noun) if noun else ())
    )
    schema = f", schema = MAP {{{columns}}}" if noun else ""
    return f"read_parquet([{listed}], hive_partitioning = false{schema})"


def parse_name(path: str) -> tuple[datetime, str]:
    """Return the day and the schema's tag in an archived file's name.

    `.../sample/month=2026-11/day=2026-11-10/sample-20261110-<schema>-<rows>.parquet`
    """
    _, day, shape, _ = path.rpartition("/")[2].rsplit("-", 3)
    return datetime.strptime(day, "%Y%m%d"), shape  # noqa: DTZ007  (tables hold naive UTC)


def _mark(noun: str, day: date) -> str:
    return f"unreadable {noun} {day}"


def _hide(columns: Iterable[str]) -> str:
    return ", ".join(f"""struct_extract({{'text': "{c}"}}, 'text') AS "{c}\"""" for c in columns)


def _bound(source: str, noun: str, first: datetime, last: datetime) -> str:
    """Return a branch with constant bounds: the days from `first` to `last`."""
    time_column = get_storage(noun).time_column
    return (
        f"{source} WHERE \"{time_column}\" >= TIMESTAMP '{first}'"
        f" AND \"{time_column}\" < TIMESTAMP '{last + _DAY}'"
    )

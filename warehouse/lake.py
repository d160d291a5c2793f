"""The warehouse: rows in, views out.

    with Warehouse.open(settings, write=True) as warehouse:
        warehouse.ingest(batches)
        rows = warehouse.query("SELECT * FROM sample WHERE device = $device", {"device": "GPU-1"})

One process writes an embedded warehouse (SQLite catalog); any number read it. A PostgreSQL catalog
takes several writing processes. Threads may share one `Warehouse`: writes take turns, each query
runs on a cursor and a snapshot of its own.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from copy import copy
from datetime import UTC, datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakSet

import duckdb
import msgspec
import pyarrow as pa

from fallow.errors import (
    FallowError,
    ForeignWarehouseError,
    TemporaryError,
    UnreadableDaysError,
    UsageError,
    WarehouseError,
)
from fallow.settings import Settings
from fallow.system.container_limits import release_memory
from fallow.system.private_files import narrow_home
from fallow.tables import Batch
from warehouse import catalog, ingest, schema, sql_access, statements, totals
from warehouse.addresses import HostNames
from warehouse.cold_reach import find_place
from warehouse.data_files import DataFiles, LakeFiles
from warehouse.data_objects import open_lake_files
from warehouse.failures import StoreAwayError, end_statements, explain_errors
from warehouse.ingest import IngestResult
from warehouse.late_devices import LateDevices, Marks, SampleMarks
from warehouse.lock import WriterLock, queue_writers
from warehouse.place_marks import PlaceKind, PlaceMarks, refuse_filled
from warehouse.relocation import connect_moved
from warehouse.small_engine import SmallEngine
from warehouse.snapshot_reader import SnapshotReader
from warehouse.stages.files import NewFiles
from warehouse.views import ViewSchemas
from warehouse.views.tiers import list_marked_days, parse_name, select_clusters

log = logging.getLogger("fallow.warehouse")

Read = TypeVar("Read")
MOST_SNAPSHOTS = 64
"""Snapshots that one engine writes or reads before another replaces it: the lake's extension keeps
0.14 MiB of statistics of each for good (duckdb/ducklake#1136). Opening an engine takes 0.1 s."""


def get_utc_now() -> datetime:
    """Return the current time, aware."""
    return datetime.now(UTC)


class Warehouse:
    """An open warehouse. Open one with `Warehouse.open`."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        settings: Settings,
        place: catalog.CatalogLocation,
        lock: WriterLock | None,
        clock: Callable[[], datetime],
        *,
        files: LakeFiles,
        write: bool,
        within: timedelta | None = None,
    ) -> None:
        self.settings = settings
        self.place = place
        self.clock = clock
        self._connection = connection
        self._lock = lock
        direct = place.data if place.embedded and not (place.remote or place.in_memory) else ""
        self._views = ViewSchemas(connection, direct, can_archive=not place.in_memory)
        self._files = files
        self.turn = threading.RLock()
        self.dirty: Marks = frozenset()
        self.late = LateDevices()
        self.hosts = HostNames(clock)
        self._small = SmallEngine(settings, place)
        self._change = threading.RLock()
        self._commits = 0
        self.marks = PlaceMarks(settings, place, self._cursor)
        self._write = write
        self._writing = False
        self._within = within
        self._cursors = WeakSet[duckdb.DuckDBPyConnection]()
        self._clusters: frozenset[str] = frozenset()
        self._whole: Warehouse | None = None

    @classmethod
    def open(
        cls,
        settings: Settings,
        *,
        write: bool = False,
        clock: Callable[[], datetime] = get_utc_now,
        snapshot: int | None = None,
        within: timedelta | None = None,
        adopted: Collection[PlaceKind] = (),
        claimed: str = "",
    ) -> Self:
        """Open the warehouse that the settings name; open for writing creates and migrates it.

        `snapshot`: a reader sees this snapshot for good, whatever is written meanwhile. `within`:
        the time of each query. `adopted`: places that become this warehouse's, whose files are of
        none or of the one with the id `claimed`.

        Raises:
            TemporaryError: another process is writing, or PostgreSQL or S3 is not reachable.
            WarehouseError: there is none yet (reading), it is damaged, or its folder cannot be
                written.
            ForeignWarehouseError: a newer Fallow wrote it, or the catalog is another program's, or
                the files in its places are another warehouse's.
        """
        if not write:
            settings = catalog.limit_to_reading(settings)
        place = msgspec.structs.replace(catalog.locate_catalog(settings), snapshot=snapshot)
        files, lock = open_lake_files(settings, place), None
        with explain_errors(place.name):
            if write:
                place.home.mkdir(parents=True, exist_ok=True, mode=0o700)
                if place.embedded:
                    lock = WriterLock(place.home / "writer.lock")
                    lock.acquire()
            else:
                _check_existence(settings, place)
            _refuse_foreign(place)
            narrow_home(place.home)
            connection = None
            try:
                connection = connect_moved(
                    settings, place, write=write, adopted=adopted, claimed=claimed
                )
                cursor = connection.cursor()
                cursor.execute("USE lake")
                if write:
                    with nullcontext() if place.embedded else queue_writers(connection):
                        if _claim_places(
                            PlaceMarks(settings, place, connection.cursor), adopted, claimed
                        ):
                            files.put_back()
                        schema.migrate_schema(cursor, place.name, files)
                else:
                    schema.check_schema(cursor, place.name)
                cursor.close()
            except BaseException:
                if connection is not None:
                    connection.close()
                if lock is not None:
                    lock.release()
                raise
        return cls(
            connection, settings, place, lock, clock, files=files, write=write, within=within
        )

    @classmethod
    def open_in_memory(
        cls, settings: Settings, *, clock: Callable[[], datetime] = get_utc_now
    ) -> Self:
        """Open an empty warehouse whose tables are in memory, for writing; it ends with `close`.

        For experiments: the same tables, views and statements, which take a third of the time.
        There is no catalog and no file: what works on these (snapshots, stages in workers, the
        cold tier, status, backups, other processes) cannot be used, and compaction does nothing.
        """
        place = catalog.locate_in_memory(settings)
        files = DataFiles(place, durable=False)
        connection = catalog.connect_engine(settings, place, write=True)
        cursor = connection.cursor()
        cursor.execute("USE lake")
        schema.migrate_schema(cursor, place.name, files, is_lake=False)
        cursor.close()
        return cls(connection, settings, place, None, clock, files=files, write=True)

    @staticmethod
    def list_upgrade_steps(settings: Settings) -> list[schema.UpgradeStep]:
        """Return what opening for writing would change in the tables; nothing is changed.

        Raises: as `open` for reading.
        """
        settings = catalog.limit_to_reading(settings)
        place = catalog.locate_catalog(settings)
        _check_existence(settings, place)
        _refuse_foreign(place)
        with explain_errors(place.name):
            connection = connect_moved(settings, place, write=False)
            try:
                cursor = connection.cursor()
                cursor.execute("USE lake")
                return schema.list_upgrade_steps(cursor, place.name)
            finally:
                connection.close()

    def ingest(self, batches: Iterable[Batch]) -> IngestResult:
        """Store batches, all or none: when this returns they are durable.

        Raises:
            TemporaryError: a later call may succeed (disk full, catalog not reachable); nothing
                was written.
            WarehouseError: it is open for reading only, or it is damaged.
        """
        return ingest.ingest_batches(self, batches)

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Run one read-only statement with `$name` parameters over the tables' views.

        The statement sees one snapshot, however many writers commit meanwhile. Aware timestamps
        among the parameters are converted to the tables' naive UTC. Archived files are opened only
        where the statement needs their days.

        Raises:
            UsageError: it is not one SELECT, or the engine refuses it (unknown table or column).
            UnreadableDaysError: it needs archived days, and their store is away.
            TemporaryError: S3 or the catalog is not reachable, or the query took too long.
        """
        return self.query_prepared(sql, parameters or {})

    def query_prepared(
        self,
        sql: str,
        parameters: Mapping[str, Any],
        *,
        prepare: Callable[[duckdb.DuckDBPyConnection], None] | None = None,
        on_unreadable: Callable[[UnreadableDaysError], None] | None = None,
    ) -> pa.Table:
        """Run one read-only statement on a cursor that `prepare` has changed; see `query`.

        With `on_unreadable` the rows are those of the readable days: it is called with the others,
        which must be named beside the rows, and no sum over them may be shown.

        Raises: as `query`; UnreadableDaysError only without `on_unreadable`.
        """
        names = frozenset() if prepare else self._list_read_tables(sql)
        while True:
            try:
                with self._reading(names) as (cursor, away):
                    if prepare:
                        prepare(cursor)
                    try:
                        _check_plan(statements.plan_select, cursor, away, sql, parameters)
                    except UnreadableDaysError as error:
                        if on_unreadable is None:
                            raise
                        on_unreadable(error)
                    return statements.run_select(cursor, sql, parameters)
            except StoreAwayError:
                if not self._views.report_failure():
                    raise

    def _list_read_tables(self, sql: str) -> frozenset[str]:
        """Return the tables that a text reads; none where it is refused, which `query` explains."""
        if names := sql_access.list_read_tables(sql):
            return names
        cursor = self._cursor()
        try:
            with suppress(FallowError, duckdb.Error):
                sql_access.check_select(cursor, sql)
        finally:
            cursor.close()
        return sql_access.list_read_tables(sql)

    @property
    def whole(self) -> "Warehouse":
        """The warehouse with the rows of all clusters."""
        return self._whole or self

    def of_clusters(self, names: Iterable[str]) -> "Warehouse":
        """Return this warehouse as if the others had no clusters but these.

        Queries see their rows only, and `replace` and `derive` leave the others'. Nodes and rates
        are seen whole: what part of a commitment a cluster pays depends on the nodes of all.
        """
        part = copy(self)
        part._clusters, part._whole = frozenset(names), self  # noqa: SLF001
        return part

    def query_whole(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Run a query over all clusters; over those of `of_clusters` where others' rows fail it.

        Raises: as `query`.
        """
        if self._whole is not None:
            with suppress(UsageError, WarehouseError):
                return self._whole.query(sql, parameters)
        return self.query(sql, parameters)

    def read_memory_limit(self) -> int:
        """Return the bytes that the engine may use."""
        with self.catalog_cursor() as cursor:
            return statements.read_memory_limit(cursor)

    def list_away(self, places: Iterable[str]) -> frozenset[str]:
        """Return which places of archived files cannot be read at present."""
        return self._views.reach.list_away(places)

    def check_readable(self, files: Collection[str]) -> None:
        """Refuse to read archived files whose place is away. For this package's own modules.

        Raises:
            UnreadableDaysError: naming their days.
        """
        away = self.list_away({find_place(path) for path in files})
        if days := {parse_name(p)[0].date() for p in files if find_place(p) in away}:
            raise UnreadableDaysError(days, ", ".join(sorted(away)))

    @contextmanager
    def reading_files(self, files: Collection[str]) -> Iterator[None]:
        """Explain a failure to read these archived files. For this package's own modules.

        Raises:
            UnreadableDaysError: their store is away.
        """
        self.check_readable(files)
        try:
            with explain_errors(self.place.name):
                yield
        except StoreAwayError as error:
            places = {find_place(path) for path in files}
            self._views.reach.report_failure(places)
            if not files:
                raise
            days = {parse_name(path)[0].date() for path in files}
            raise UnreadableDaysError(days, ", ".join(sorted(places))) from error

    @contextmanager
    def _reading(
        self, names: frozenset[str]
    ) -> Iterator[tuple[duckdb.DuckDBPyConnection, frozenset[str]]]:
        """Yield a cursor on one snapshot of the views, and the places whose days they lack."""
        with explain_errors(self.place.name):
            if not self._write:
                self._renew_engine()
            with self._change:
                cursor, views = self._cursor(), self._views
            try:
                with end_statements(cursor.interrupt, self._within):
                    yield cursor, views.begin(cursor, names, self._clusters)
            finally:
                with suppress(duckdb.Error):
                    cursor.rollback()
                cursor.close()

    @contextmanager
    def reading_views(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a cursor on one snapshot of the tables' views. For this package's own modules.

        Raises:
            UnreadableDaysError: archived days cannot be read; their places are named.
        """
        with self._reading(frozenset()) as (cursor, away):
            if away:
                raise UnreadableDaysError((), ", ".join(sorted(away)))
            yield cursor

    def read_at_once(
        self, read: Callable[[SnapshotReader], Read], table_names: frozenset[str]
    ) -> Read:
        """Return what `read` returns; all its queries, of these tables, see one snapshot.

        It may be called again where a store of archived files turns out to be away. For this
        package's own modules.

        Raises: as `query`.
        """
        while True:
            try:
                with self._reading(table_names) as (cursor, away):
                    check = partial(_check_plan, statements.plan_change, cursor, away)
                    return read(SnapshotReader(cursor, check))
            except StoreAwayError:
                if not self._views.report_failure():
                    raise

    @contextmanager
    def snapshot(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a cursor on one snapshot of the lake's tables. For this package's own modules."""
        with explain_errors(self.place.name):
            cursor = self._cursor()
            try:
                cursor.execute("BEGIN TRANSACTION READ ONLY")
                cursor.execute("USE lake")
                yield cursor
            finally:
                with suppress(duckdb.Error):
                    cursor.rollback()
                cursor.close()

    @contextmanager
    def catalog_cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a cursor outside any transaction of the lake. For this package's own modules."""
        cursor = self._cursor()
        try:
            yield cursor
        finally:
            cursor.close()

    @contextmanager
    def transaction(self, *, is_small: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a cursor in one write transaction; unqualified names are the lake's tables.

        It commits when the block ends, after the new files are safe on disk, and rolls back when
        the block raises. `is_small`: it reads and writes few rows (`SmallEngine`). For this
        package's own modules.

        Raises:
            TemporaryError, WarehouseError: as `ingest`.
        """
        if not self._write:
            raise WarehouseError(
                f"the warehouse {self.place.name} was opened for reading",
                hint="open it with write=True",
            )
        with self.turn, explain_errors(self.place.name):
            if self._writing:
                raise RuntimeError("a write transaction is open already in this thread")
            self._renew_engine()
            turn = nullcontext() if self.place.embedded else queue_writers(self._connection)
            self._writing = True
            self.dirty = frozenset()  # the writer may be the rollup, which clears marks
            began = self._files.now()
            cursor = (self._small.open_cursor() if is_small else None) or self._cursor()
            try:
                with turn:
                    cursor.begin()
                    cursor.execute("USE lake")  # after BEGIN: one catalog query, not two
                    try:
                        yield cursor
                        self._files.commit(cursor, began)
                        self._commits += 1
                    except BaseException:
                        with suppress(duckdb.Error):
                            cursor.rollback()
                        raise
            finally:
                self._writing = False
                cursor.close()
            if not self.place.in_memory:
                self.marks.note_commit()

    def keep_dirty(self, marks: SampleMarks) -> None:
        """Keep marks that are committed; with several writing processes no process knows them."""
        if self.place.embedded:
            self.dirty = marks.stored
            self.late.note(marks)

    def replace(
        self,
        table: str,
        rows: pa.Table,
        where_sql: str = "true",
        parameters: Mapping[str, Any] | None = None,
        *,
        is_sorted: bool = False,
    ) -> int:
        """Replace the table's rows that `where_sql` selects by `rows`, in one transaction.

        The ledger's totals follow its rows. `is_sorted`: the rows lie in the table's order, and
        many are written as a file here. Returns how many rows were written.
        """
        named = parameters or {}
        if self._clusters:
            where_sql = f"({where_sql}) AND {select_clusters(table, self._clusters)}"
        with (
            self.transaction() as cursor,
            NewFiles(cursor, self.place) as files,
            totals.follow_changes(cursor, table, where_sql, named),
        ):
            statements.run_change(cursor, f'DELETE FROM "{table}" WHERE {where_sql}', named)
            if is_sorted:
                return files.store(table, rows)
            cursor.register("incoming", rows)
            cursor.execute(f'INSERT INTO "{table}" BY NAME SELECT * FROM incoming')
            cursor.unregister("incoming")
        return int(rows.num_rows)

    def derive(
        self,
        table: str,
        sql: str,
        where_sql: str,
        parameters: Mapping[str, Any],
    ) -> int:
        """Replace the table's rows that `where_sql` selects by a query's rows.

        Like `query` and `replace` in one transaction, but the rows never leave the engine. Both
        texts may use any of `parameters`. Returns how many rows were written.

        Raises:
            UnreadableDaysError: the query needs archived days, and their store is away.
        """
        if self._clusters:
            of_clusters = select_clusters(table, self._clusters)
            where_sql = f"({where_sql}) AND {of_clusters}"
            sql = f"SELECT * FROM ({sql}) WHERE {of_clusters}"
        while True:
            try:
                with self.transaction() as cursor:
                    away = self._views.use(cursor, self._clusters)
                    if away is not None:
                        _check_plan(statements.plan_change, cursor, away, sql, parameters)
                        delete_sql = f'DELETE FROM lake.main."{table}" WHERE {where_sql}'
                        put = f'INSERT INTO lake.main."{table}" BY NAME {sql}'
                        with totals.follow_changes(cursor, table, where_sql, parameters):
                            statements.run_change(cursor, delete_sql, parameters)
                            return statements.run_change(cursor, put, parameters)
            except StoreAwayError:
                if not self._views.report_failure():
                    raise
            self._views.ready(self._clusters)

    def interrupt(self) -> None:
        """End the statements that run, in whichever thread, with a `KeyboardInterrupt`."""
        with self._change:
            cursors = list(self._cursors)
        for cursor in cursors:
            with suppress(duckdb.Error):  # it is closed
                cursor.interrupt()

    def close(self) -> None:
        """Close the files and release the writer's lock."""
        self.marks.note_commit(is_last=True)
        with suppress(duckdb.Error):
            self._small.close()
            self._connection.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _renew_engine(self) -> None:
        """Replace an engine that had many snapshots; cursors that are open end on the old one."""
        place = self.place
        if place.in_memory or self._commits + self._views.count < MOST_SNAPSHOTS:
            return
        with self._change:
            if self._commits + self._views.count < MOST_SNAPSHOTS:  # another reader did it
                return
            self._commits = self._views.count = 0  # without success the next try is as late
            with suppress(duckdb.Error, FallowError):
                connection = catalog.connect_engine(self.settings, place, write=self._write)
                # Without `close`, which would close its cursors too, the old one ends with them.
                self._connection, self._views = connection, self._views.copy_to(connection)
                self._small.close()
            # Pieces that were freed lie scattered, and the C library keeps their pages.
            release_memory()

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        try:
            with self._change:
                cursor = self._connection.cursor()
                self._cursors.add(cursor)
                return cursor
        except duckdb.ConnectionException as error:
            raise FallowError(f"the warehouse {self.place.name} is closed") from error


def _claim_places(marks: PlaceMarks, adopted: Collection[PlaceKind], claimed: str) -> bool:
    """Mark the data files' place; return whether files may be removed from it.

    Archived files are checked when something is moved to them: their store may be away.
    """
    for kind in adopted:
        marks.adopt(kind, claimed)
    try:
        return marks.check("data")
    except TemporaryError as error:
        log.warning("the data files' mark is not read", extra={"why": error.message})
        return True


def _check_plan(
    plan: Callable[[duckdb.DuckDBPyConnection, str, Mapping[str, Any]], str],
    cursor: duckdb.DuckDBPyConnection,
    away: Collection[str],
    sql: str,
    parameters: Mapping[str, Any],
) -> None:
    """Refuse a query whose plan needs days of places that are away."""
    if away:
        _refuse_unreadable(away, plan(cursor, sql, parameters))


def _refuse_unreadable(away: Collection[str], plan: str) -> None:
    """Refuse a statement that needs days which the views of these places lack."""
    if days := list_marked_days(plan):
        tables_text = ", ".join(sorted(days))
        raise UnreadableDaysError(
            set().union(*days.values()), f"{', '.join(sorted(away))}: {tables_text}"
        )


def _check_existence(settings: Settings, place: catalog.CatalogLocation) -> None:
    path = place.home / catalog.CATALOG_FILE
    # A creation that was cut short leaves an empty file.
    if place.embedded and not (path.exists() and (path.stat().st_size or not path.is_file())):
        refuse_filled(settings, place)
        raise WarehouseError(
            f"there is no warehouse at {place.name} yet",
            hint="bring telemetry in first: fallow collect --once",
        )


def _refuse_foreign(place: catalog.CatalogLocation) -> None:
    """Refuse an SQLite file with tables of another program: nothing is written beside them."""
    path = place.home / catalog.CATALOG_FILE
    if not place.embedded or not path.is_file():
        return
    # A file that SQLite cannot read is damaged: the engine's own error says so.
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as file,
    ):
        names = {name for (name,) in file.execute("SELECT name FROM sqlite_master").fetchall()}
        if names and "ducklake_metadata" not in names:
            raise ForeignWarehouseError(
                f"{path} has tables of another program and none of Fallow's",
                hint="give Fallow a folder of its own: --home DIR",
            )

"""Provide one view per table over all tiers: what `Warehouse.query` lets SQL see.

The views are in the engine's own memory, one schema of them per tier state and places that are
away. So every reader of a process shares them, and after a move between tiers, or when a store is
lost or found again, readers use another schema. To create all views takes 0.15 s: readers that name
their tables share a schema with those that were named so far.
"""

import threading

import duckdb

from fallow import tables
from fallow.resources import read_text
from warehouse.catalog import refuse_special_file
from warehouse.cold_reach import ColdReach
from warehouse.sql_access import INTERNAL_TABLES
from warehouse.statements import fetch_row
from warehouse.views.copies import LAKE_SNAPSHOT
from warehouse.views.direct import DirectViews
from warehouse.views.tiers import TierState, create_markers, define_view

_MOVES = {"watermark", "cold_file"}
"""Queries that return in which tier rows are."""

_STATE = read_text("warehouse.views", "state.sql")
_BARE = read_text("warehouse.views", "bare.sql")
_Key = tuple[TierState, frozenset[str], frozenset[str]]
"""What views follow from: the tier state, the places that are away, the clusters."""


class ViewSchemas:
    """The view schemas that one engine has so far.

    `can_archive` False: the tables have no catalog, and no row can be in another tier.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        direct_data: str = "",
        *,
        can_archive: bool = True,
    ) -> None:
        self._connection = connection
        self._direct_data, self._can_archive = direct_data, can_archive
        self._direct = DirectViews(connection, direct_data)
        self._lock = threading.Lock()
        self._whole: dict[_Key, str] = {}
        """The schemas of all views, by what these follow from."""
        self._part: dict[_Key, tuple[str, frozenset[str]]] = {}
        """The schemas of views that readers named so far, and the names."""
        self._by_snapshot: tuple[int, TierState, frozenset[str]] | None = None
        self.reach = ColdReach()
        self.count = 0
        """Snapshots that were read so far."""

    def copy_to(self, connection: duckdb.DuckDBPyConnection) -> "ViewSchemas":
        """Return the schemas of another engine, none yet, with what is known of the places."""
        views = ViewSchemas(connection, self._direct_data, can_archive=self._can_archive)
        views.reach, views._by_snapshot = self.reach, self._by_snapshot
        return views

    def begin(
        self,
        cursor: duckdb.DuckDBPyConnection,
        names: frozenset[str] = frozenset(),
        clusters: frozenset[str] = frozenset(),
    ) -> frozenset[str]:
        """Begin a read-only transaction in which unqualified names are the tables' views.

        `names`: the tables, where the reader needs no others; see `direct`. `clusters`: see
        `define_view`. Returns the places of archived files that are away: the views lack their
        days.
        """
        if not clusters and self._direct.begin(cursor, names):
            return frozenset()
        while True:
            # A transaction does not see views that were created after it began, by this or another
            # reader.
            with self._lock:
                part = dict(self._part)
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            state, away = self._state(cursor)
            key = (state, away, clusters)
            if self._enter_whole(cursor, key):
                return away
            schema, there = part.get(key, ("", frozenset[str]()))
            if names and names <= there:
                cursor.execute(f"USE memory.{schema}")
                return away
            cursor.rollback()
            with self._lock:
                self._make(key, names)

    def use(
        self, cursor: duckdb.DuckDBPyConnection, clusters: frozenset[str] = frozenset()
    ) -> frozenset[str] | None:
        """Let unqualified names be the tables' views in a transaction that has begun already.

        Returns the places that are away, as `begin`; None where the views do not exist yet
        (`ready` creates them, outside of it).
        """
        state, away = self._state(cursor)
        return away if self._enter_whole(cursor, (state, away, clusters)) else None

    def ready(self, clusters: frozenset[str] = frozenset()) -> None:
        """Create the views of the current state, for transactions that begin from now on."""
        cursor = self._connection.cursor()
        try:
            self.begin(cursor, clusters=clusters)
            cursor.rollback()
        finally:
            cursor.close()

    def report_failure(self) -> bool:
        """Note that the object stores did not answer; return whether that changes the views."""
        latest = self._by_snapshot
        return latest is not None and self.reach.report_failure(latest[2])

    def _state(self, cursor: duckdb.DuckDBPyConnection) -> tuple[TierState, frozenset[str]]:
        """Return in which tier rows are, and which places of archived files are away."""
        if not self._can_archive:
            return TierState(), frozenset()
        # Most new snapshots are only a new scrape; the first reader of each queries the tier state.
        row = fetch_row(cursor, LAKE_SNAPSHOT)
        snapshot = int(row[0]) if row else 0
        latest = self._by_snapshot
        if latest is not None and latest[0] == snapshot:
            self._direct.refresh(snapshot, latest[1])
            return latest[1], self.reach.list_away(latest[2])
        bare = tuple(name for (name,) in cursor.execute(_BARE).fetchall())
        rows = [] if {*bare} >= _MOVES else cursor.execute(_STATE).fetchall()
        state = TierState(
            tuple((name, timestamp) for name, timestamp, path in rows if path is None),
            tuple((name, path) for name, _, path in rows if path is not None),
            bare,
        )
        if latest is None or latest[1].cold != state.cold:
            for _, path in state.cold:
                refuse_special_file(path)
        places = state.places()
        self.count += 1
        self._by_snapshot = (snapshot, state, places)
        return state, self.reach.list_away(places)

    def _enter_whole(self, cursor: duckdb.DuckDBPyConnection, key: _Key) -> bool:
        """Let unqualified names be all views, where the cursor's transaction sees them."""
        with self._lock:
            schema = self._whole.get(key)
        try:
            if schema is not None:
                cursor.execute(f"USE memory.{schema}")
        except duckdb.CatalogException:
            return False
        return schema is not None

    def _make(self, key: _Key, names: frozenset[str]) -> None:
        """Create the views of these names that are not there yet, or all; the lock is held."""
        if key in self._whole:
            return
        new = f"nouns_{len(self._whole) + len(self._part)}"
        schema, there = (
            self._part.get(key, (new, frozenset[str]())) if names else (new, frozenset())
        )
        wanted = names or frozenset((*tables.list_table_names(), *INTERNAL_TABLES))
        state, away, clusters = key
        cursor = self._connection.cursor()
        try:
            cursor.begin()  # one catalog query for all of them
            if not there:
                cursor.execute(f"CREATE SCHEMA memory.{schema}")
                for statement in create_markers(state, away, f"memory.{schema}"):
                    cursor.execute(statement)
            for noun in sorted(wanted - there):
                listed = define_view(
                    noun,
                    state,
                    away,
                    f"memory.{schema}",
                    for_writer=not self._can_archive,
                    clusters=clusters,
                )
                cursor.execute(f'CREATE VIEW memory.{schema}."{noun}" AS {listed}')
            cursor.commit()
        finally:
            cursor.close()
        if names:
            self._part[key] = (schema, there | wanted)
        else:
            self._whole[key] = schema

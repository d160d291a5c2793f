"""Provide one view per table over all tiers: what `Warehouse.query` lets SQL see.

The views are in the engine's own memory, one schema of them per tier state. So every reader of a
process shares them, and after a move between tiers readers use another schema.
"""

import threading

import duckdb

from fallow import tables
from fallow.resources import read_text
from warehouse.sql_access import INTERNAL_TABLES
from warehouse.views.tiers import TierState, define_view

_MOVES = {"watermark", "cold_file"}
"""Queries that return in which tier rows are."""

_STATE = read_text("warehouse.views", "state.sql")
_BARE = read_text("warehouse.views", "bare.sql")


class ViewSchemas:
    """The view schemas that one engine has so far."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._schema_by_state: dict[TierState, str] = {}
        self._by_snapshot: tuple[int, TierState] | None = None

    def begin(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Begin a read-only transaction in which unqualified names are the tables' views."""
        while True:
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            state = self._state(cursor)
            with self._lock:
                name = self._schema_by_state.get(state)
            # A transaction does not see views that were created after it began, by this or another
            # reader.
            if name is not None and _enter_schema(cursor, name):
                return
            cursor.rollback()
            with self._lock:
                if state not in self._schema_by_state:
                    self._schema_by_state[state] = self._make(state, len(self._schema_by_state))

    def use(self, cursor: duckdb.DuckDBPyConnection) -> bool:
        """Let unqualified names be the tables' views in a transaction that has begun already.

        Returns False where their views do not exist yet (`ready` creates them, outside of it).
        """
        with self._lock:
            name = self._schema_by_state.get(self._state(cursor))
        return name is not None and _enter_schema(cursor, name)

    def ready(self) -> None:
        """Create the views of the current state, for transactions that begin from now on."""
        cursor = self._connection.cursor()
        try:
            self.begin(cursor)
            cursor.rollback()
        finally:
            cursor.close()

    def _state(self, cursor: duckdb.DuckDBPyConnection) -> TierState:
        # Most new snapshots are only a new scrape; the first reader of each queries the tier state.
        row = cursor.execute("SELECT id FROM ducklake_current_snapshot('lake')").fetchone()
        snapshot = int(row[0]) if row else 0
        latest = self._by_snapshot
        if latest is not None and latest[0] == snapshot:
            return latest[1]
        bare = tuple(name for (name,) in cursor.execute(_BARE).fetchall())
        rows = [] if {*bare} >= _MOVES else cursor.execute(_STATE).fetchall()
        state = TierState(
            tuple((name, timestamp) for name, timestamp, path in rows if path is None),
            tuple((name, path) for name, _, path in rows if path is not None),
            bare,
        )
        self._by_snapshot = (snapshot, state)
        return state

    def _make(self, state: TierState, number: int) -> str:
        name = f"nouns_{number}"
        cursor = self._connection.cursor()
        try:
            cursor.begin()  # one catalog query for all of them
            cursor.execute(f"CREATE SCHEMA memory.{name}")
            for noun in (*tables.table_names(), *INTERNAL_TABLES):
                listed = define_view(noun, state) or f'SELECT * FROM lake.main."{noun}"'
                cursor.execute(f'CREATE VIEW memory.{name}."{noun}" AS {listed}')
            cursor.commit()
        finally:
            cursor.close()
        return name


def _enter_schema(cursor: duckdb.DuckDBPyConnection, name: str) -> bool:
    try:
        cursor.execute(f"USE memory.{name}")
    except duckdb.CatalogException:
        return False
    return True

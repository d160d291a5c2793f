"""A NUL in a text, whatever computes it: a reader changes no file and no row of the catalog.

DuckLake 1.5.5 ends a text at a NUL where it writes the SQL of its file list. `PAYLOAD` stood behind
such a text, in another filter of the same table, and ran.
"""

import csv
import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pytest

from fallow.errors import UsageError
from fallow.settings import Settings, load
from fallow.tables import Batch
from runtime.cli import run
from tests.servers.postgres import Server, serving
from tests.warehouse.test_sql_access import ATTACKS
from warehouse import catalog, extensions
from warehouse.lake import Warehouse
from warehouse.rollup import read_interval
from warehouse.statements import fetch_row
from warehouse.views.direct import DirectViews

PAYLOAD = ')))) ; DELETE FROM "__ducklake_metadata_lake".main.ducklake_data_file; COMMIT; --'
PLACES_PER_VALUE = 6
TABLES = ("sample", "pod", "dirty")
START = datetime(2026, 11, 19)  # noqa: DTZ001  (tables hold naive UTC)


def _read(name: str) -> list[dict[str, str]]:
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _list_statements() -> list[str]:
    """Return each value in six places, and so each place with ten values."""
    values, places = _read("nul_values.csv"), _read("nul_places.csv")
    payload = "'" + PAYLOAD + "'"
    return [
        places[(row * PLACES_PER_VALUE + step) % len(places)]["sql"].format(
            x=value["sql"], p=payload
        )
        for row, value in enumerate(values)
        for step in range(PLACES_PER_VALUE)
    ]


class Home(NamedTuple):
    """A warehouse with rows whose texts a hand could have written, and how to see its catalog."""

    settings: Settings
    dump_catalog: Callable[[], Any]

    def list_contents(self) -> tuple[dict[str, str], Any]:
        """Return the hash of each file outside the catalog, and the catalog's rows."""
        files = {
            str(path): _hash(path)
            for path in sorted(self.settings.home.rglob("*"))
            if path.is_file() and not path.name.startswith("catalog.sqlite")
        }
        return files, self.dump_catalog()


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "none"


def _write_home(settings: Settings) -> None:
    ends = ["!", "~"] * 4
    with Warehouse.open(settings, write=True) as writer:
        writer.ingest(
            [
                Batch.of(
                    "sample",
                    {
                        "cluster": ["test"] * 8,
                        "ts": [START + timedelta(minutes=i) for i in range(8)],
                        "device": [f"GPU-{i % 3}" for i in range(8)],
                        "namespace": ends,
                        "node": ends,
                        "gpu_index": [0] * 8,
                    },
                )
            ]
        )
        with writer.transaction() as cursor:  # as a release without the door stored it
            cursor.execute(
                "INSERT INTO sample BY NAME SELECT 'test' AS cluster, ts, 'GPU-9' AS device,"
                " 'm' || chr(0) AS namespace, $payload AS node, 'poisoned' AS pod,"
                " chr(0) AS container FROM sample LIMIT 1",
                {"payload": PAYLOAD},
            )


@contextmanager
def _dump_sqlite(settings: Settings) -> Iterator[Callable[[], Any]]:
    with closing(sqlite3.connect(settings.home / catalog.CATALOG_FILE)) as file:
        names = (catalog.CATALOG_FILE, f"{catalog.CATALOG_FILE}-wal")
        dumps: dict[tuple[str, ...], list[str]] = {}

        def read() -> list[str]:
            key = tuple(_hash(settings.home / name) for name in names)
            if key not in dumps:  # what a commit writes is in one of these two files
                dumps[key] = list(file.iterdump())
            return dumps[key]

        yield read


@contextmanager
def _dump_postgres(settings: Settings) -> Iterator[Callable[[], Any]]:
    name = "postgres_scanner"
    with duckdb.connect(config=extensions.build_config([name])) as connection:
        extensions.load_extension(connection, name)
        source = settings.warehouse.catalog.removeprefix("postgres:")
        connection.execute(f"ATTACH '{source}' AS site (TYPE postgres, READ_ONLY)")
        sql = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        names = connection.execute(f"FROM postgres_query('site', $${sql}$$)").fetchall()
        hashed = " UNION ALL ".join(
            f"SELECT '{n}' AS name, count(*) AS n, md5(string_agg(t::text, '|' ORDER BY t::text))"
            f" FROM {n} AS t"
            for (n,) in names
        )
        yield lambda: connection.execute(f"FROM postgres_query('site', $${hashed}$$)").fetchall()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Return a real PostgreSQL."""
    with serving() as made:
        yield made


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def home(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Home]:
    """Return a home whose catalog is in SQLite, then one whose readers' role may SELECT only."""
    flags: dict[str, Any] = {"home": tmp_path_factory.mktemp("nul") / "home", "cluster": "test"}
    dump = _dump_sqlite
    server: Server | None = None
    if request.param == "postgres":
        server, dump = request.getfixturevalue("server"), _dump_postgres
        flags["warehouse.catalog"] = server.catalog("nul")
    _write_home(load(environ={}, flags=flags).settings)
    if server:
        flags["warehouse.read_catalog"] = server.make_reader("nul")
    settings = load(environ={}, flags=flags).settings
    with dump(settings) as read:
        yield Home(settings, read)


@pytest.fixture
def only_lake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every query read the lake's tables; plain files and copies have no such danger."""
    monkeypatch.setattr(DirectViews, "refresh", lambda *_: None)


@pytest.mark.usefixtures("only_lake")
def test_no_statement_changes_a_file_or_a_row_of_the_catalog(home: Home) -> None:
    statements = _list_statements()
    assert len(set(statements)) == len(statements) >= 250
    wrong = {}
    with Warehouse.open(home.settings) as reader, duckdb.connect() as plain:
        for table in TABLES:
            plain.register(table, reader.query(f"FROM {table}"))
        before = home.list_contents()
        for sql in statements:
            try:
                rows = sorted(map(str, reader.query(sql).to_pylist()))
                expected = sorted(map(str, plain.execute(sql).to_arrow_table().to_pylist()))
            except UsageError as error:
                rows, expected = [str(error)[:300]], ["rows"]
            if rows != expected or home.list_contents() != before:
                wrong[sql] = rows, expected
        for attack in ATTACKS:
            with pytest.raises(UsageError):
                reader.query(attack.sql)
        assert home.list_contents() == before
    assert wrong == {}


@pytest.mark.usefixtures("only_lake")
def test_a_parameter_with_a_nul_is_refused_in_words(home: Home) -> None:
    before = home.list_contents()
    with Warehouse.open(home.settings) as reader:
        for place in _read("nul_places.csv"):
            sql = place["sql"].format(x="$x", p="$p")
            with pytest.raises(UsageError, match="has a NUL"):
                reader.query(sql, {"x": "m\0", "p": PAYLOAD})
        with pytest.raises(UsageError, match="has a NUL"):
            reader.query("SELECT list_contains($x, namespace) FROM sample", {"x": ["a", "m\0"]})
    assert home.list_contents() == before


def test_a_reader_attaches_the_catalog_read_only(home: Home) -> None:
    """The second line: what runs in the catalog's own query changes nothing."""
    before = home.list_contents()
    with Warehouse.open(home.settings) as reader, reader.catalog_cursor() as cursor:
        for sql in (
            "DELETE FROM __ducklake_metadata_lake.ducklake_data_file",
            "INSERT INTO lake.main.sample BY NAME FROM lake.main.sample",
            "CREATE TABLE __ducklake_metadata_lake.x (i INTEGER)",
        ):
            with pytest.raises(duckdb.Error, match="read-only"):
                cursor.execute(sql)
    assert home.list_contents() == before


def test_a_writer_gives_no_text_of_a_row_to_the_catalog(home: Home) -> None:
    """Rows of before may have a NUL: joins do not choose files, and a parameter is refused."""
    before = home.list_contents()
    joined = "SELECT count(*) FROM sample JOIN hostile USING (namespace, node)"
    stored = "SELECT count(*) FROM sample AS a JOIN sample AS b USING (namespace, node)"
    with Warehouse.open(home.settings, write=True) as writer, writer.snapshot() as cursor:
        cursor.register(
            "hostile", pa.table({"namespace": ["m\0"] * 3, "node": [PAYLOAD, "!", "~"]})
        )
        assert cursor.execute(joined).fetchall() == [(1,)]
        assert cursor.execute(stored).fetchall() == [(33,)]
        for sql in ("SELECT 1 FROM sample WHERE namespace = $x", "SELECT $x"):
            with pytest.raises(UsageError, match="has a NUL"):
                fetch_row(cursor, sql, {"x": "m\0"})
        with pytest.raises(UsageError, match="has a NUL"):
            read_interval(cursor, "test\0")
    assert home.list_contents() == before


def test_every_text_column_of_the_lake_is_behind_an_expression(home: Home) -> None:
    """A filter on a column of these views reaches the lake's file list only where it is no text."""
    with Warehouse.open(home.settings) as reader, reader.reading_views() as cursor:
        rows = cursor.execute(
            "SELECT c.table_name, c.column_name FROM duckdb_columns() AS c"
            " WHERE c.database_name = 'lake' AND c.data_type NOT IN ('TIMESTAMP', 'BOOLEAN',"
            " 'SMALLINT', 'INTEGER', 'BIGINT', 'FLOAT', 'DOUBLE', 'DECIMAL(18,8)', 'INTEGER[]',"
            " 'DOUBLE[]')"
        ).fetchall()
        assert len(rows) > 200
        for table, column in rows:
            plan = cursor.execute(f'EXPLAIN SELECT 1 FROM "{table}" WHERE "{column}" > \'x\'')
            text = "".join(c for c in plan.fetchall()[0][1] if c.isascii() and not c.isspace())
            assert "DUCKLAKE_SCAN" not in text or "(struct_extract(struct_pack(" in text, column


def test_the_command_answers_and_changes_nothing(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = home.list_contents()
    for key in ("catalog", "read_catalog"):
        if value := getattr(home.settings.warehouse, key):
            monkeypatch.setenv(f"FALLOW_WAREHOUSE__{key.upper()}", value)
    sql = f"SELECT count(*) AS n FROM sample WHERE namespace > 'm' || chr(0) AND node = '{PAYLOAD}'"
    arguments = ["warehouse", "query", sql, "-o", "csv", "--home", str(home.settings.home)]
    assert run(arguments) == 0
    assert capsys.readouterr().out == "n\n0\n"
    assert home.list_contents() == before

"""What a query may read and call: attacks, legal queries, and every function of the engine."""

import csv
import hashlib
import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fallow.errors import FallowError, UsageError
from fallow.settings import Settings
from fallow.tables import Batch
from runtime.cli import run
from warehouse import catalog, extensions, sql_access
from warehouse.lake import Warehouse

MARKER = "marker-4711"
"""What stands in a file that no query may read."""

LEGAL = [
    "FROM sample",
    "SELECT device, round(avg(gpu_util_pct), 1) AS util FROM sample GROUP BY ALL ORDER BY ALL",
    "WITH sample AS (FROM sample WHERE device = 'GPU-1') SELECT count(*) FROM sample",
    "WITH a AS (SELECT 1 AS x), b AS (SELECT x + 1 AS y FROM a) SELECT y FROM A, B",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 9) FROM r",
    "SELECT (WITH sample AS (SELECT 1 AS x) SELECT x FROM sample), count(*) FROM Sample",
    "VALUES (1), (2)",
    "FROM range(3)",
    "SELECT unnest([1, 2]), generate_series(1, 3)",
    "FROM generate_series(TIMESTAMP '2026-11-01', TIMESTAMP '2026-11-02', INTERVAL 1 HOUR)",
    "SELECT [x + 1 FOR x IN [1, 2] IF x > 1], list_transform([1], lambda y: y * 2)",
    "SELECT row_number() OVER (ORDER BY ts), lag(ts) OVER w FROM sample WINDOW w AS (ORDER BY ts)",
    "SELECT quantile_cont(gpu_util_pct, 0.5), arg_max(device, ts), histogram(device) FROM sample",
    "SELECT date_trunc('hour', ts), strftime(ts, '%Y'), ts AT TIME ZONE 'UTC' FROM sample",
    "SELECT '{\"a\": 1}'::JSON ->> 'a', regexp_replace('a', 'b', 'c'), 'a' LIKE 'b'",
    "SELECT json_extract('{}', '$.a'), now() > current_timestamp, CURRENT_DATE",
    "SELECT try_cast('x' AS INTEGER), coalesce(NULL, 1), CASE WHEN true THEN 1 END",
    "SELECT COLUMNS('.*_pct') FROM sample",
    "SELECT * EXCLUDE (cluster) REPLACE (1 AS device) FROM sample",
    "FROM sample PIVOT (count(*) FOR device IN ('GPU-0', 'GPU-1'))",
    "PIVOT sample ON device IN ('GPU-0') USING count(*)",
    "FROM sample ASOF JOIN node ON sample.node = node.node AND sample.ts >= node.last_seen",
    "FROM sample TABLESAMPLE 10%",
    "SELECT device FROM sample GROUP BY GROUPING SETS ((device), ())",
    "SELECT DISTINCT ON (device) * FROM sample ORDER BY ts DESC NULLS LAST LIMIT 3 OFFSET 1",
    "DESCRIBE sample",
    "SUMMARIZE sample",
    "SHOW TABLES",
    "SHOW sample",
    "DESCRIBE SELECT 1",
    "FROM dirty",
    "FROM watermark",
    "FROM cold_file",
]


class Attack(NamedTuple):
    """A text that a person may send, what it is after, and a part of the refusal."""

    target: str
    sql: str
    refusal: str


ATTACKS = [
    Attack(**row)
    for row in csv.DictReader(
        (Path(__file__).parent / "attacks.csv").read_text(encoding="utf-8").splitlines()
    )
]


class Home(NamedTuple):
    """A warehouse with rows, and files outside of it."""

    warehouse: Warehouse
    places: dict[str, str]

    def query(self, sql: str) -> pa.Table:
        """Run an attack whose placeholders name places of this machine."""
        for name, place in self.places.items():
            sql = sql.replace(f"{{{name}}}", place)
        return self.warehouse.query(sql)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """Return a warehouse open for reading, with a text and a Parquet file beside its home."""
    folder = tmp_path_factory.mktemp("attacked")
    (folder / "secret.txt").write_text(MARKER + "\n")
    pq.write_table(pa.table({"a": [MARKER]}), folder / "secret.parquet")
    settings = Settings(home=folder / "home")
    with Warehouse.open(settings, write=True) as writer:
        for day in (1, 2, 3):
            writer.ingest([_write_samples(day)])
    with Warehouse.open(settings) as reader:
        places = {
            "home": str(folder / "home"),
            "data": reader.place.data.rstrip("/"),
            "folder": str(folder),
            "secret": str(folder / "secret.txt"),
            "parquet": str(folder / "secret.parquet"),
        }
        yield Home(reader, places)


def _write_samples(day: int) -> Batch:
    devices = [f"GPU-{i}" for i in range(4)]
    return Batch.of(
        "sample",
        {
            "cluster": ["test"] * 4,
            "ts": [datetime(2026, 11, day, 12)] * 4,  # noqa: DTZ001  (tables hold naive UTC)
            "device": devices,
            "interval_s": [30.0] * 4,
            "gpu_util_pct": [float(i) for i in range(4)],
        },
    )


def _hash_files(folder: Path) -> dict[str, str]:
    # A reader of a SQLite catalog maps its -shm file; what it reads never changes the others.
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    }


def test_there_are_a_hundred_attacks() -> None:
    assert len({attack.sql for attack in ATTACKS}) == len(ATTACKS) >= 100


def test_every_attack_is_refused_in_words_and_changes_no_file(home: Home) -> None:
    before = _hash_files(Path(home.places["folder"]))
    answers = {}
    for attack in ATTACKS:
        try:
            answers[attack.sql] = f"answered {home.query(attack.sql).num_rows} rows"
        except UsageError as error:
            if attack.refusal not in error.message or MARKER in str(error):
                answers[attack.sql] = str(error)
    assert answers == {}
    assert _hash_files(Path(home.places["folder"])) == before
    assert home.warehouse.query("SELECT count(*) AS n FROM sample")["n"].to_pylist() == [12]


def test_the_engine_itself_opens_no_file_outside_the_lake(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second line: without the first, an attack on a file meets the engine's own refusal."""
    monkeypatch.setattr(sql_access, "check_select", lambda *_: None)
    leaks = []
    for attack in ATTACKS:
        if attack.target == "file" or (attack.target == "text" and "{secret}" in attack.sql):
            try:
                answer = str(home.query(attack.sql).to_pylist())
            except (FallowError, duckdb.Error) as error:
                answer = str(error)
            if MARKER in answer:
                leaks.append((attack.sql, answer))
    assert leaks == []


@pytest.mark.parametrize("sql", LEGAL)
def test_a_query_that_only_reads_is_answered(home: Home, sql: str) -> None:
    assert home.warehouse.query(sql).num_columns > 0


def test_a_query_nested_too_deep_is_refused(home: Home) -> None:
    with pytest.raises(UsageError):
        home.query("SELECT " + "[" * 900 + "1" + "]" * 900)


def test_the_command_refuses_with_exit_code_2(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(["warehouse", "query", "FROM glob('/etc/*')", "--home", home.places["home"]])
    answer = capsys.readouterr()
    assert code == 2
    assert "a query may not call glob: it reads or lists files" in answer.err
    assert answer.out == ""


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    """Return an engine with every extension that a warehouse may load, and nothing attached."""
    names = ["ducklake", "sqlite_scanner", "postgres_scanner", "httpfs"]
    with duckdb.connect(config=extensions.build_config(names)) as connection:
        for name in names:
            extensions.load_extension(connection, name)
        yield connection


KINDS = {
    "scalar": False, "macro": False, "aggregate": False, "table": True, "table_macro": True,
}  # fmt: skip
"""Whether functions of a type stand in FROM. A pragma is a statement, which is refused."""


def _list_functions(engine: duckdb.DuckDBPyConnection) -> set[tuple[str, bool]]:
    rows = engine.execute("SELECT DISTINCT function_name, function_type FROM duckdb_functions()")
    return {(name, KINDS[kind]) for name, kind in rows.fetchall() if kind != "pragma"}


def test_every_function_of_the_engine_has_a_rule(engine: duckdb.DuckDBPyConnection) -> None:
    """A new release that brings a function fails here until a person has reviewed it."""
    functions = _list_functions(engine)
    assert len(functions) > 900
    missing = [
        (name, in_from)
        for name, in_from in sorted(functions)
        if sql_access.find_function_rule(name, in_from=in_from) is None
    ]
    assert missing == []


def test_every_rule_is_for_a_function_of_the_engine(engine: duckdb.DuckDBPyConnection) -> None:
    functions = _list_functions(engine)
    unused = [
        rule.name
        for rule in sql_access.read_function_rules()
        if not any(
            in_from == (rule.kind == "table") and _is_for(rule.name, name)
            for name, in_from in functions
        )
    ]
    assert unused == ["unnest"]  # in an expression the parser knows it, and no list names it


def _is_for(rule: str, name: str) -> bool:
    return name.startswith(rule[:-1]) if rule.endswith("_*") else name == rule


def test_a_rule_says_why_it_refuses_and_only_then() -> None:
    rules = sql_access.read_function_rules()
    assert {rule.kind for rule in rules} == {"table", "scalar", "aggregate"}
    assert all(rule.access in ("allow", "refuse") for rule in rules)
    assert [rule.name for rule in rules if rule.allowed == bool(rule.reason)] == []
    assert [r.name for r in rules if r.allowed and r.name.endswith("_*")] == ["icu_collate_*"]


def test_no_function_in_from_is_allowed_but_those_that_compute() -> None:
    allowed = [r.name for r in sql_access.read_function_rules() if r.kind == "table" and r.allowed]
    assert allowed == [
        "generate_series", "icu_calendar_names", "json_each", "json_tree", "range", "repeat",
        "repeat_row", "unnest",
    ]  # fmt: skip


def test_allowed_macros_call_only_what_is_allowed(engine: duckdb.DuckDBPyConnection) -> None:
    rows = engine.execute(
        "SELECT function_name, macro_definition FROM duckdb_functions()"
        " WHERE function_type = 'macro'"
    ).fetchall()
    refused = {}
    for name, definition in rows:
        rule = sql_access.find_function_rule(name, in_from=False)
        if rule is None or not rule.allowed:
            continue
        row = engine.execute("SELECT json_serialize_sql(?)", [f"SELECT {definition}"]).fetchone()
        assert row is not None
        tree = json.loads(row[0])
        assert not tree["error"], (name, definition)
        try:
            for node, scope in sql_access._walk_nodes(tree["statements"]):
                sql_access._check_node(node, scope)
        except UsageError as error:
            refused[name] = error.message
    assert refused == {}


def test_a_home_that_is_named_through_another_folder_is_read_and_written(
    tmp_path: Path,
) -> None:
    (tmp_path / "a").mkdir()
    settings = Settings(home=tmp_path / "a" / ".." / "it's home")
    with Warehouse.open(settings, write=True) as warehouse:
        warehouse.ingest([_write_samples(1)])
    with Warehouse.open(settings) as reader:
        assert reader.query("FROM sample").num_rows == 4


def test_the_configuration_of_an_open_engine_cannot_be_changed(home: Home) -> None:
    cursor = home.warehouse._connection.cursor()
    for change in ("SET enable_external_access = true", "SET threads = 2", "RESET allowed_paths"):
        with pytest.raises(duckdb.Error, match="locked"):
            cursor.execute(change)
    rows = cursor.execute(
        "SELECT value FROM duckdb_settings() WHERE name = 'allowed_directories'"
    ).fetchone()
    root = home.places["home"]
    assert rows
    listed = re.sub(r"/spill/[^/,]+/", "/spill/", rows[0])
    assert listed == f"[{root}/cold/, {root}/data/, {root}/spill/, {root}/staging/]"


def test_archived_files_outside_the_cold_tier_of_the_settings_are_named(
    tmp_path: Path,
) -> None:
    """The tier's setting was changed: what lies at its old place is still read."""
    settings = Settings(home=tmp_path / "home")
    with Warehouse.open(settings, write=True) as warehouse, warehouse.transaction() as cursor:
        cursor.execute(
            "INSERT INTO cold_file BY NAME"
            " SELECT 'sample' AS noun, '/old/cold/sample/month=2026-11/day=1/x.parquet' AS path"
        )
    place = catalog.locate_catalog(settings)
    connection = catalog.connect_engine(settings, place, write=False)
    row = connection.execute("SELECT current_setting('allowed_directories')").fetchone()
    connection.close()
    assert row is not None
    assert "/old/cold/" in row[0]

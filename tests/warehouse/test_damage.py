"""A damaged file, a full disk, another version: said in words, nothing lost."""

import subprocess
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from fallow import tables
from fallow.errors import WarehouseError
from fallow.settings import Settings
from fallow.tables import Batch
from tests.warehouse.small_disk import run_on_small_disk
from warehouse import schema, tiers, verification
from warehouse.lake import Warehouse
from warehouse.verification import verify_warehouse


def look(day: int, devices: int = 400) -> Batch:
    return Batch.of(
        "sample",
        {
            "cluster": ["test"] * devices,
            "ts": [datetime(2026, 11, day)] * devices,  # noqa: DTZ001
            "device": [f"GPU-{i}" for i in range(devices)],
            "interval_s": [60.0] * devices,
            "gpu_util_pct": [float(i * 7919 % 101) for i in range(devices)],
            "power_w": [i * 0.7719 % 700 for i in range(devices)],
        },
    )


def data_files(settings: Settings) -> list[Path]:
    return sorted((settings.home / "data" / "main" / "sample").rglob("*.parquet"))


def truncate(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def scribble(path: Path, at: int, count: int = 64) -> None:
    raw = bytearray(path.read_bytes())
    raw[at : at + count] = b"\xa5" * len(raw[at : at + count])
    path.write_bytes(raw)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (Path.unlink, "is not there"),
    "empty": (lambda p: truncate(p, 0), "has 0 bytes"),
    "too short for a footer": (lambda p: truncate(p, 100), "has 100 bytes"),
    "cut in half": (lambda p: truncate(p, p.stat().st_size // 2), "bytes, the catalog says"),
    "footer overwritten": (lambda p: scribble(p, p.stat().st_size - 200), "cannot be read"),
    "magic overwritten": (lambda p: scribble(p, p.stat().st_size - 4), "cannot be read"),
    "pages overwritten": (lambda p: scribble(p, 40, 2000), "cannot be read"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named_and_the_other_days_still_answer(
    settings: Settings, now: datetime, damage: str
) -> None:
    with Warehouse.open(settings, write=True, clock=lambda: now) as wh:
        wh.ingest([look(18)])
        wh.ingest([look(19)])
    whole = "SELECT sum(gpu_util_pct) AS x, sum(power_w) AS y FROM sample"
    with Warehouse.open(settings) as wh:
        assert all(check.ok for check in verify_warehouse(wh))
        other = wh.query(f"{whole} WHERE ts >= '2026-11-19'")
    [broken] = [path for path in data_files(settings) if "day=18" in str(path)]
    kept = broken.read_bytes()
    harm, answer = DAMAGES[damage]
    harm(broken)
    with Warehouse.open(settings) as wh:
        with pytest.raises(WarehouseError) as caught:
            wh.query(whole)
        assert caught.value.hint is not None
        assert "fallow warehouse verify" in caught.value.hint
        assert wh.query(f"{whole} WHERE ts >= '2026-11-19'").equals(other)
        bad = [check for check in verify_warehouse(wh) if not check.ok]
        counted = ["snapshots without a file"] if damage == "missing" else []
        assert [check.subject for check in bad] == [f"sample: {broken}", *counted]
        assert answer in bad[0].detail
        assert "restore it from a backup" in bad[0].detail
    broken.write_bytes(kept)
    with Warehouse.open(settings) as wh:
        assert all(check.ok for check in verify_warehouse(wh))


def test_an_archived_file_must_be_the_one_that_was_written(
    settings: Settings, now: datetime
) -> None:
    with Warehouse.open(settings, write=True, clock=lambda: now) as wh:
        wh.ingest([look(8), look(9)])
        tiers.move_to_cold(wh, now)
        one, two = sorted(Path(p) for p in wh.query("FROM cold_file")["path"].to_pylist())
        assert {check.subject for check in verify_warehouse(wh) if check.ok} >= {
            "catalog",
            "cold sample",
        }
        scribble(one, one.stat().st_size // 2, 1)
        two.unlink()
        answer = {check.subject: check.detail for check in verify_warehouse(wh) if not check.ok}
    assert set(answer) == {f"cold sample: {one}", f"cold sample: {two}"}
    assert "has sha256" in answer[f"cold sample: {one}"]
    assert "is not there" in answer[f"cold sample: {two}"]


_FULL = """
import json, random, sys
from datetime import datetime, timedelta
from pathlib import Path
from fallow.errors import FallowError
from fallow.settings import load
from fallow.tables import Batch
from warehouse import maintenance
from warehouse.lake import Warehouse

home, n = Path(sys.argv[1]), 10000
chance = random.Random(7)  # does not compress: few looks fill the disk
settings = load(environ={}, flags={"home": home, "cluster": "test"}).settings
start = datetime(2026, 11, 20)
def look(k):
    return Batch.of("sample", {
        "cluster": ["test"] * n, "ts": [start + timedelta(seconds=60 * k)] * n,
        "device": [f"GPU-{i}" for i in range(n)], "interval_s": [60.0] * n,
        "power_w": [chance.uniform(0, 700) for _ in range(n)]})
def told(error):
    return {"kind": type(error).__name__, "code": error.exit_code, "text": error.message}
out = {"stored": 0, "failed": [], "compacting": None}
count = "SELECT count(*) AS n, count(DISTINCT ts) AS looks FROM sample"
with Warehouse.open(settings, write=True) as wh:
    while len(out["failed"]) < 3:
        try:
            wh.ingest([look(out["stored"])])
            out["stored"] += 1
        except FallowError as error:
            out["failed"].append(told(error))
    try:
        maintenance.compact_warehouse(wh)
    except FallowError as error:
        out["compacting"] = told(error)
    out["when_full"] = wh.query(count).to_pylist()[0]
(home / "ballast").unlink()
with Warehouse.open(settings, write=True) as wh:
    out["reopened"] = wh.query(count).to_pylist()[0]
    wh.ingest([look(out["stored"])])
    maintenance.compact_warehouse(wh)
    out["after"] = wh.query(count).to_pylist()[0]
print(json.dumps(out))
"""


@pytest.mark.slow
def test_a_full_disk_is_temporary_and_loses_nothing(
    tmp_path: Path, process: Callable[..., subprocess.Popen[str]]
) -> None:
    seen = run_on_small_disk(tmp_path, process, _FULL, ballast=4_500_000)
    n = seen["stored"]
    assert n > 3
    for failed in seen["failed"]:
        assert (failed["code"], "the disk is full" in failed["text"]) == (75, True)
    assert seen["when_full"] == seen["reopened"] == {"n": 10000 * n, "looks": n}
    assert seen["after"] == {"n": 10000 * (n + 1), "looks": n + 1}


def test_a_catalog_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a catalog?.sqlite"
    path.write_bytes(b"no database" * 100)
    check = verification._check_catalog(path)
    assert not check.ok
    assert "file is not a database" in check.detail
    assert f"restore {path}" in check.detail


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[int, str]], None]:
    """Return what gives this Fallow other migrations than it has."""

    def pretend(migrations: dict[int, str]) -> None:
        monkeypatch.setattr(schema, "load_migrations", lambda: migrations)

    return pretend


Older = Callable[[dict[int, str]], None]
TWO = "CREATE TABLE second (x INTEGER)"
THREE = "ALTER TABLE second ADD COLUMN y INTEGER; INSERT INTO second VALUES (1, 2)"


def versions(settings: Settings) -> list[int]:
    with Warehouse.open(settings) as wh:
        rows = wh.query("SELECT version FROM schema_version ORDER BY version")
    return [int(v) for v in rows["version"].to_pylist()]


def test_migrations_run_once_and_in_order(settings: Settings, older: Older) -> None:
    first = dict(schema.load_migrations())
    with Warehouse.open(settings, write=True) as wh:
        wh.ingest([look(18)])
    n = max(first)
    older({**first, n + 1: TWO, n + 2: THREE})
    lacks = rf"older Fallow \(schema {n}, this one reads {n + 2}\)"
    with pytest.raises(WarehouseError, match=lacks):
        Warehouse.open(settings)
    for _ in range(2):
        with Warehouse.open(settings, write=True) as wh, wh.transaction() as cursor:
            assert cursor.execute("FROM second").fetchall() == [(1, 2)]
    assert versions(settings) == [*first, n + 1, n + 2]
    older(first)
    for write in (False, True):
        with pytest.raises(WarehouseError, match=rf"schema {n + 2}, .* knows schemas up to {n}"):
            Warehouse.open(settings, write=write)


def test_a_warehouse_without_a_younger_column_names_it(settings: Settings) -> None:
    with Warehouse.open(settings, write=True) as wh, wh.transaction() as cursor:
        cursor.execute("ALTER TABLE device DROP COLUMN weight")
    with pytest.raises(WarehouseError, match=r"older Fallow \(it lacks device\.weight\)"):
        Warehouse.open(settings)
    with Warehouse.open(settings, write=True):
        pass
    with Warehouse.open(settings) as wh:
        assert "weight" in wh.query("FROM device").column_names


def test_a_warehouse_without_a_younger_noun_gains_it(settings: Settings) -> None:
    with Warehouse.open(settings, write=True) as wh, wh.transaction() as cursor:
        cursor.execute("DROP TABLE disruption_budget")
    with pytest.raises(WarehouseError, match="`fallow warehouse upgrade` brings it up to date"):
        Warehouse.open(settings)
    row = {"cluster": ["c"], "namespace": ["ns"], "name": ["b"], "disruptions_allowed": [1]}
    with Warehouse.open(settings, write=True) as wh:
        wh.ingest([tables.Batch.of("disruption_budget", row)])
    with Warehouse.open(settings) as wh:
        assert wh.query("SELECT disruptions_allowed AS n FROM disruption_budget")[
            "n"
        ].to_pylist() == [1]


def test_a_migration_that_fails_leaves_the_warehouse_as_it_was(
    settings: Settings, older: Older
) -> None:
    first = dict(schema.load_migrations())
    with Warehouse.open(settings, write=True) as wh:
        wh.ingest([look(18)])
    n = max(first)
    older({**first, n + 1: TWO, n + 2: f"{THREE}; SELECT no_such_function()"})
    with pytest.raises(WarehouseError, match="no_such_function"):
        Warehouse.open(settings, write=True)
    older(first)
    assert versions(settings) == [*first], "all migrations or none"
    older({**first, n + 1: TWO})
    with Warehouse.open(settings, write=True) as wh, wh.transaction() as cursor:
        assert cursor.execute("FROM second").fetchall() == []
        assert cursor.description is not None
        assert [column[0] for column in cursor.description] == ["x"]


def test_a_reader_reads_on_while_a_writer_migrates(settings: Settings, older: Older) -> None:
    first = dict(schema.load_migrations())
    with Warehouse.open(settings, write=True) as wh:
        wh.ingest([look(18)])
    with Warehouse.open(settings) as reader:
        before = reader.query("SELECT count(*) AS n FROM sample")
        n = max(first)
        older({**first, n + 1: TWO, n + 2: "ALTER TABLE sample ADD COLUMN gained INTEGER"})
        with Warehouse.open(settings, write=True) as wh:
            wh.ingest([look(19)])
        assert before["n"].to_pylist() == [400]
        assert reader.query("SELECT count(*) AS n FROM sample")["n"].to_pylist() == [800]
        assert reader.query("SELECT gpu_util_pct FROM sample LIMIT 1").num_rows == 1


def test_a_column_that_the_nouns_gained_is_added_and_old_rows_lack_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        wanted = {
            name: [c for c in tables.list_columns(name) if c.name != "power_w"]
            for name in tables.list_table_names()
        }
        patch.setattr(tables, "list_columns", lambda name: tuple(wanted[name]))
        with Warehouse.open(settings, write=True) as wh, wh.transaction() as cursor:
            cursor.execute(
                "INSERT INTO sample BY NAME SELECT 'test' AS cluster, 'GPU-0' AS device,"
                " TIMESTAMP '2026-11-17' AS ts"
            )
    with Warehouse.open(settings, write=True) as wh:
        wh.ingest([look(18, devices=1)])
        rows = wh.query("SELECT power_w FROM sample ORDER BY ts")
    assert rows["power_w"].to_pylist() == [None, 0.0]

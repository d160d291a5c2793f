"""A home of an older Fallow is listed, upgraded whole and then refused by the older code."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fallow import tables
from fallow.errors import TemporaryError
from fallow.resources import read_table
from fallow.settings import Settings
from runtime.service import opening
from runtime.service.opening import open_warehouse
from runtime.service.roles import WRITERS
from tests.cli.conftest import Fallow, unpack_code
from warehouse import schema
from warehouse.lake import Warehouse
from warehouse.restatements import list_due_months

HOMES = {
    "f5f0816": 1, "5644dd9d": 2, "12b4c8eb": 3, "0b6080a9": 4, "915a94f0": 5, "7c9eaea0": 6,
    "5b40bc47": 7, "f18536ef": 8, "24782901": 9, "1aee42e0": 10, "e5a5f77b": 11,
    "1572d7c4": 12, "c0de398c": 13, "136fb2b2": 14, "352b3208": 15, "e24a45ae": 16,
    "288f589e": 17, "0402a208": 18, "98eb0f1f": 19, "44c79516": 20, "1d3cef4f": 21,
    "fc4a938b": 22, "15f473ec": 23, "cdb11440": 24, "28679ef9": 25,
}  # fmt: skip
"""The last commit before each change of shape, with its version: also the last one after the change
before. The next version is that of today."""
MAKE = """
import sys
from pathlib import Path
from fallow.settings import Settings
from fallow.tables import Batch
from warehouse.lake import Warehouse
with Warehouse.open(Settings(home=Path(sys.argv[1])), write=True) as warehouse:
    warehouse.ingest([Batch.of("action", {"cluster": ["c"], "seq": [1], "kind": [sys.argv[2]]})])
"""


def compute_shape() -> str:
    """Return a hash of all tables, columns and types."""
    lines = sorted(
        f"{table}.{column.name} {column.type}"
        for table in tables.list_table_names()
        for column in tables.list_columns(table)
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def test_every_change_of_the_tables_has_a_version_of_its_own() -> None:
    rows = read_table("warehouse.migrations", "shapes.csv")
    assert int(rows[-1]["version"]) == schema.get_current(), "add its line to shapes.csv"
    assert rows[-1]["shape"] == compute_shape(), (
        "the tables changed: add warehouse/migrations/NNNN_what.sql and its line to shapes.csv"
    )
    assert len({row["shape"] for row in rows}) <= len(rows)


# In every run: the oldest home, which needs every migration, and the newest.
IN_EVERY_RUN = {min(HOMES.values()), max(HOMES.values())}


@pytest.fixture(
    params=[
        pytest.param(commit, marks=() if version in IN_EVERY_RUN else (pytest.mark.long,))
        for commit, version in HOMES.items()
    ]
)
def older_code(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, int]:
    """Return the sources of a commit of before, and the version of its homes."""
    commit = str(request.param)
    folder = tmp_path / "code"
    unpack_code(commit, folder, "fallow", "warehouse")
    return folder, HOMES[commit]


def test_every_version_of_before_has_a_home() -> None:
    assert sorted(HOMES.values()) == list(range(1, schema.get_current()))


def run_older(code: Path, home: Path, kind: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(code)}
    return subprocess.run(
        [sys.executable, "-c", MAKE, home, kind],
        cwd=code,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_home_of_before_is_listed_upgraded_and_refused_by_the_code_of_before(
    older_code: tuple[Path, int], settings: Settings, fallow: Fallow
) -> None:
    code, version = older_code
    kind = "noticed" if version == 1 else "notified"  # renamed by 0002
    ran = run_older(code, settings.home, kind)
    assert ran.returncode == 0, ran.stderr

    shown = fallow("warehouse", "upgrade", "--check", "-o", "json", "--home", settings.home)
    changes = [(row["change"], row["name"]) for row in json.loads(shown.out)["upgrade"]]
    migrations = [name for change, name in changes if change == "migration"]
    assert shown.code == 1
    assert [int(name[:4]) for name in migrations] == [*range(version + 1, schema.get_current() + 1)]
    refused = fallow("warehouse", "status", "--home", settings.home)
    assert refused.code == 1
    assert "`fallow warehouse upgrade` brings it up to date" in refused.err

    assert fallow("warehouse", "upgrade", "--home", settings.home).code == 0
    assert fallow("warehouse", "upgrade", "--check", "--home", settings.home).code == 0
    [copy] = settings.home.glob("catalog-before-*.sqlite")
    with TemporaryDirectory() as folder:  # the home of before, as one puts it back
        back = Path(folder) / "home"
        shutil.copytree(settings.home, back)
        shutil.copyfile(copy, back / "catalog.sqlite")
        for rest in back.glob("catalog.sqlite-*"):
            rest.unlink()
        older = fallow("warehouse", "upgrade", "--check", "-o", "json", "--home", back)
        assert json.loads(older.out)["upgrade"] == json.loads(shown.out)["upgrade"]
    with Warehouse.open(settings) as warehouse:
        assert warehouse.query("SELECT kind FROM action")["kind"].to_pylist() == ["notified"]

    again = run_older(code, settings.home, kind)
    assert again.returncode != 0
    assert f"knows schemas up to {version}" in again.stderr


def test_a_service_copies_the_catalog_before_it_upgrades_it(settings: Settings) -> None:
    with Warehouse.open(settings, write=True) as warehouse, warehouse.transaction() as cursor:
        cursor.execute("ALTER TABLE device DROP COLUMN weight")
    steps = Warehouse.list_upgrade_steps(settings)
    for _ in range(2):
        with open_warehouse(settings, WRITERS, threading.Event(), print) as warehouse:
            assert "weight" in warehouse.query("SELECT * FROM device").column_names
    [copy] = settings.home.glob("catalog-before-*.sqlite")
    shutil.copyfile(copy, settings.home / "catalog.sqlite")
    assert Warehouse.list_upgrade_steps(settings) == steps
    assert steps


def test_a_catalog_that_is_held_between_is_copied_once(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[Path] = []
    answers = iter([TemporaryError("held"), TemporaryError("held"), object()])

    def copy(*_: object) -> Path:
        copies.append(tmp_path / "copy")
        return copies[-1]

    def open_catalog(*_: object, **__: object) -> object:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return nullcontext()

    monkeypatch.setattr(opening, "copy_before_upgrade", copy)
    monkeypatch.setattr(Warehouse, "open", open_catalog)
    monkeypatch.setattr(opening, "RETRY_S", 0)
    shared = settings.model_copy(
        update={"warehouse": settings.warehouse.model_copy(update={"catalog": "postgres:"})}
    )
    with open_warehouse(shared, WRITERS, threading.Event(), lambda _: None):
        assert len(copies) == 1


def test_an_upgrade_lists_columns_tables_and_renames_and_changes_nothing(
    settings: Settings,
) -> None:
    with Warehouse.open(settings, write=True) as warehouse, warehouse.transaction() as cursor:
        cursor.execute("ALTER TABLE device DROP COLUMN weight")
        cursor.execute("DROP TABLE disruption_budget")
        cursor.execute("ALTER TABLE policy RENAME COLUMN stages TO ladder")
    expected = {
        ("rename", "policy.ladder to policy.stages"),
        ("table", "disruption_budget"),
        ("column", "device.weight"),
    }
    for _ in range(2):
        steps = Warehouse.list_upgrade_steps(settings)
        assert {(step.kind, step.name) for step in steps} == expected
    with Warehouse.open(settings, write=True):
        pass
    assert Warehouse.list_upgrade_steps(settings) == []


@pytest.mark.parametrize(("options", "months"), [((), 1), (("--restate",), 2)])
def test_the_months_that_an_old_schema_has_to_account_anew_are_listed(
    settings: Settings, fallow: Fallow, options: tuple[str, ...], months: int
) -> None:
    listed = ["2026-01", f"{datetime.now(UTC):%Y-%m}"]
    with Warehouse.open(settings, write=True) as warehouse, warehouse.transaction() as cursor:
        cursor.execute(
            "INSERT INTO ledger BY NAME SELECT 'c' AS \"cluster\", 'd' AS device,"
            " 'free' AS state, unnest($buckets::TIMESTAMP[]) AS bucket",
            {"buckets": [f"{month}-01" for month in listed]},
        )
        cursor.execute("DROP TABLE restatement")
        cursor.execute("DELETE FROM schema_version WHERE version > 12")
    words = ("warehouse", "upgrade", "--check", *options, "-o", "json", "--home", settings.home)
    shown = fallow(*words)
    rows = json.loads(shown.out)["upgrade"]
    assert [row["name"] for row in rows if row["change"] == "account"] == listed[-months:]
    assert ("1 ended months keep their figures" in shown.err) == (not options)


def test_the_months_that_a_migration_will_mark_are_listed(
    settings: Settings, fallow: Fallow
) -> None:
    """Of schema 24: a workload's pods were of several teams; of 26: they were charged by use."""
    with Warehouse.open(settings, write=True) as warehouse, warehouse.transaction() as cursor:
        cursor.execute(
            "INSERT INTO ledger_1d BY NAME SELECT 'c' AS \"cluster\", 'ml' AS namespace,"
            " 'Job' AS workload_kind, workload, bucket"
            " FROM (VALUES ('moved'), ('stayed')) w(workload),"
            " (VALUES (TIMESTAMP '2026-01-31'), ('2026-02-01'), ('2026-04-01'), ('2026-05-31'))"
            " d(bucket)"
        )
        cursor.execute(
            "INSERT INTO allocation BY NAME SELECT 'c' AS \"cluster\", 'ml' AS namespace,"
            " 'Job' AS workload_kind, * FROM (VALUES"
            " ('moved', 'red', 'mig', TIMESTAMP '2026-02-01 06:00', TIMESTAMP '2026-02-01 08:00'),"
            " ('moved', 'blue', 'mig', '2026-02-01 08:00', '2026-02-01 10:00'),"
            " ('stayed', 'red', 'mig', '2026-04-01 06:00', '2026-04-01 08:00'),"
            " ('stayed', 'red', 'usage', '2026-05-31 06:00', '2026-05-31 08:00'))"
            ' a(workload, team, rule, start, "end")'
        )
        cursor.execute("DELETE FROM schema_version WHERE version > 23")
    words = ("warehouse", "upgrade", "--check", "-o", "json", "--home", settings.home)
    for options, months in ((("--restate",), ["2026-02", "2026-05"]), ((), [])):
        shown = fallow(*words, *options)
        rows = json.loads(shown.out)["upgrade"]
        assert [row["name"] for row in rows if row["change"] == "account"] == months
        assert ("2 ended months keep their figures" in shown.err) == (not options)
    with Warehouse.open(settings, write=True) as warehouse:
        marked = [f"{month.start:%Y-%m}" for month in list_due_months(warehouse)]
    assert marked == ["2026-02", "2026-05"], "as listed"

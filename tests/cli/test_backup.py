"""A backup is of one moment, whole or none; it is restored elsewhere, and starts frozen."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from actions.journal import Journal, JournalState, event_types
from fallow.settings import Settings, load
from fallow.tables import Batch
from runtime.operations.ingestion.spool import FOLDER, Spool
from runtime.service.backup.writing import write_backup
from runtime.service.delivery.outbox import Outbox
from tests.cli.conftest import Fallow
from tests.servers import s3
from warehouse import maintenance
from warehouse.backup import hold_files
from warehouse.lake import Warehouse
from warehouse.tiers import move_to_cold

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
ALL = "FROM sample ORDER BY ALL"
_WRITER = """
import sys
from datetime import datetime, timedelta
from pathlib import Path
from actions.journal import Journal, event_types
from fallow.settings import load
from warehouse.lake import Warehouse
from warehouse import maintenance
from tests.cli.test_backup import NOW, scrape

home = Path(sys.argv[1])
settings = load(environ={}, flags={"home": home, "cluster": "test"}).settings
clock = lambda: NOW
with (
    Warehouse.open(settings, write=True, clock=clock) as warehouse,
    Journal.open(home / "journal.sqlite", clock) as journal,
):
    number = 0
    while True:
        number += 1
        # The journal first: at no moment does the warehouse have a scrape that it has not.
        journal.append(event_types.SNOOZED, f"f{number}", {"until": NOW.isoformat()})
        warehouse.ingest([scrape(NOW - timedelta(hours=20) + timedelta(seconds=number))])
        if number % 5 == 0:
            maintenance.compact_warehouse(warehouse)
        if number == 3:
            print("writing", flush=True)
"""


def scrape(at: datetime, devices: int = 4) -> Batch:
    return Batch.of(
        "sample",
        {
            "cluster": ["test"] * devices,
            "ts": [at.replace(tzinfo=None)] * devices,
            "device": [f"GPU-{n}" for n in range(devices)],
            "interval_s": [60.0] * devices,
            "gpu_util_pct": [float(n) for n in range(devices)],
        },
    )


def at(home: Path, **flags: Any) -> Settings:
    dotted = {name.replace("__", "."): value for name, value in flags.items()}
    return load(environ={}, flags={"home": home, "cluster": "test", **dotted}).settings


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a home of two tiers, journal and deliveries, its policies, a backup."""
    folder = tmp_path_factory.mktemp("site")
    home = folder / "home"
    with Warehouse.open(at(home), write=True, clock=lambda: NOW) as warehouse:
        for day in (10, 9, 1, 0):
            warehouse.ingest([scrape(NOW - timedelta(days=day))])
        assert move_to_cold(warehouse, NOW).files == 2
    with Journal.open(home / "journal.sqlite", lambda: NOW) as journal:
        journal.append(event_types.NOTIFIED, "f1", {"policy": "idle", "verb": "stop"})
        trust = {"fingerprint": "p1", "by": "hand", "reason": "reviewed"}
        journal.append(event_types.TRUSTED, "idle", trust)
        until = (NOW + timedelta(days=1)).isoformat()
        journal.append(event_types.KEEP, "test/Deployment/team-a/web", {"until": until})
    with Outbox.open(home / "deliveries.sqlite") as outbox:
        outbox.owe("weekly", NOW, ["mail"], NOW)
    for name in ("snapshots/pod/manifest", "baselines/june.json"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(name)
    (folder / "policies").mkdir()
    (folder / "policies" / "idle.yaml").write_text("name: idle\n")
    policies = {"actions.policies": folder / "policies"}
    settings = load(environ={}, flags={"home": home, "cluster": "test", **policies}).settings
    write_backup(settings, str(folder / "backup"), lambda: NOW)
    return folder


@pytest.fixture
def home(site: Path, tmp_path: Path) -> Path:
    """Return a copy of that home, with its policies beside it."""
    shutil.copytree(site / "policies", tmp_path / "policies")
    return shutil.copytree(site / "home", tmp_path / "home")


def flip_a_bit(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    path.write_bytes(body)


def rows(settings: Settings) -> Any:
    with Warehouse.open(settings) as warehouse:
        return warehouse.query(ALL)


def test_a_restored_home_has_every_part_under_another_path(
    fallow: Fallow, home: Path, tmp_path: Path
) -> None:
    before = rows(at(home))
    ran = fallow("backup", tmp_path / "backup", "--home", home, "--cluster", "test", "-o", "json")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["schema"] == "fallow.backup/v1"
    written = {p for p in (tmp_path / "backup").rglob("*") if p.is_file()}
    assert len(written) == sum(part["files"] for part in document["backup"]) + 1  # the manifest
    assert {part["part"] for part in document["backup"]} == {
        "catalog.sqlite", "journal.sqlite", "deliveries.sqlite", "data", "cold", "snapshots",
        "baselines", "policies",
    }  # fmt: skip
    with Journal.open(home / "journal.sqlite", lambda: NOW) as journal:
        assert document["anchor"] == journal.anchor()
    home.rename(tmp_path / "gone")
    copy = tmp_path / "elsewhere"
    ran = fallow("restore", tmp_path / "backup", "--home", copy, "--cluster", "test")
    assert ran.code == 0, ran.err
    assert f"policies are in {copy / 'policies'}" in ran.err
    (tmp_path / "backup").rename(tmp_path / "away")
    assert rows(at(copy)).equals(before)
    for command in ("verify", "compact", "verify"):
        ran = fallow("warehouse", command, "--home", copy, "--cluster", "test")
        assert ran.code == 0, ran.err + ran.out
    for name in ("snapshots/pod/manifest", "baselines/june.json", "policies/idle.yaml"):
        assert (copy / name).is_file()


def test_a_restored_home_is_frozen_and_what_permitted_actions_is_forgotten(
    fallow: Fallow, site: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "elsewhere"
    assert fallow("restore", site / "backup", "--home", copy).code == 0
    assert (copy / "FREEZE").is_file()
    with Journal.open(copy / "journal.sqlite", lambda: NOW) as journal:
        assert journal.verify() is None
        state = JournalState(journal).catch_up()
        assert state.frozen is not None
        assert f"restored from {site}/backup" in state.frozen.why
        assert state.trusted == {}
        assert state.keeps != {}
        assert not state._noticed
    with Outbox.open(copy / "deliveries.sqlite") as outbox:
        [delivery] = outbox.latest()
        assert delivery.state == "unknown"
        assert "restored from a backup" in delivery.message


def test_a_backup_beside_a_writing_service_is_of_one_moment(
    fallow: Fallow, home: Path, tmp_path: Path
) -> None:
    root = str(Path(__file__).resolve().parents[2])
    service = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(home)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    try:
        assert service.stdout is not None
        assert service.stdout.readline() == "writing\n"
        ran = fallow("backup", tmp_path / "backup", "--home", home, "--cluster", "test")
        assert service.poll() is None
    finally:
        service.kill()
        service.communicate()
    assert ran.code == 0, ran.err
    copy = tmp_path / "elsewhere"
    assert fallow("restore", tmp_path / "backup", "--home", copy, "--cluster", "test").code == 0
    with Warehouse.open(at(copy)) as warehouse:
        stored = warehouse.query("SELECT count(*) AS n, count(DISTINCT ts) AS t FROM sample")
    with Journal.open(copy / "journal.sqlite", lambda: NOW) as journal:
        snoozed = len(journal.entries(event_types.SNOOZED))
    [count], [scrapes] = stored["n"].to_pylist(), stored["t"].to_pylist()
    assert count == 4 * scrapes
    assert snoozed - (scrapes - 4) in (0, 1)  # four scrapes are older than the writer


def test_a_killed_backup_is_no_backup(home: Path, tmp_path: Path, fallow: Fallow) -> None:
    with (home / "snapshots" / "large").open("wb") as file:
        file.truncate(400 << 20)  # hashing and copying it takes longer than the kill
    root = str(Path(__file__).resolve().parents[2])
    words = ["backup", str(tmp_path / "backup"), "--home", str(home)]
    backup = subprocess.Popen(
        [sys.executable, "-c", "from runtime.cli import main; main()", *words],
        env={**os.environ, "PYTHONPATH": root},
        cwd=tmp_path,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "backup" / "catalog.sqlite").exists():
        assert time.monotonic() < deadline
        assert backup.poll() is None
        time.sleep(0.01)  # another process works
    backup.send_signal(signal.SIGKILL)
    backup.wait()
    assert not (tmp_path / "backup" / "manifest.json").exists()
    ran = fallow("restore", tmp_path / "backup", "--home", tmp_path / "elsewhere")
    assert ran.code == 2
    assert "there is no finished backup" in ran.err
    assert not (tmp_path / "elsewhere").exists()
    again = fallow("backup", tmp_path / "backup", "--home", home)
    assert (again.code, "is not empty" in again.err) == (2, True)


def test_a_home_with_files_is_never_restored_over(
    fallow: Fallow, site: Path, tmp_path: Path
) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "notes").write_text("mine")
    for target in (site / "home", taken):
        ran = fallow("restore", site / "backup", "--home", target)
        assert ran.code == 2
        assert "has files already" in ran.err
    assert [p.name for p in taken.iterdir()] == ["notes"]


@pytest.mark.parametrize("part", ["data", "cold", "journal.sqlite", "catalog.sqlite", "snapshots"])
def test_one_changed_byte_of_a_backup_is_found_and_named(
    fallow: Fallow, site: Path, tmp_path: Path, part: str
) -> None:
    backup = shutil.copytree(site / "backup", tmp_path / "backup")
    place = backup / part
    [path, *_] = [place] if place.is_file() else [p for p in place.rglob("*") if p.is_file()]
    flip_a_bit(path)
    ran = fallow("restore", backup, "--home", tmp_path / "elsewhere")
    assert ran.code == 1
    assert f"{path} is damaged" in ran.err
    assert not (tmp_path / "elsewhere" / "catalog.sqlite").exists()


def test_a_damaged_home_gives_no_backup(fallow: Fallow, home: Path, tmp_path: Path) -> None:
    [path, *_] = sorted((home / "cold").rglob("*.parquet"))
    flip_a_bit(path)
    ran = fallow("backup", tmp_path / "backup", "--home", home)
    assert ran.code == 1
    assert path.name in ran.err
    assert not (tmp_path / "backup" / "manifest.json").exists()


def test_a_broken_journal_gives_no_backup(fallow: Fallow, home: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(home / "journal.sqlite")) as file, file:
        file.execute("DROP TRIGGER entry_is_never_changed")
        file.execute("UPDATE entry SET actor = 'else' WHERE seq = 2")
    ran = fallow("backup", tmp_path / "backup", "--home", home)
    assert ran.code == 1
    assert "the journal is broken at row 2" in ran.err
    assert not (tmp_path / "backup" / "manifest.json").exists()


def test_maintenance_removes_no_file_while_a_backup_copies(home: Path) -> None:
    settings = at(home)
    later = datetime.now(UTC) + timedelta(days=5)
    with Warehouse.open(settings, write=True, clock=lambda: later) as warehouse:
        for minutes in range(3):
            warehouse.ingest([scrape(NOW + timedelta(minutes=minutes))])
        maintenance.compact_warehouse(warehouse)
        before = {*(home / "data").rglob("*.parquet"), *(home / "cold").rglob("*.parquet")}
        with hold_files(settings):
            result = maintenance.compact_warehouse(warehouse)
            assert (result.removed, result.orphans) == (0, 0)
            assert {p for p in before if p.exists()} == before
        assert maintenance.compact_warehouse(warehouse).removed > 0


def test_the_warehouse_is_left_out_by_name(fallow: Fallow, home: Path, tmp_path: Path) -> None:
    (tmp_path / "fallow.yaml").write_text("warehouse: {catalog: 'postgres:dbname=lake'}\n")
    words = ("backup", tmp_path / "backup", "--home", home)
    ran = fallow(*words, "--without-warehouse", "-o", "json")
    assert ran.code == 0, ran.err
    assert "not in this backup: catalog; back up the database" in ran.err
    parts = {part["part"] for part in json.loads(ran.out)["backup"]}
    assert "journal.sqlite" in parts
    assert "data" not in parts


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Start an S3-compatible server; yield its URL."""
    pytest.importorskip("moto.server")
    with s3.serving() as url:
        yield url


def test_a_backup_in_a_bucket_is_restored_into_another_bucket(
    fallow: Fallow, tmp_path: Path, endpoint: str, home: Path
) -> None:
    del home  # the policies beside it
    for bucket in ("backups", "one", "two"):
        s3.make_bucket(endpoint, bucket)

    def on(name: str, folder: Path) -> Settings:
        places = {"data": f"s3://{name}/data", "cold": f"s3://{name}/cold"}
        keys = {"access_key_id": "test", "secret_access_key": "test"}
        store = {"endpoint": endpoint, "region": "us-east-1", **keys}
        text = json.dumps({"warehouse": {**places, "s3": store}, "cluster": "test"})
        (tmp_path / "fallow.yaml").write_text(text)
        return load(file=tmp_path / "fallow.yaml", environ={}, flags={"home": folder}).settings

    first, second = tmp_path / "first", tmp_path / "second"
    with Warehouse.open(on("one", first), write=True, clock=lambda: NOW) as warehouse:
        warehouse.ingest([scrape(NOW - timedelta(days=day)) for day in (9, 0)])
        assert move_to_cold(warehouse, NOW).files == 1
        before = warehouse.query(ALL)
    ran = fallow("backup", "s3://backups/monday", "--home", first)
    assert ran.code == 0, ran.err
    settings = on("two", second)
    ran = fallow("restore", "s3://backups/monday", "--home", second)
    assert ran.code == 0, ran.err
    on("one", first)
    assert rows(settings).equals(before)
    with Warehouse.open(settings) as warehouse:
        paths = warehouse.query("SELECT path FROM cold_file")["path"].to_pylist()
    assert [path.startswith("s3://two/cold/") for path in paths] == [True]


def test_rows_that_wait_are_in_a_backup_and_restored(
    fallow: Fallow, home: Path, tmp_path: Path
) -> None:
    with Spool(home / FOLDER, 1 << 20) as spool:
        spool.write([scrape(NOW - timedelta(hours=1))])
        [waiting] = spool.files
        (home / FOLDER / "7-1.damaged").write_bytes(b"kept for people")
        ran = fallow("backup", tmp_path / "backup", "--home", home, "-o", "json")
    assert ran.code == 0, ran.err
    copy = tmp_path / "elsewhere"
    assert fallow("restore", tmp_path / "backup", "--home", copy, "--cluster", "test").code == 0
    names = {path.name for path in (copy / FOLDER).iterdir()}
    assert names == {waiting.path.name, "7-1.damaged"}
    with Spool(copy / FOLDER, 1 << 20) as restored:
        [file] = restored.files
        [batch] = restored.read(file)
    assert batch.rows.num_rows == 4


def change_manifest(backup: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = backup / "manifest.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def add_file(backup: Path, name: str, content: bytes = b"changed") -> None:
    """Add a file to a backup as somebody does who may write there, with its right checksum."""
    path = Path(os.path.normpath(f"{backup}/{name}"))  # where today's code read it
    with contextlib.suppress(OSError, ValueError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    entry = {"name": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    change_manifest(backup, lambda document: document["files"].append(entry))


def list_files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


NAMES = [
    f"{part}/{rest}"
    for part in ("data", "cold", "snapshots", "baselines", "policies", "queue")
    for rest in ("../../outside/file", "a/../../../outside/file")
] + [
    "data//{tmp}/outside/file", "/{tmp}/outside/file", "../outside/file", "data/./file",
    "data/a\\..\\b", "data/\0file", "data/a\x1b[2J", f"data/{'a' * 256}", "data", "data/", "",
    "outside/file", "FREEZE", "fallow.yaml", "writer.lock", "journal.sqlite/file",
    "Journal.sqlite", "policies/idle.yaml/below", "policies/idle.yaml",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_a_changed_manifest_is_refused_before_a_byte_is_written(
    fallow: Fallow, site: Path, tmp_path: Path, name: str
) -> None:
    backup = shutil.copytree(site / "backup", tmp_path / "place" / "backup")
    add_file(backup, name.replace("{tmp}", str(tmp_path)))
    shutil.rmtree(tmp_path / "outside", ignore_errors=True)
    before = list_files(tmp_path)
    ran = fallow("restore", backup, "--home", tmp_path / "new" / "home")
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 2), ran.err
    assert "nothing was restored" in ran.err
    assert list_files(tmp_path) == before
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("how", ["size", "sha256", "no sha256", "fifo", "link", "gone", "device"])
def test_a_file_that_is_not_what_the_manifest_says_is_found_before_a_byte_is_written(
    fallow: Fallow, site: Path, tmp_path: Path, how: str
) -> None:
    backup = shutil.copytree(site / "backup", tmp_path / "backup")
    path = backup / "baselines" / "june.json"  # one of the last that are written
    [number] = [
        number
        for number, file in enumerate(json.loads((backup / "manifest.json").read_text())["files"])
        if file["name"] == "baselines/june.json"
    ]
    if how == "size":
        path.write_bytes(path.read_bytes() + b" ")
    elif how == "sha256":
        flip_a_bit(path)
    elif how == "no sha256":
        change_manifest(backup, lambda document: document["files"][number].update(sha256=""))
        flip_a_bit(path)
    else:
        content = path.read_bytes()
        path.unlink()
        if how == "fifo":
            os.mkfifo(path)
        elif how == "link":
            (tmp_path / "secret").write_bytes(content)
            path.symlink_to(tmp_path / "secret")
        elif how == "device":
            path.symlink_to("/dev/zero")
    ran = fallow("restore", backup, "--home", tmp_path / "home")
    assert ran.code == (2 if how == "no sha256" else 1), ran.err
    assert "june.json" in ran.err
    assert not (tmp_path / "home").exists()


def test_a_link_in_the_place_of_snapshots_leads_no_file_elsewhere(
    fallow: Fallow, site: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "snapshots" / "pod").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "fallow.yaml").write_text(f"snapshots: {{store: {tmp_path}/snapshots}}\n")
    ran = fallow("restore", site / "backup", "--home", tmp_path / "home")
    assert ran.code == 2
    assert "a link leads there" in ran.err
    assert list_files(tmp_path / "elsewhere") == {}
    assert not (tmp_path / "home").exists()


def test_the_checksum_of_a_manifest_proves_it(fallow: Fallow, home: Path, tmp_path: Path) -> None:
    ran = fallow("backup", tmp_path / "backup", "--home", home, "-o", "json")
    sha256 = json.loads(ran.out)["manifest_sha256"]
    assert f"fallow restore {tmp_path}/backup --manifest-sha256 {sha256}" in ran.err
    changed = shutil.copytree(tmp_path / "backup", tmp_path / "changed")
    change = f"restore {changed} --manifest-sha256 {sha256} --home {tmp_path}/one".split()
    add_file(changed, "policies/added.yaml", b"name: added\n")
    refused = fallow(*change)
    assert refused.code == 2
    assert "not that of --manifest-sha256" in refused.err
    assert not (tmp_path / "one").exists()
    proved = fallow(
        "restore", tmp_path / "backup", "--manifest-sha256", sha256, "--home", tmp_path / "two"
    )
    assert (proved.code, "nothing proves" in proved.err) == (0, False), proved.err
    unproved = fallow("restore", changed, "--home", tmp_path / "three")
    assert (unproved.code, "nothing proves who wrote" in unproved.err) == (0, True), unproved.err


def test_a_bare_machine_is_restored_from_the_backup_alone(
    process: Fallow, site: Path, tmp_path: Path
) -> None:
    """No settings, no home, another user's folder: only the backup is there."""
    before = rows(at(site / "home"))
    backup = shutil.copytree(site / "backup", tmp_path / "mnt" / "backup")
    environ = {"HOME": str(tmp_path / "root"), "XDG_DATA_HOME": ""}
    ran = process("restore", backup, **environ)
    assert ran.code == 0, ran.err
    shutil.rmtree(tmp_path / "mnt")
    copy = tmp_path / "root" / ".local" / "share" / "fallow"
    assert rows(at(copy)).equals(before)
    assert process("warehouse", "verify", **environ).code == 0
    assert process("actions", "--verify", **environ).code == 0

"""Places of files after a kill, without their catalog, beside a service, with a FIFO in them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fallow.settings import Settings, load
from fallow.tables import Batch
from tests.cli.test_bad_data_files import run_fallow
from tests.runtime.test_roles import rest, until, up
from tests.soak.exporters import CountingExporter
from warehouse import tiers
from warehouse.catalog import CATALOG_FILE
from warehouse.lake import Warehouse
from warehouse.place_marks import MARK, PlaceMark, read_mark

Fallow = Callable[..., Any]
_KILLED = """
import os, signal, sys
from pathlib import Path
from fallow.settings import load
from warehouse.lake import Warehouse

home, name = Path(sys.argv[1]), sys.argv[2]
call, is_after = getattr(os, name), sys.argv[3] == "after"
def kill(*words):
    # Of the marks only: the catalog's own files are synced by the engine.
    path = words[0] if isinstance(words[0], Path) else Path(f"/proc/self/fd/{words[0]}").readlink()
    if "fallow-warehouse" in path.name:
        if is_after:
            call(*words)
        os.kill(os.getpid(), signal.SIGKILL)
    call(*words)
setattr(os, name, kill)
Warehouse.open(load(environ={}, flags={"home": home, "cluster": "test"}).settings, write=True)
"""


def read_settings(home: Path) -> Settings:
    return load(environ={}, flags={"home": home, "cluster": "test"}).settings


def fill(home: Path, now: datetime) -> None:
    """Write samples of four days, some of which are archived."""
    with Warehouse.open(read_settings(home), write=True, clock=lambda: now) as warehouse:
        for day in range(4):
            instant = (now - timedelta(days=10 - day)).replace(tzinfo=None)
            rows = {"cluster": ["test"], "ts": [instant], "device": ["GPU-1"], "interval_s": [60.0]}
            warehouse.ingest([Batch.of("sample", rows)])
        assert tiers.move_to_cold(warehouse, now).files


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("call", ["fsync", "link"])
def test_a_kill_while_a_mark_is_created_leaves_none_or_a_whole_one(
    tmp_path: Path, call: str, order: str
) -> None:
    home = tmp_path / "home"
    command = [sys.executable, "-c", _KILLED, str(home), call, order]
    assert subprocess.run(command, check=False, timeout=60).returncode == -signal.SIGKILL
    settings = read_settings(home)
    data = home / "data"
    assert (data / MARK).exists() is ((call, order) == ("link", "after"))
    fill(home, datetime(2026, 11, 20, 12, tzinfo=UTC))
    with Warehouse.open(settings) as warehouse:
        assert warehouse.query("FROM sample").num_rows == 4
        marks = {kind: read_mark(store) for kind, store in warehouse.marks.stores.items()}
    assert isinstance(marks["data"], PlaceMark)
    assert marks["cold"] is not None
    assert marks["cold"].warehouse == marks["data"].warehouse


def test_an_import_beside_a_service_of_another_home_is_refused(tmp_path: Path) -> None:
    exporter = CountingExporter("n1", 1)
    places = {f"FALLOW_WAREHOUSE__{p.upper()}": str(tmp_path / p) for p in ("data", "cold")}
    environ = {"FALLOW_CLUSTER": "c", "FALLOW_SERVICE__COLLECT_EVERY": "1s", **places}
    environ["FALLOW_EXPORTERS__TARGETS"] = json.dumps([exporter.url])
    file = tmp_path / "text"
    now_ms = int(datetime.now(UTC).timestamp()) * 1000
    file.write_text(f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-9"}} 70 {now_ms}\n')
    first, second = tmp_path / "first", tmp_path / "second"
    try:
        with up(tmp_path, "--home", str(first), "--role", "collector", **environ) as service:
            until(service, "collected")
            before = {path.name for path in (tmp_path / "data").rglob("*.parquet")}
            assert before
            os.environ |= places
            ran = run_fallow("import", "exposition", file, "--home", second, "--cluster", "c")
            assert (ran.returncode, ran.stdout) == (2, "")
            assert "belong to the warehouse" in ran.stderr
            assert before <= {path.name for path in (tmp_path / "data").rglob("*.parquet")}
            assert not (second / CATALOG_FILE).exists()
            until(service, "collected")  # the service goes on
            service.send_signal(signal.SIGTERM)
            output = rest(service)
            assert service.wait(60) == 0, output
        with Warehouse.open(load(environ={**places, "FALLOW_HOME": str(first)}).settings) as lake:
            stored = lake.query("SELECT count(*) AS n, count(DISTINCT device) AS d FROM sample")
        assert stored.to_pylist()[0]["d"] == 1
        assert stored.to_pylist()[0]["n"] >= 2
    finally:
        exporter.close()
        for name in places:
            os.environ.pop(name, None)


def test_a_home_without_its_catalog_is_named_by_every_reader(
    fallow: Fallow, tmp_path: Path, now: datetime
) -> None:
    home = tmp_path / "home"
    fill(home, now)
    (home / CATALOG_FILE).unlink()
    ran = fallow("doctor", "--home", home, "-o", "json")
    [row] = [row for row in json.loads(ran.out)["checks"] if row["check"] == "warehouse"]
    assert (ran.code, row["status"]) == (1, "bad")
    assert "has no catalog" in row["finding"]
    assert "fallow restore" in row["next_step"]
    for command in (["query", "SELECT 1"], ["status"], ["verify"]):
        ran = fallow("warehouse", *command, "--home", home)
        assert (ran.code, ran.out) == (2, "")
        assert "has no catalog" in ran.err


def test_a_fifo_among_archived_files_delays_none(tmp_path: Path, now: datetime) -> None:
    home = tmp_path / "home"
    fill(home, now)
    first = min((home / "cold").rglob("*.parquet"))
    os.mkfifo(first.with_name("beside.parquet"))  # no query names it
    assert run_fallow("warehouse", "query", "FROM sample", "--home", home).returncode == 0
    first.unlink()
    os.mkfifo(first)
    for command in (["warehouse", "query", "FROM sample"], ["doctor", "-o", "json"]):
        ran = run_fallow(*command, "--home", home)
        assert ran.returncode == 1
        assert f"{first} is no regular file" in ran.stdout + ran.stderr
    ran = run_fallow("warehouse", "verify", "--home", home, "-o", "json")
    assert "has 0 bytes" in ran.stdout
    ran = run_fallow("backup", tmp_path / "backup", "--home", home)
    assert (ran.returncode, str(first) in ran.stderr) == (1, True)

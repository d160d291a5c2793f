"""A backup that is stopped, or whose disk fills, is no backup, and the home is as it was."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fallow.settings import load
from tests.cli.conftest import Fallow
from tests.warehouse.conftest import start
from tests.warehouse.small_disk import run_on_small_disk
from tests.warehouse.test_lossy_store import scrape
from warehouse.lake import Warehouse

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)

_ON_A_FULL_DISK = """
import json, sys
from pathlib import Path
from runtime.cli import run

disk, home = Path(sys.argv[1]), Path({home!r})
codes = [run(["backup", str(disk / "backup"), "--home", str(home)])]
print(json.dumps({{
    "codes": codes,
    "manifest": (disk / "backup" / "manifest.json").exists(),
}}))
"""


def make_home(home: Path, padding: int) -> Path:
    """Return a home with four rows, and a snapshot of so many bytes that takes long to copy."""
    settings = load(environ={}, flags={"home": home, "cluster": "test"}).settings
    with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
        warehouse.ingest([scrape(NOW - timedelta(hours=1))])
    (home / "snapshots").mkdir(exist_ok=True)
    with (home / "snapshots" / "large").open("wb") as file:
        file.truncate(padding)
    return home


def list_files(folder: Path) -> dict[str, int]:
    """Return every file with its size."""
    return {
        str(path.relative_to(folder)): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(("-wal", "-shm", ".lock"))
    }


def test_a_backup_on_a_full_disk_is_none_and_says_so(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", 16 << 20)
    before = list_files(home)
    script = _ON_A_FULL_DISK.format(home=str(home))
    out = run_on_small_disk(tmp_path, start, script)
    assert out == {"codes": [75], "manifest": False}
    assert list_files(home) == before


def test_a_backup_that_is_terminated_is_none_and_the_next_one_is_whole(
    tmp_path: Path, fallow: Fallow
) -> None:
    home = make_home(tmp_path / "home", 400 << 20)
    root = str(Path(__file__).resolve().parents[2])
    words = ["backup", str(tmp_path / "backup"), "--home", str(home)]
    backup = subprocess.Popen(
        [sys.executable, "-c", "from runtime.cli import main; main()", *words],
        env={**os.environ, "PYTHONPATH": root},
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    _wait_for((tmp_path / "backup" / "catalog.sqlite").exists, backup)
    backup.send_signal(signal.SIGTERM)
    _, err = backup.communicate(timeout=60)
    assert backup.returncode != 0
    assert "Traceback" not in err
    assert not (tmp_path / "backup" / "manifest.json").exists()
    # The number that was acknowledged before is what the home, and a second backup, has.
    (home / "snapshots" / "large").unlink()
    assert fallow("backup", tmp_path / "second", "--home", home).code == 0
    assert fallow("restore", tmp_path / "second", "--home", tmp_path / "elsewhere").code == 0
    counted = fallow(
        "warehouse",
        "query",
        "SELECT count(*) AS n FROM sample",
        "-o",
        "json",
        "--home",
        tmp_path / "elsewhere",
    )
    assert json.loads(counted.out)["rows"] == [{"n": 4}]


def _wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)  # another process works

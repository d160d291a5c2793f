"""Each connection spills into a folder of its own; those of ended processes are removed."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from fallow.settings import Settings
from warehouse.lake import Warehouse
from warehouse.spill import choose_spill


def read_folder(warehouse: Warehouse) -> Path:
    with warehouse.snapshot() as cursor:
        row = cursor.execute("SELECT current_setting('temp_directory')").fetchone()
    return Path(row[0]) if row else Path()


def test_two_connections_to_one_home_spill_apart(settings: Settings) -> None:
    with Warehouse.open(settings, write=True) as writer, Warehouse.open(settings) as reader:
        folders = {read_folder(writer), read_folder(reader)}
        assert len(folders) == 2
        assert {folder.parent for folder in folders} == {settings.home / "spill"}


def test_folders_of_processes_that_ended_are_removed_and_no_others(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    host, root = socket.gethostname(), tmp_path / "spill"
    stale = [f"{host}-{ended.pid}-0", f"{host}-{os.getpid()}-of-an-earlier-life"]
    kept = [f"other{host}-{ended.pid}-0", f"{host}-{os.getppid()}-0", choose_spill(tmp_path).name]
    for name in (*stale, *kept):
        (root / name).mkdir(parents=True)
    choose_spill(tmp_path)
    assert {folder.name for folder in root.iterdir()} == set(kept)

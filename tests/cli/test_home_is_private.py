"""Modes of everything in a home folder, under every umask, and of files that people ask for."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fallow.settings import Settings, load
from fallow.system import private_files
from fallow.system.private_files import narrow_home
from runtime.operations.doctor import storage
from warehouse.lake import Warehouse

ROOT = Path(__file__).resolve().parents[2]
METRICS = 'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",Hostname="a",modelName="NVIDIA H100"} 1\n'


def _run(umask: int, folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a command as a process of its own with this umask."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FALLOW_")}
    return subprocess.run(
        [sys.executable, "-c", "from runtime.cli import main; main()", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=folder,
        umask=umask,
        env={**kept, "PYTHONPATH": str(ROOT), "XDG_DATA_HOME": str(folder / "data")},
        check=False,
    )


def _list_open_paths(home: Path) -> list[str]:
    return [
        f"{stat.S_IMODE(path.lstat().st_mode):o} {path.relative_to(home.parent)}"
        for path in (home, *home.rglob("*"))
        if path.lstat().st_mode & private_files.OTHERS
    ]


# The usual umask: the one that hides nothing is the harder, and in every run.
@pytest.mark.parametrize("umask", [0o000, pytest.param(0o022, marks=pytest.mark.long)])
def test_a_home_and_all_in_it_belong_to_its_owner_alone(tmp_path: Path, umask: int) -> None:
    home = tmp_path / "home"
    metrics = tmp_path / "metrics.txt"
    metrics.write_text(METRICS)
    policies = tmp_path / "policies"
    common = ("--home", home)
    for words in (
        ("import", "exposition", metrics, *common),
        ("freeze", "because", *common),
        ("policy", "init", policies),
    ):
        ran = _run(umask, tmp_path, *words)
        assert ran.returncode == 0, (words, ran.stderr)
    assert {path.name for path in home.iterdir()} >= {"catalog.sqlite", "data", "journal.sqlite"}
    assert len(list(home.rglob("*.parquet"))) > 1
    assert _list_open_paths(home) == []
    assert {stat.S_IMODE(p.stat().st_mode) for p in policies.glob("*.yaml")} == {0o666 & ~umask}
    assert stat.S_IMODE(policies.stat().st_mode) == 0o777 & ~umask


def _make_wide_home(folder: Path) -> Settings:
    settings = load(environ={}, flags={"home": folder / "home"}).settings
    with Warehouse.open(settings, write=True):
        pass
    (folder / "home" / "notes.txt").write_text("not Fallow's")
    for path in (settings.home, *settings.home.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    return settings


@pytest.mark.parametrize("write", [True, False])
def test_a_home_of_before_is_narrowed_when_it_is_opened(tmp_path: Path, write: bool) -> None:
    settings = _make_wide_home(tmp_path)
    with Warehouse.open(settings, write=write):
        assert _list_open_paths(settings.home) == ["666 home/notes.txt"]


def test_a_folder_without_a_warehouse_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o755)
    settings = load(environ={}, flags={"home": tmp_path / "home"}).settings
    with pytest.raises(Exception, match="no warehouse"):
        Warehouse.open(settings)
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o755


def test_a_home_that_was_narrowed_in_part_is_narrowed_to_the_end(tmp_path: Path) -> None:
    settings = _make_wide_home(tmp_path)
    (settings.home / "catalog.sqlite").chmod(0o600)
    narrow_home(settings.home)
    assert _list_open_paths(settings.home) == ["666 home/notes.txt"]


def test_a_link_in_a_home_leads_to_nothing_that_changes(tmp_path: Path) -> None:
    settings = _make_wide_home(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("x")
    elsewhere.chmod(0o644)
    (settings.home / "data" / "link").symlink_to(elsewhere)
    narrow_home(settings.home)
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o644


def test_doctor_says_that_a_home_of_another_owner_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = _make_wide_home(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: settings.home.stat().st_uid + 1)
    narrow_home(settings.home)
    assert stat.S_IMODE(settings.home.stat().st_mode) == 0o777
    row = next(row for row in storage.check_storage(settings) if row.check == "home")
    assert (row.status, row.finding) == ("warn", f"{settings.home} is open to other users")
    assert row.next_step == f"its owner runs: chmod -R go-rwx {settings.home}"

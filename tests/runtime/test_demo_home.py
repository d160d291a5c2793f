"""The demo's home: a place of its own, replaced by the next demo, never mixed with a real one."""

import os
import shlex
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from fallow.demo_marker import MARKER, WORLD
from fallow.errors import TemporaryError
from fallow.settings import Settings, load
from fallow.tables import Batch
from runtime.cli import run
from runtime.cli.demo import StepTimes
from runtime.experiments.demo import END
from runtime.experiments.demo_home import (
    find_program,
    list_commands,
    locate_demo_home,
    replace_demo_home,
)
from warehouse.lake import Warehouse

SMALL = ("--days", "1", "--gpus", "8", "--end", "2026-11-16")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's data folder, and a working folder without settings."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.mark.slow
def test_it_replaces_its_own_home_and_its_commands_work_from_any_folder_beside_a_site(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # as after `make demo`
    site = tmp_path / "site"
    site.mkdir()
    (site / "fallow.yaml").write_text(f"home: {site}/home\ncluster: real\n")
    home = data / "fallow-demo"
    with replace_demo_home(home, {"cluster": "demo"}):
        (home / "data").mkdir()
        (home / "data" / "old.parquet").write_text("of the demo before")
    assert run(["demo", *SMALL]) == 0
    assert not (home / "data" / "old.parquet").exists()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert not (data / "fallow").exists(), "a user's own home"
    lines = [line.strip() for line in capsys.readouterr().err.splitlines() if "--home" in line]
    pages, explain, spend = lines
    assert " dashboard " in pages
    environment = {**os.environ, "FALLOW_CLUSTER": "another"}
    for line, expected in ((explain, "idle"), (spend, "total")):
        ran = subprocess.run(
            shlex.split(line),
            cwd=site,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        assert expected in ran.stdout
    # Without --home it reads the user's own warehouse, which does not exist.
    assert run(["spend", "--by", "team"]) != 0
    assert "demo" not in capsys.readouterr().out


def test_a_home_with_files_and_without_a_marker_is_refused_and_left_as_it_is(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    real = tmp_path / "real"
    with Warehouse.open(Settings(home=real, cluster="real"), write=True):
        pass
    before = sorted(path.name for path in real.iterdir())
    assert run(["demo", *SMALL, "--home", str(real)]) == 2
    assert f"{real} has files and no {MARKER}" in capsys.readouterr().err
    assert sorted(path.name for path in real.iterdir()) == before
    (data / "fallow-demo").mkdir(parents=True)
    (data / "fallow-demo" / "notes.txt").write_text("mine")
    assert run(["demo", *SMALL]) == 2
    assert (data / "fallow-demo" / "notes.txt").read_text() == "mine"


def test_the_home_of_ones_own_is_refused_also_while_it_is_empty(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["demo", *SMALL, "--home", str(data / "fallow")]) == 2
    assert "the home of your own" in capsys.readouterr().err
    Path("fallow.yaml").write_text(f"home: {tmp_path / 'own'}\n")
    assert run(["demo", *SMALL, "--home", str(tmp_path / "own")]) == 2
    assert not (tmp_path / "own").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_a_folder_may_be_named_in_the_environment_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FALLOW_HOME", str(tmp_path / "shown"))
    assert run(["demo", *SMALL, "--home", str(tmp_path / "shown")]) == 0
    capsys.readouterr()
    assert run(["spend", "--by", "cluster"]) == 0
    assert "demo" in capsys.readouterr().out


@pytest.mark.parametrize("value", ["", "data"])
def test_a_data_folder_that_is_no_absolute_path_is_as_unset(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", value)
    monkeypatch.setenv("HOME", str(tmp_path / "ann"))
    assert locate_demo_home() == tmp_path / "ann" / ".local" / "share" / "fallow-demo"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert locate_demo_home() == tmp_path / "ann" / ".local" / "share" / "fallow-demo"


def test_a_demo_home_brings_its_own_settings(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "demo"
    with replace_demo_home(home, {"cluster": "demo"}):
        pass
    Path("fallow.yaml").write_text("warehouse: {data: 's3://site/lake'}\n")
    monkeypatch.setenv("FALLOW_CLUSTER", "real")
    read = load(flags={"home": home})
    assert (read.settings.cluster, read.settings.warehouse.data) == ("demo", "")
    assert load(flags={"home": tmp_path / "other"}).settings.cluster == "real"
    monkeypatch.setenv("FALLOW_HOME", str(home))
    assert load().settings.cluster == "demo"
    assert load(flags={"cluster": "mine"}).settings.cluster == "mine"
    assert load(flags={"cluster": "mine"}).settings.home == home
    assert locate_demo_home() == data / "fallow-demo"


@pytest.mark.parametrize(
    "words",
    [
        ("collect", "--once"),
        ("up",),
        ("import", "kubectl", "dump.json"),
        ("import", "prometheus", "--url", "http://127.0.0.1:9"),
        ("policy", "init"),
        ("reconcile",),
    ],
)
@pytest.mark.usefixtures("data")
def test_nothing_of_a_real_fleet_is_mixed_with_a_demo(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = tmp_path / "demo"
    with replace_demo_home(home, {"cluster": "demo"}):
        pass
    before = sorted(path.name for path in home.iterdir())
    assert run([*words, "--home", str(home)]) == 2
    answer = capsys.readouterr().err
    assert "simulated" in answer
    assert "without --home" in answer
    monkeypatch.setenv("FALLOW_HOME", str(home))
    assert run([*words]) == 2
    assert str(home) in capsys.readouterr().err
    assert sorted(path.name for path in home.iterdir()) == before
    assert [*Path().iterdir()] == []


@pytest.mark.parametrize(
    ("transport", "answer"),
    [
        ("simulated", "there is no simulated cluster in"),
        ("carrier", "installed: kubeconfig, simulated"),
    ],
)
@pytest.mark.usefixtures("data")
def test_a_real_home_reaches_no_simulated_cluster_by_its_settings(
    transport: str, answer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("fallow.yaml").write_text(
        f"home: {tmp_path}/home\nkubernetes: {{transport: {transport}}}\n"
    )
    assert run(["reconcile"]) == 2
    assert answer in capsys.readouterr().err
    assert not (tmp_path / "home" / WORLD).exists()


def test_two_demos_never_write_into_one_home(tmp_path: Path) -> None:
    with (
        replace_demo_home(tmp_path / "demo", {}),
        pytest.raises(TemporaryError, match="is writing"),
        replace_demo_home(tmp_path / "demo", {}),
    ):
        pass


def test_a_demo_flushes_no_file_because_the_next_demo_makes_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    monkeypatch.setattr("warehouse.data_files.sync_file", flushed.append)
    with replace_demo_home(tmp_path / "demo", {"cluster": "demo"}):
        pass
    scrape = Batch.of(
        "scrape",
        {"cluster": ["c"], "collector": ["x"], "target": ["t"], "ts": [END.replace(tzinfo=None)]},
    )
    for name in ("demo", "own"):
        with Warehouse.open(Settings(home=tmp_path / name, cluster="c"), write=True) as warehouse:
            assert warehouse.ingest([scrape]).added == 1
        # The first home of a process may be copied from an empty one that is made for all tests.
        assert any(str(tmp_path) in str(path) for path in flushed) is (name == "own"), name


def test_a_folder_with_a_space_is_quoted(tmp_path: Path) -> None:
    for line in list_commands(tmp_path / "a b", "6a14fd1957ef"):
        assert shlex.split(line)[-2:] == ["--home", str(tmp_path / "a b")]


@pytest.mark.parametrize(
    ("end", "said"), [("yesterday", "is no date"), ("2999-01-01", "is not over yet")]
)
@pytest.mark.usefixtures("data")
def test_an_end_that_no_week_can_have_is_refused(
    end: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["demo", "--end", end]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_open_serves_the_pages_and_opens_them_in_the_browser(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("streamlit", reason="the dashboard is an extra: fallow[dashboards]")
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\ncurl -sf -o /dev/null "$1" && echo "$1" > {opened}\n')
    browser.chmod(0o700)
    words = [*find_program().split(), "demo", *SMALL, "--open"]
    environment = {**os.environ, "BROWSER": f"{browser} %s", "XDG_DATA_HOME": str(data)}
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as process:
        url = ""
        try:
            while not opened.exists() and process.poll() is None:
                assert process.stderr is not None
                line = process.stderr.readline()
                if "dashboard: http" in line:
                    url = line.split()[-1]
                    break
            while not opened.exists() and process.poll() is None:
                threading.Event().wait(0.1)
            assert opened.read_text().strip() == url
        finally:
            process.terminate()
            process.communicate(timeout=60)


def test_the_time_of_a_step_lasts_until_another_one_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 1.0, 3.0, 4.0, 9.0])
    monkeypatch.setattr("time.monotonic", lambda: next(times))
    shown: list[str] = []
    steps = StepTimes(lambda step, _part: shown.append(step))
    steps.start("live", 0.0)
    steps.start("act", 0.1)
    steps.start("live", 0.2)
    steps.end()
    assert steps.format() == "8.0 s: live 7.0 s, act 1.0 s."
    assert shown == ["live", "act", "live"]

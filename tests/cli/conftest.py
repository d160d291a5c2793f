"""The command line as tests meet it: in this process, or as a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from runtime.cli import run
from tests.demo_homes import copy_demo


class Ran(NamedTuple):
    """What one command said and how it ended."""

    code: int
    out: str
    err: str


Fallow = Callable[..., Ran]
ROOT = Path(__file__).resolve().parents[2]


def unpack_code(commit: str, folder: Path, *paths: str) -> None:
    """Write the sources of a commit of before into a folder; skip where git has it not."""
    known = subprocess.run(
        ["git", "-C", ROOT, "cat-file", "-e", commit], check=False, capture_output=True
    )
    if known.returncode:
        pytest.skip(f"no git history: commit {commit} is not here")
    folder.mkdir()
    archive = subprocess.run(
        ["git", "-C", ROOT, "archive", commit, *paths], check=True, capture_output=True
    )
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)


@pytest.fixture
def fallow(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Fallow:
    """Run a command in this process, with a home of the test's own and no settings around."""
    for name in list(os.environ):
        if name.startswith("FALLOW_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    def call(*words: str | Path) -> Ran:
        capsys.readouterr()
        code = run([str(word) for word in words])
        answer = capsys.readouterr()
        return Ran(code, answer.out, answer.err)

    return call


@pytest.fixture
def process(tmp_path: Path) -> Fallow:
    """Run a command as a process of its own."""

    def call(*words: str | Path, **environ: str) -> Ran:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("FALLOW_")}
        done = subprocess.run(
            [sys.executable, "-c", "from runtime.cli import main; main()", *map(str, words)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={
                **kept,
                "XDG_DATA_HOME": str(tmp_path / "data"),
                "PYTHONPATH": str(ROOT),
                **environ,
            },
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture(scope="session")
def demo_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the home of a small demo's warehouse, which tests only read."""
    folder = tmp_path_factory.mktemp("demo")
    return copy_demo(tmp_path_factory, folder / "home", days=1, gpus=24, seed=3)

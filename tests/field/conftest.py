"""The site of a case: commands in this process, a home of its own."""

import os
from pathlib import Path

import pytest

from runtime.cli import run
from tests.field.site import Answer, Site


@pytest.fixture
def site(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Site:
    """Return an empty site, with no settings around."""
    for name in list(os.environ):
        if name.startswith("FALLOW_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    def call(*words: str | Path) -> Answer:
        capsys.readouterr()
        code = run([str(word) for word in words])
        answer = capsys.readouterr()
        return Answer(code, answer.out, answer.err)

    return Site(call, tmp_path)

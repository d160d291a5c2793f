"""The site of a case: commands in this process, a home of its own or one that situations share."""

import io
import os
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from runtime.cli import run
from tests.field.homes import Homes, list_names
from tests.field.site import Answer, Fallow, Site


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


@pytest.fixture(scope="module")
def shared_fallow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fallow, Path]]:
    """Yield the commands and the folder of a shared home, with no settings around."""
    folder = tmp_path_factory.mktemp("shared")

    def call(*words: str | Path) -> Answer:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = run([str(word) for word in words])
        return Answer(code, out.getvalue(), err.getvalue())

    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("FALLOW_")]:
            patch.delenv(name)
        patch.chdir(folder)
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        yield call, folder


@pytest.fixture(scope="module")
def homes(request: pytest.FixtureRequest, shared_fallow: tuple[Fallow, Path]) -> Homes:
    """Return homes with the clusters of the situations that this file is asked about."""
    return Homes(*shared_fallow, list_names(request))

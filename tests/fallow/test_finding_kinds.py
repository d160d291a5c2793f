"""What analyzers declare of their findings, their own and other distributions'."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import msgspec
import pytest

from dashboards.detail_words import describe_kind
from fallow import finding_kinds, plugins
from fallow.finding_kinds import AnalyzerDeclaration, get_rank, read_declarations
from tests.runtime.demo_kinds import read_demo_kinds


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install an analyzer of another distribution; return the folder of its package."""
    folder = tmp_path / "ownerless"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "ownerless", raising=False)
    point = EntryPoint("own-less", "ownerless.analyzer:Ownerless", "fallow.analyzers")
    installed = {**plugins.find_installed("analyzers"), "own-less": point}
    monkeypatch.setattr(finding_kinds, "find_installed", lambda _: installed)
    monkeypatch.setattr(finding_kinds, "read_declarations", read_declarations.__wrapped__)
    return folder


def test_each_kind_of_a_built_in_analyzer_is_declared_in_its_folder() -> None:
    kinds = {(row.analyzer, row.kind) for row in read_demo_kinds()}
    declared = {(name, kind) for name, d in read_declarations().items() for kind in d.kinds}
    assert declared == kinds
    places = [d.waterfall and d.waterfall.place for d in read_declarations().values()]
    assert places == [*range(1, len(places) + 1)]


def test_another_package_declares_its_kinds_and_its_place(foreign: Path) -> None:
    text = """title = "Without owner"
[waterfall]
place = 3
takes = "hours"
why = "nobody misses them"
[kinds]
ownerless_job = "job of nobody"
[details]
gpus = ["GPUs: {}", "count"]
"""
    (foreign / finding_kinds.FILE).write_text(text)
    declarations = finding_kinds.read_declarations()
    assert declarations["own-less"].kinds == {"ownerless_job": "job of nobody"}
    assert declarations["own-less"].details["gpus"].unit == "count"
    assert [*declarations].index("own-less") in {2, 3}


@pytest.mark.parametrize(
    "text", [None, "title =", 'title = "x"\n[waterfall]\nplace = "first"', 'titel = "x"']
)
def test_a_package_without_a_readable_declaration_has_readable_names_and_takes_last(
    foreign: Path, text: str | None
) -> None:
    if text is not None:
        (foreign / finding_kinds.FILE).write_text(text)
    declarations = finding_kinds.read_declarations()
    assert declarations["own-less"] == AnalyzerDeclaration("Own less")
    assert [*declarations][-1] == "own-less"
    assert describe_kind("ownerless_job") == "ownerless job"


def test_an_analyzer_that_is_not_installed_any_more_takes_last() -> None:
    assert get_rank(None) == get_rank(msgspec.structs.replace(AnalyzerDeclaration("x")))

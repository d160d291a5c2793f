"""Pages that are written from the code stay equal to it, and nothing of it is left untold."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from actions.policy.keys import build_schema
from fallow.settings import _RESERVED, Settings
from runtime.cli.app import build_whole
from runtime.cli.options import GLOBALS
from runtime.service.metrics import list_metrics
from runtime.service.tracing import SWITCHES
from tests.lint.names import PACKAGES
from tools.reference import (
    KINDS,
    render_actions,
    render_cli,
    render_dashboards,
    render_figures,
    render_policies,
    render_settings,
)

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.mark.parametrize(
    ("name", "page"),
    [("settings.md", render_settings), ("cli.md", render_cli), ("figures.md", render_figures)],
)
def test_reference_page_is_what_the_code_writes(name: str, page: Callable[[], str]) -> None:
    written = (DOCS / name).read_text(encoding="utf-8")
    assert written == page(), f"run: python -m tools.reference docs  ({name} is stale)"


def test_the_table_of_kinds_is_what_the_executors_do() -> None:
    written = (DOCS / "actions.md").read_text(encoding="utf-8")
    assert all(mark in written for mark in KINDS)
    assert written == render_actions(written), "run: python -m tools.reference docs"


def test_the_gates_and_the_keys_of_policies_are_as_the_code_has_them() -> None:
    written = (DOCS / "policies.md").read_text(encoding="utf-8")
    assert written == render_policies(written), "run: python -m tools.reference docs"
    assert "| cool-down | act | hold | " in written
    assert "| `match.gpu_model` | " in written


def test_the_tables_of_pages_are_as_the_dashboard_has_them() -> None:
    written = (DOCS / "dashboards.md").read_text(encoding="utf-8")
    assert written == render_dashboards(written), "run: python -m tools.reference docs"
    assert "| GPU-hours | `/gpu-hours` | " in written
    assert " Tabs: Waterfall; Hours of the week. |" in written


def test_every_setting_and_every_command_is_told_with_a_meaning() -> None:
    page = render_settings()
    assert "| `idle.threshold` | `0.05` | activity at or below this is idle |" in page
    assert "`prometheus.url`" in page
    commands = render_cli()
    for command in ("demo", "scan", "import samples", "analyze", "warehouse query", "up"):
        assert f"## fallow {command}\n" in commands
    for line in commands.splitlines():
        if line.startswith("| `--"):
            assert line.split("|")[3].strip(), f"no meaning: {line}"


def _leaf_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=False)
        if isinstance(default, BaseModel):
            yield from _leaf_keys(type(default), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _written(*, but: str = "") -> dict[str, str]:
    """Return the text of every page by its name."""
    pages = [DOCS.parent / "README.md", *DOCS.rglob("*.md")]
    return {p.name: p.read_text(encoding="utf-8") for p in pages if p.name != but}


def _all_commands() -> Iterator[tuple[str, Any]]:
    def under(group: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from under(command, (*words, name))
            else:
                yield " ".join((*words, name)), command

    return under(build_whole(), ())


def test_every_setting_is_documented() -> None:
    page = _written()["settings.md"]
    keys = list(_leaf_keys(Settings))
    assert len(keys) > 200
    assert not [key for key in keys if f"| `{key}` | " not in page]


def test_every_command_and_option_is_documented_and_commands_in_words_too() -> None:
    page = _written()["cli.md"]
    parts = dict(
        re.findall(r"^## fallow ([a-z \-]+)$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    )
    text = "\n".join(_written(but="cli.md").values())
    for name, command in _all_commands():
        part = parts[name]
        for parameter in command.params:
            shown = parameter.param_type_name == "option" and not parameter.hidden
            if shown and parameter.name not in (*GLOBALS, "help"):
                assert all(f"`{o}`" in part for o in parameter.opts), f"{name} {parameter.opts}"
        assert re.search(rf"(fallow |`|/){name}\b", text), f"only cli.md knows fallow {name}"


def test_every_metric_is_documented() -> None:
    page = _written()["metrics.md"]
    named = [name for metric in list_metrics() for name in metric.exported()]
    assert len(named) > 20
    for metric in list_metrics():
        (name, *_) = metric.exported() if metric.kind == "counter" else (metric.name,)
        assert f"| `{name}` | {metric.kind} | " in page


def test_every_key_of_a_policy_is_documented() -> None:
    page = _written()["policies.md"]
    keys = _keys(build_schema())
    assert {"match.gpu_model", "stages", "budgets"} & keys
    assert not [key for key in sorted(keys) if f"`{key}`" not in page]


def _keys(node: Any, prefix: str = "") -> set[str]:
    """Return the keys of a JSON schema's objects, dotted; lists are seen through."""
    found: set[str] = set()
    for name, child in (node.get("properties") or {}).items():
        found |= {f"{prefix}{name}"}
        found |= _keys(child, f"{prefix}{name}.") if child.get("properties") else set()
    return found


def test_every_variable_of_the_environment_is_documented() -> None:
    text = "\n".join(_written().values())
    read: set[str] = set()
    for room in {*PACKAGES} - {"benchmarks", "simulator"}:
        for path in (DOCS.parent / room).rglob("*.py"):
            code = path.read_text(encoding="utf-8")
            read |= set(re.findall(r"environ(?:\.get\(|\[)\s*\"([A-Z][A-Z0-9_]+)\"", code))
    assert {"XDG_DATA_HOME", "NO_COLOR"} <= read
    for name in sorted({*read, *SWITCHES, *_RESERVED}):
        assert f"`{name}`" in text or (name.startswith("AWS_") and "`AWS_*`" in text), name


GENERATED = {
    "docs/cli.md", "docs/settings.md", "docs/metrics.md", "docs/figures.md", "docs/architecture.md",
}  # fmt: skip
BLOCK = re.compile(r"<!-- (\w+)(?:: written from the code)? -->.*?<!-- end of \1 -->", re.DOTALL)
WORD = re.compile(r"\S*\w\S*")
"""Text between blanks that has a letter or a digit: the bars and rules of a table are no words."""
MOST_WORDS = 35_500


def _written_by_hand() -> dict[str, str]:
    """Return the hand-written text of every page but the changelog, by its path."""
    root = DOCS.parent
    folders = (".github", "docs", "policies", "dashboards")
    pages = [*root.glob("*.md"), *(p for name in folders for p in (root / name).rglob("*.md"))]
    texts = {p.relative_to(root).as_posix(): p.read_text(encoding="utf-8") for p in pages}
    left_out = GENERATED | {"CHANGELOG.md"}
    return {name: BLOCK.sub("", text) for name, text in texts.items() if name not in left_out}


def test_the_pages_written_by_hand_have_a_bound_of_words() -> None:
    words = {name: len(WORD.findall(text)) for name, text in _written_by_hand().items()}
    longest = sorted(words, key=lambda name: -words[name])[:10]
    total = sum(words.values())
    assert total <= MOST_WORDS, f"{total} words; the longest: {', '.join(longest)}"


def test_the_changelog_says_to_users_what_is_new_and_what_needs_a_hand() -> None:
    words = len((DOCS.parent / "CHANGELOG.md").read_text(encoding="utf-8").split())
    assert words <= 2_000, "figures before and after belong into the commit's message"


def test_each_page_written_by_hand_names_its_readers() -> None:
    reader = re.compile(r"\A# .+\n\n(Tutorial|How-to|Reference|Explanation), for .+\.\n")
    left_out = (".github", "README.md")  # README begins with its sentence
    pages = {n: text for n, text in _written_by_hand().items() if not n.startswith(left_out)}
    assert [name for name, text in pages.items() if not reader.match(text)] == []


def test_every_page_is_on_the_map() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    pages = [str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md") if p.name != "index.md"]
    assert not [page for page in pages if f"({page})" not in index]


def test_what_the_code_cites_stands_in_the_repository() -> None:
    """A pointer leads to a section of docs/telemetry-and-waste.md, and none out of the tree."""
    page = _written()["telemetry-and-waste.md"]
    sections = {
        head.lower().replace(" ", "-")
        for head in re.findall(r"^## (.+)$", page, flags=re.MULTILINE)
    }
    root = DOCS.parent
    files = [
        path
        for folder in (*PACKAGES, "docs")
        for path in (root / folder).rglob("*")
        if path.suffix in {".py", ".sql", ".csv", ".md"}
    ]
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    cited = {
        anchor
        for text in texts.values()
        for anchor in re.findall(r"telemetry-and-waste\.md#([a-z-]+)", text)
    }
    assert len(cited) > 10
    assert cited <= sections
    away = re.compile(r"\b(domain|peers|style|design)\.md\b|reference/scale\.md")
    assert [str(path) for path, text in texts.items() if away.search(text)] == []


def _read_figures(pattern: str, name: str) -> dict[str, tuple[float, ...]]:
    """Return the figures of each match by its first group."""
    text = (DOCS / name).read_text(encoding="utf-8")
    found = re.findall(pattern, text, re.MULTILINE)
    return {
        first: tuple(float(figure.replace(",", "")) for figure in figures)
        for first, *figures in found
    }


# tests/runtime/test_demo_whole.py and tests/test_tutorial.py (long) run the commands.
def test_the_tutorial_quotes_the_demo_that_the_readme_quotes() -> None:
    state = r"^  (\w+) .*?[0-9.]+% +([0-9,.]+) GPU-h +\$([0-9,.]+)"
    states = _read_figures(state, "../README.md")
    assert len(states) == 9
    sentence = r"^(Paid): \$([0-9,.]+) for ([0-9,.]+) GPU-hours"
    usd, hours = _read_figures(sentence, "../README.md")["Paid"]
    assert _read_figures(sentence, "tutorial.md")["Paid"] == (usd, hours)
    total = r"^(total) +([0-9,.]+) +([0-9,.]+) +([0-9,.]+) +([0-9,.]+) "
    whole = _read_figures(total, "tutorial.md")["total"]
    assert whole[:2] == (hours, usd)
    assert abs(whole[2] - states["idle"][0]) < 0.06  # two digits, and one
    assert whole[3] == states["idle"][1]

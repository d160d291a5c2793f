"""The pages of docs/ that are written from the code stay equal to it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.reference import KINDS, actions_page, cli_page, policies_page, settings_page

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.mark.parametrize(("name", "page"), [("settings.md", settings_page), ("cli.md", cli_page)])
def test_reference_page_is_what_the_code_writes(name: str, page: Callable[[], str]) -> None:
    written = (DOCS / name).read_text(encoding="utf-8")
    assert written == page(), f"run: python -m runtime.reference docs  ({name} is stale)"


def test_the_table_of_kinds_is_what_the_executors_do() -> None:
    written = (DOCS / "actions.md").read_text(encoding="utf-8")
    assert all(mark in written for mark in KINDS)
    assert written == actions_page(written), "run: python -m runtime.reference docs"


def test_the_gates_and_the_keys_of_policies_are_as_the_code_has_them() -> None:
    written = (DOCS / "policies.md").read_text(encoding="utf-8")
    assert written == policies_page(written), "run: python -m runtime.reference docs"
    assert "| cool-down | act | hold | " in written
    assert "| `match.gpu_model` | " in written


def test_every_setting_and_every_command_is_told_with_a_meaning() -> None:
    page = settings_page()
    assert "| `idle.threshold` | `0.05` | activity at or below this is idle |" in page
    assert "`prometheus.url`" in page
    commands = cli_page()
    for command in ("demo", "scan", "import samples", "analyze", "warehouse query", "up"):
        assert f"## fallow {command}\n" in commands
    for line in commands.splitlines():
        if line.startswith("| `--"):
            assert line.split("|")[3].strip(), f"no meaning: {line}"

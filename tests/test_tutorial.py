"""docs/tutorial.md is walked from its first command to its last, as a reader does."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OWN_PROMETHEUS = "http://prometheus:9090"
"""The reader's own: tests/acceptance scans a real one."""


class Command(NamedTuple):
    """A command of the page, and the lines that it prints."""

    text: str
    output: list[str]


def commands() -> Iterator[Command]:
    """Yield the commands of the page in their order, each with the output under it."""
    text = ""
    for kind, body in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "text":
            yield Command(text, body.splitlines())
            text = ""
            continue
        if text:
            yield Command(text, [])
        text = body.strip()
    if text:
        yield Command(text, [])


def find_missing(expected: list[str], printed: list[str]) -> str | None:
    """Return the first line that is not printed, in order; `...` stands for what is left out."""
    left = iter(printed)
    for line in expected:
        pattern = ".*".join(re.escape(part) for part in line.rstrip().split("..."))
        if line.strip() != "..." and not any(re.fullmatch(pattern, one.rstrip()) for one in left):
            return line
    return None


def test_a_line_that_is_not_printed_is_found() -> None:
    assert find_missing(["a", "...", "c ... e"], ["a", "b", "c d e"]) is None
    assert find_missing(["a", "c"], ["c", "a"]) == "c"
    assert find_missing(["a ..."], ["b c"]) == "a ..."


# Its commands parse in tests/test_docs_examples.py; the demo runs in tests/runtime/test_demo.py.
@pytest.mark.long
def test_the_tutorial_prints_what_it_says(tmp_path: Path) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FALLOW_", "XDG_"))}
    environ = {**kept, "HOME": str(tmp_path), "COLUMNS": "100"}
    walked = 0
    for command in commands():
        if command.text.startswith("export "):
            name, _, value = command.text.removeprefix("export ").partition("=")
            environ[name] = value.replace("~", str(tmp_path))
            continue
        if OWN_PROMETHEUS in command.text:
            continue
        words = shlex.split(command.text)
        assert words[0] == "fallow"
        done = subprocess.run(
            [sys.executable, "-c", "from runtime.cli import main; main()", *words[1:]],
            capture_output=True, text=True, cwd=tmp_path, env=environ, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (command.text, done.stderr)
        printed = [*done.stdout.splitlines(), *done.stderr.splitlines()]
        assert find_missing(command.output, printed) is None, command.text
        walked += 1
    assert walked >= 10

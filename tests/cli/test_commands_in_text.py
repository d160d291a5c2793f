"""Every `fallow …` that a hint, a notice, a page or the documentation names can be typed."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from runtime.cli.app import build_whole

ROOT = Path(__file__).resolve().parents[2]
KINDS = frozenset({".py", ".md", ".csv", ".yaml", ".tpl", ".json", ".sql", ".txt", ".html"})
BUILT = frozenset({"tests", "dist", "build", "bench-results"})
# What follows these is a command; elsewhere a lower-case fallow is the name of a thing.
NAMED = re.compile(
    r"(?:^|[`\"'(|:;,]\s*|\b(?:or|and|run|see|by|then|with|kubectl)\s+)"
    r"fallow (?P<words>[a-z][^`\n]*)",
    re.MULTILINE,
)
ENDS = re.compile(r"\s#|[;|>&]|\\$|\.\s|,\s")
BARE = {"baseline": "save"}
"""Groups whose own words are those of one of their commands."""
OPTION = re.compile(r"--?[A-Za-z][a-z0-9-]*")


@cache
def root() -> Any:
    return build_whole()


def wrong(text: str) -> str | None:
    """Say what of a command cannot be typed, None = all of it can be."""
    words = (ENDS.split(text)[0] if ENDS.search(text) else text).split()
    found, path = root(), []
    while hasattr(found, "commands") and words:
        bare = words[0].strip("`\"'().,:")
        if bare not in found.commands:
            break
        found = found.commands[bare]
        path.append(words.pop(0))
    if path and path[-1] in BARE and words:
        found = found.commands[BARE[path[-1]]]
    if not path:
        return f"no command: {text}"
    if hasattr(found, "commands") and words and not words[0].startswith(("...", "…", "-")):
        return f"fallow {' '.join(path)} has no {words[0]}"
    legal = {"--help"} | {o for p in found.params for o in (*p.opts, *p.secondary_opts)}
    named = [m.group() for w in words if (m := OPTION.match(w.strip("`\"'().,:[]")))]
    unknown = [option for option in named if option not in legal]
    return f"fallow {' '.join(path)} has no {unknown[0]}" if unknown else None


def files() -> list[Path]:
    """Return the files of the tree that people read, or that print what they read."""
    tops = [p for p in ROOT.iterdir() if not p.name.startswith(".") and p.name not in BUILT]
    inside = (p for top in tops if top.is_dir() for p in top.rglob("*"))
    return [p for p in (*tops, *inside) if p.suffix in KINDS and p.is_file()]


def texts(path: Path) -> Iterator[str]:
    """Yield what a file says: of Python its texts, a value that is filled in as X."""
    if path.suffix != ".py":
        yield path.read_text(encoding="utf-8")
        return
    inside: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values}
            yield "".join(str(p.value) if isinstance(p, ast.Constant) else "X" for p in node.values)
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in inside
        ):
            yield node.value


def named() -> Iterator[tuple[str, str]]:
    """Yield every command that is named, with the file that names it."""
    for path in files():
        for text in texts(path):
            for match in NAMED.finditer(text):
                yield path.relative_to(ROOT).as_posix(), match.group("words").strip()


def test_every_command_that_is_named_anywhere_exists_with_its_options() -> None:
    found = list(named())
    assert len(found) > 300, "the search still finds them"
    assert {where.partition("/")[0] for where, _ in found} >= {"actions", "docs", "runtime"}
    bad = sorted({f"{where}: {why}" for where, text in found if (why := wrong(text))})
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize(
    "text",
    [
        "apply --force",
        "policy open NAME",
        "tell",
        "schedule NAME",
        "backtest X --since 3d --until 2d",
    ],
)
def test_what_does_not_exist_is_seen(text: str) -> None:
    assert wrong(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "apply --yes",
        "baseline NAME",
        "baseline",
        "policy trust NAME --reason TEXT",
        "warehouse ...",
        "plan",
        "keep K/n/w 24h",
    ],
)
def test_what_exists_is_no_fault(text: str) -> None:
    assert wrong(text) is None

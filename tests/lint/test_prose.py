"""The lint of prose finds private words in comments, docstrings, messages, tables and pages."""

from pathlib import Path

import pytest

from tests.lint import prose


def find(path: str, text: str) -> list[tuple[int, str]]:
    """Return the lines and the banned words of a file."""
    faults = prose.find_faults(path, prose.read_sentences(Path(path), text))
    return [(fault.line, fault.word) for fault in faults]


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("each look is one row", ["look"]), ("Look codes up", []), ("it looks like idle", []),
        ("its owner was told", ["told"]), ("8 boards", ["boards"]), ("a dashboard", []),
        ("rests at night", ["rests at"]), ("it rests on two signals", []),
        ("the rest at the end", []), ("`look` was a column", []), ("onboard, stakeholder", []),
        ("a stand-in for it", ["stand-in"]), ("a tidy table", []), ("tidy it", ["tidy"]),
    ],
)  # fmt: skip
def test_a_private_word_is_found_where_it_is_a_word_of_ours(
    sentence: str, words: list[str]
) -> None:
    assert find("a.md", f"Before.\n{sentence}\n") == [(2, word) for word in words]


def test_comments_and_texts_of_code_are_read_and_its_names_are_not() -> None:
    python = '"""One look."""\nlook = "told"  # a board\nerror(f"{look} was told")\n'
    assert find("a.py", python) == [(2, "board"), (1, "look"), (3, "told")]
    assert find("a.sql", "SELECT 1 AS look -- told\n") == [(1, "told")]


def test_the_names_of_before_may_stand_in_their_tables() -> None:
    table = "### Renamed\n\n| `a` | told |\n\n### Changed\n\nIt told them.\n"
    assert find("CHANGELOG.md", table) == []  # the words are allowed in its list of names
    assert find("CHANGELOG.md", table.replace("told", "dear")) == [(7, "dear")]
    assert find("fallow/renamed.csv", "policy,ladder,stages\n") == []
    assert find("fallow/other.csv", "policy,ladder,stages\n") == [(1, "ladder")]


def test_no_private_word_stands_in_the_product(capsys: pytest.CaptureFixture[str]) -> None:
    assert prose.main() == 0, capsys.readouterr().out

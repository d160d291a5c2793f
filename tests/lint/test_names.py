"""The lint of names finds private words, and only where they are names."""

import pytest

from tests.lint import names

BANNED = names.banned_words()


@pytest.mark.parametrize(
    ("name", "is_banned"),
    [
        ("told_at", True), ("TokenDoor", True), ("LOOKS", True), ("_found", True),
        ("found_at", False), ("outlook", False), ("one", True), ("one_line", False),
        ("JupyterHubClient", False), ("lookup", False), ("onboarded", False),
    ],
)  # fmt: skip
def test_a_private_word_is_banned_as_a_part_or_as_a_whole_name(
    name: str, *, is_banned: bool
) -> None:
    assert (names.instead(name, BANNED) is not None) is is_banned


def test_identifiers_of_python_and_aliases_of_sql_are_read() -> None:
    python = names._of_python("a.py", "def f(asked):\n    told = x.look\n    y.kept = 1\n")
    assert [(n.line, n.text) for n in python] == [
        (1, "f"), (1, "asked"), (2, "told"), (3, "kept"),
    ]  # fmt: skip
    sql = names._of_sql("a.sql", "WITH told AS (\n SELECT 1 AS asked -- AS look\n) SELECT 1")
    assert [(n.line, n.text) for n in sql] == [(1, "told"), (2, "asked")]


def test_no_package_has_more_banned_names_than_it_may() -> None:
    assert names.main([]) == 0

"""Mutants change what a statement does, in Python and in SQL; a seed draws the same each time."""

import ast
from pathlib import Path

import pytest

from tests.mutation import __main__ as mutation
from tests.mutation.mutants import mutants
from tests.mutation.subjects import equivalents, sources, subjects

ROOT = Path(__file__).resolve().parents[2]


def changes(path: str, text: str) -> set[tuple[str, str]]:
    """Return the old and new text of every mutant."""
    return {(m.old, m.new) for statement in mutants(path, text) for m in statement}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f(a, b=3):\n    return a <= b\n", {("3", "4"), ("<=", "<")}),
        ("x = a not in b and c\n", {("not in", "in"), ("and", "or")}),
        ("while not done:\n    total += 1\n",
         {("not done", "(not (not done))"), ("not", ""), ("total += 1", "pass"), ("1", "2")}),
        ("x = max(a, True) * 0.5\n",
         {("max", "min"), ("True", "False"), ("*", "/"), ("0.5", "1.5")}),
        ("keep(é)  # a < b\n", {("keep(é)", "pass")}),
        ("x: int | None = None\ny = 'a' + b\n", set()),
        ("Record = Pod | Node\n", set()),
        ("for x in y:\n    continue\n", {("continue", "pass")}),
    ],
)  # fmt: skip
def test_python_is_changed_where_it_does_something(
    text: str, expected: set[tuple[str, str]]
) -> None:
    assert changes("a.py", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT a + b -- a < 3\n", {("+", "-")}),
        ("FROM x LEFT JOIN y ON x.a >= y.a AND y.b IS NULL",
         {("LEFT JOIN", "JOIN"), (">=", ">"), ("AND", "OR"), ("IS NULL", "IS NOT NULL")}),
        ("WHERE a BETWEEN $lo AND $hi AND state = 'idle < 3'", {("AND", "OR")}),
        ("SELECT least(a, 60), bool_or(b <> c)",
         {("least", "greatest"), ("60", "61"), ("bool_or", "bool_and"), ("<>", "=")}),
        ("SELECT count(*), tier2.x, $p1", set()),
    ],
)  # fmt: skip
def test_sql_is_changed_outside_of_comments_and_strings(
    text: str, expected: set[tuple[str, str]]
) -> None:
    assert changes("a.sql", text) == expected


def test_a_mutant_changes_its_own_place_and_leaves_python_that_parses() -> None:
    for path in ("analyzers/idle/judge.py", "actions/loop/undo.py"):
        text = (ROOT / path).read_text(encoding="utf-8")
        changed = [mutant for statement in mutants(path, text) for mutant in statement]
        assert len(changed) > 20
        for mutant in changed:
            assert text[mutant.start : mutant.end] == mutant.old
            assert text.splitlines()[mutant.line - 1].strip()
            assert ast.unparse(ast.parse(mutant.apply(text))) != ast.unparse(ast.parse(text))


def test_the_seed_alone_decides_what_is_drawn() -> None:
    first, again, other = ([(s.name, m) for s, m in mutation.draw(seed)][:50] for seed in (7, 7, 8))
    assert first == again
    assert first != other
    assert len({name for name, _ in first}) > 3


def test_every_subject_has_sources_and_tests() -> None:
    for subject in subjects():
        assert all(any(ROOT.glob(pattern)) for pattern in subject.sources), subject.name
        assert all(any(ROOT.glob(pattern)) for pattern in subject.tests), subject.name


def test_a_mutant_that_nothing_can_kill_is_in_the_code_and_has_a_reason() -> None:
    paths = {path for subject in subjects() for path in sources(ROOT, subject)}
    for path, line, old, _ in equivalents():
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        assert path in paths
        assert old in line
        assert line in {text.strip() for text in lines}


def test_survivors_are_printed_with_their_place_and_untried_ones_do_not_count() -> None:
    changed = [mutant for _, mutant in mutation.draw(1)][:3]
    results = ("killed", "survived", "untried")
    trials = [mutation.Trial("ledger", m, r) for m, r in zip(changed, results, strict=True)]
    lines, score = mutation.summarize(trials)
    assert score == 0.5
    assert f"survived: {changed[1].path}:{changed[1].line}: " in lines[0]
    assert lines[1] == "ledger: killed 1 of 2; untried 1"

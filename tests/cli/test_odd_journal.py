"""A journal whose chain holds and whose rows say what no Fallow writes: one line, and what next."""

import json
import sqlite3
from typing import Any

import pytest

from actions.journal import event_types
from actions.journal.log import COLUMNS, GENESIS, _hash
from tests.actions.loop.site import Site
from tests.cli.conftest import Fallow
from tests.cli.test_acting import cli as cli  # noqa: PLC0414  (a fixture)
from tests.cli.test_acting import done
from tests.cli.test_acting import site as site  # noqa: PLC0414  (a fixture)


def change_row(site: Site, kind: str, column: int, text: str) -> int:
    """Change one value of the first row of a kind, hash the chain anew and return its number."""
    path = site.folder / "journal.sqlite"
    with sqlite3.connect(path) as connection:
        rows = connection.execute(f"SELECT {COLUMNS} FROM entry ORDER BY seq").fetchall()
        triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        for (name,) in triggers.fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("DELETE FROM entry")
        previous, changed = GENESIS, next(row[0] for row in rows if row[2] == kind)
        for row in map(list, rows):
            if row[0] == changed:
                row[column] = text
            row[6], row[7] = previous, _hash(previous, *row[:6])
            connection.execute(f"INSERT INTO entry ({COLUMNS}) VALUES (?,?,?,?,?,?,?,?)", row)
            previous = row[7]
    connection.close()
    return int(changed)


def change(site: Site, kind: str, value: object, *keys: Any) -> str:
    """Return the document of the first row of a kind with one value changed."""
    document: Any = site.journal().entries(kind)[0].document
    inner = document
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    return json.dumps(document)


AT, DOCUMENT = 1, 5
ROWS: list[tuple[str, int, str]] = [
    (event_types.INTENT, AT, "x"),
    (event_types.INTENT, AT, "2026-11-20T10:00:00"),
    (event_types.INTENT, AT, "0001-01-01T00:00:00+14:00"),
    (event_types.INTENT, AT, "9999-12-31T23:59:59-14:00"),
    (event_types.SEEN, DOCUMENT, ""),
    (event_types.SEEN, DOCUMENT, "null"),
    (event_types.SEEN, DOCUMENT, '"x"'),
    (event_types.SEEN, DOCUMENT, "[" * 100_000),
    (event_types.SEEN, DOCUMENT, '{"kin": 7}'),
    (event_types.SEEN, DOCUMENT, '{"a": 1' + "0" * 5000 + "}"),
    (event_types.NOTIFIED, DOCUMENT, "{}"),
    (event_types.INTENT, DOCUMENT, "{}"),
    (event_types.INTENT, 2, "renamed"),
    (event_types.OUTCOME, DOCUMENT, '{"action": "\\u001b[2J"}'),
]
VALUES: list[tuple[str, object, tuple[str, ...]]] = [
    (event_types.INTENT, 1e308, ("facts", "seen_until")),
    (event_types.INTENT, {"a": 1}, ("action", "decision", "step")),
    (event_types.INTENT, "NaN", ("action", "decision", "generation")),
    (event_types.OUTCOME, "9" * 5000, ("result",)),
    (event_types.OUTCOME, [[]], ("freed_gpus",)),
]


def check(site: Site, cli: Fallow, action: str) -> None:
    for words in (["actions"], ["actions", action], ["undo", action], ["keep", "Job/team-a/b"]):
        ran = cli(*words)
        first, second = ran.err.splitlines()
        assert ran.code == 1, ran
        assert first.startswith("fallow: row "), ran.err
        assert " of the journal is no " in first
        assert second.startswith("hint: nothing acts by it; "), ran.err
        assert all(c.isprintable() or c == "\n" for c in ran.err)
        assert len(first) < 400
    assert "defect" not in cli("actions", "--verify").err
    assert site.journal().verify() is None, "the chain holds"


@pytest.mark.parametrize(("kind", "column", "text"), ROWS)
def test_a_row_that_no_fallow_writes(
    *, site: Site, cli: Fallow, kind: str, column: int, text: str
) -> None:
    result, _ = done(site)
    change_row(site, kind, column, text)
    check(site, cli, result.action.id)


@pytest.mark.parametrize(("kind", "value", "keys"), VALUES)
def test_a_value_that_no_fallow_writes(
    *, site: Site, cli: Fallow, kind: str, value: object, keys: tuple[str, ...]
) -> None:
    result, _ = done(site)
    change_row(site, kind, DOCUMENT, change(site, kind, value, *keys))
    check(site, cli, result.action.id)

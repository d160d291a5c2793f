"""The journal only grows, shows every wound, and survives everything a process can do to it."""

import multiprocessing
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actions.journal import Journal, JournalState, event_types
from actions.journal.log import BrokenLink
from fallow.errors import TemporaryError, UsageError, WarehouseError
from fallow.system import sqlite_file
from tests.actions.journal import writing

WRITTEN = "it is not what was written"
UNNAMED = "it does not name the row before it"
CUT = "it is missing here; the warehouse's copy has it"
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
FRESH = multiprocessing.get_context("forkserver")
FRESH.set_forkserver_preload(["tests.actions.journal.writing"])


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.open(tmp_path / "journal.sqlite", lambda: NOW, actor="ann") as made:
        yield made


def filled(journal: Journal, rows: int = 5) -> Journal:
    for number in range(rows):
        journal.append("seen", f"f-{number}", {"number": number, "text": "größer"})
    return journal


def tamper(journal: Journal, *statements: str) -> None:
    """Do what only somebody with the file in hand can do."""
    connection = sqlite3.connect(journal.path, isolation_level=None)
    for trigger in ("changed", "deleted", "replaced"):
        connection.execute(f"DROP TRIGGER entry_is_never_{trigger}")
    for statement in statements:
        connection.execute(statement)
    connection.close()


def test_what_is_appended_is_read_back(journal: Journal) -> None:
    filled(journal)
    rows = journal.entries()
    assert [(r.seq, r.key, r.actor, r.at) for r in rows][:2] == [
        (1, "f-0", "ann", NOW),
        (2, "f-1", "ann", NOW),
    ]
    assert rows[0].document == {"number": 0, "text": "größer"}
    assert [r.key for r in journal.entries("seen", key="f-3")] == ["f-3"]
    assert [r.seq for r in journal.entries(after=3)] == [4, 5]
    assert journal.verify() is None


@pytest.mark.parametrize(
    ("statement", "broken"),
    [
        ("UPDATE entry SET document = '{}' WHERE seq = 3", BrokenLink(3, WRITTEN)),
        ("UPDATE entry SET actor = 'bob' WHERE seq = 2", BrokenLink(2, WRITTEN)),
        ("UPDATE entry SET at = '2020-01-01' WHERE seq = 1", BrokenLink(1, WRITTEN)),
        ("DELETE FROM entry WHERE seq = 3", BrokenLink(4, "row 3 is missing before it")),
        ("DELETE FROM entry WHERE seq = 1", BrokenLink(2, "row 1 is missing before it")),
        ("UPDATE entry SET previous = 'x' WHERE seq = 4", BrokenLink(4, UNNAMED)),
        ("DELETE FROM entry WHERE seq > 3", BrokenLink(4, CUT)),
    ],
)
def test_the_first_broken_link_is_named(
    journal: Journal, statement: str, broken: BrokenLink
) -> None:
    filled(journal)
    copy = [(row.seq, row.hash) for row in journal.entries()]
    tamper(journal, statement)
    assert journal.verify(copy) == broken


def test_a_chain_forged_anew_is_not_the_one_that_was_copied(
    journal: Journal, tmp_path: Path
) -> None:
    copy = [(row.seq, row.hash) for row in filled(journal).entries()]
    with Journal.open(tmp_path / "forged.sqlite", lambda: NOW, actor="bob") as forged:
        assert filled(forged).verify() is None
        assert forged.verify(copy) == BrokenLink(
            1, "it is not the row that the warehouse's copy has"
        )


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entry SET document = '{}'",
        "DELETE FROM entry",
        "INSERT OR REPLACE INTO entry SELECT * FROM entry WHERE seq = 2",
        "INSERT INTO entry SELECT 0, at, kind, key, actor, document, previous, hash FROM entry",
    ],
)
def test_rows_are_never_changed_taken_away_or_put_between(journal: Journal, statement: str) -> None:
    filled(journal)
    connection = sqlite3.connect(journal.path)
    with pytest.raises(sqlite3.IntegrityError, match="only grows"):
        connection.execute(statement)
    connection.close()
    assert journal.verify() is None


@given(
    rows=st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), min_size=1, max_size=6),
    column=st.sampled_from(["at", "kind", "key", "actor", "document", "previous", "hash"]),
    data=st.data(),
)
def test_any_change_of_any_column_is_seen(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str]],
    column: str,
    data: Any,
) -> None:
    path = tmp_path_factory.mktemp("journal") / "j.sqlite"
    with Journal.open(path, lambda: NOW) as journal:
        for key, text in rows:
            journal.append("seen", key, {"text": text})
        assert journal.verify() is None
        at = data.draw(st.integers(1, len(rows)))
        tamper(journal, f"UPDATE entry SET {column} = {column} || 'x' WHERE seq = {at}")
        broken = journal.verify()
        assert broken is not None
        assert broken.seq == at


def test_several_processes_append_and_no_row_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    writers = [FRESH.Process(target=writing.append, args=(path, f"w{n}", 40)) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    with Journal.open(path, lambda: NOW, write=False) as journal:
        assert journal.verify() is None
        keys = [row.key for row in journal.entries()]
    assert sorted(keys) == sorted(f"w{n}-{i}" for n in range(3) for i in range(40))
    for n in range(3):
        own = [key for key in keys if key.startswith(f"w{n}-")]
        assert own == [f"w{n}-{i}" for i in range(40)]


def test_rows_survive_the_death_of_their_writer(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    process = FRESH.Process(target=writing.die_after, args=(path, 7))
    process.start()
    process.join(60)
    assert process.exitcode == -9
    with Journal.open(path, lambda: NOW) as journal:
        assert len(journal.entries()) == 7
        journal.append("seen", "next", {})
        assert journal.verify() is None


def test_every_row_waits_for_the_disk(journal: Journal) -> None:
    wanted = journal._file.connection.execute
    assert wanted("PRAGMA journal_mode").fetchone() == ("wal",)
    assert wanted("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_a_journal_that_is_held_too_long_is_temporary(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_S", 0.05)
    other = sqlite3.connect(journal.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with (
        Journal.open(journal.path, lambda: NOW, write=True) as mine,
        pytest.raises(TemporaryError, match="locked"),
    ):
        mine.append("seen", "x", {})
    other.execute("ROLLBACK")
    other.close()
    journal.append("seen", "x", {})


def test_only_one_process_acts_by_a_journal(journal: Journal) -> None:
    with (
        journal.alone(),
        pytest.raises(TemporaryError, match="another process acts"),
        journal.alone(wait_s=0.06),
    ):
        raise AssertionError
    with journal.alone(wait_s=0.01):
        journal.append("seen", "x", {})


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("this is no database, whatever its name says" * 50)
    with pytest.raises(WarehouseError, match=r"notes\.txt"):
        Journal.open(path, lambda: NOW)
    with pytest.raises(UsageError, match="there is no journal"):
        Journal.open(tmp_path / "nothing.sqlite", lambda: NOW, write=False)
    assert not (tmp_path / "nothing.sqlite").exists()


def test_a_journal_opened_to_be_read_is_not_written(journal: Journal) -> None:
    filled(journal)
    with (
        Journal.open(journal.path, lambda: NOW, write=False) as reader,
        pytest.raises(WarehouseError, match="readonly"),
    ):
        reader.append("seen", "x", {})


def test_rows_of_one_moment_are_all_there_or_none(journal: Journal) -> None:
    def rows() -> Iterator[tuple[str, str, Any]]:
        yield "seen", "a", {}
        raise sqlite3.OperationalError("disk I/O error")

    with pytest.raises(WarehouseError, match="disk I/O"):
        journal.extend(rows())
    assert journal.entries() == []
    journal.extend([("seen", "a", {}), ("seen", "b", {})])
    assert journal.verify() is None


def test_every_kind_of_row_is_known_to_the_record() -> None:
    constants = {v for k, v in vars(event_types).items() if k.isupper() and k != "FLEET"}
    assert constants == event_types.read_event_types()


def test_kept_and_frozen_are_read_back(journal: Journal) -> None:
    record = JournalState(journal)
    until = NOW + timedelta(hours=24)
    record.append(event_types.KEEP, "c/Notebook/team-a/nb/1", {"until": until.isoformat()})
    assert record.keeps["c", "Notebook", "team-a", "nb/1"].until == until
    record.append(event_types.FROZEN, event_types.FLEET, {"why": "demo"})
    record.append(event_types.FROZEN, event_types.FLEET, {"why": "again"}, actor="bob")
    assert record.frozen is not None
    assert (record.frozen.by, record.frozen.why) == ("ann", "demo")
    record.append(event_types.THAWED, event_types.FLEET, {})
    assert JournalState(journal).catch_up().frozen is None

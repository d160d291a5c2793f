"""A checkpoint gives the state that all rows give, or is not used."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actions.journal import Journal, JournalState, checkpoint, derivation, event_types
from actions.journal.checkpoint import SUFFIX, read_checkpoint
from fallow.errors import WarehouseError
from tests.actions.loop.conftest import site as site  # noqa: PLC0414  (a fixture)
from tests.actions.loop.site import Site

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def every_ten_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actions.journal.state.EVERY", 10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a journal of 12 rows with a checkpoint, and five rows after it."""
    path = tmp_path / "journal.sqlite"
    with Journal.open(path, lambda: NOW) as journal:
        state = JournalState(journal)
        rows = [keep_row(number) for number in range(12)]
        state.extend(rows)
        journal.extend([keep_row(number) for number in range(12, 17)])
    assert path.with_name(path.name + SUFFIX).is_file()
    return path


def keep_row(number: int) -> tuple[str, str, Any]:
    until = (NOW + timedelta(hours=number)).isoformat()
    return (event_types.KEEP, f"c/Deployment/team-a/w{number % 3}", {"until": until})


def fields(state: JournalState) -> dict[str, Any]:
    own = {"journal", "steps", "_checkpoint_seq"}
    return {name: value for name, value in vars(state).items() if name not in own}


def opened(path: Path, *, write: bool = False) -> JournalState:
    return JournalState(Journal.open(path, lambda: NOW, write=write)).catch_up()


def is_used(path: Path) -> bool:
    with Journal.open(path, lambda: NOW, write=False) as journal:
        return read_checkpoint(journal) is not None


def test_a_site_that_acted_has_the_same_state_from_its_checkpoint(site: Site) -> None:
    site.deployment()
    actor = site.actor()
    action = site.done(actor)
    site.cron_job()
    site.told_and_waited(actor)
    actor.turn(dry_run=False)
    actor.undo(action.action.id, "ann")
    actor.record.catch_up()
    path = site.folder / "journal.sqlite"
    assert is_used(path)
    short = opened(path)
    path.with_name(path.name + SUFFIX).unlink()
    assert fields(short) == fields(opened(path))
    assert len(short.actions) == 2


def test_only_the_rows_after_the_checkpoint_are_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    follow = Journal.follow

    def counted(journal: Journal, after: int, previous: str) -> Any:
        rows = follow(journal, after, previous)
        read.append(len(rows))
        return rows

    monkeypatch.setattr(Journal, "follow", counted)
    assert opened(path).keeps.keys() == {("c", "Deployment", "team-a", f"w{n}") for n in range(3)}
    assert read == [6]  # the checkpoint's own row, and five


def damage(path: Path) -> None:
    body = bytearray(path.with_name(path.name + SUFFIX).read_bytes())
    body[len(body) // 2] ^= 1
    path.with_name(path.name + SUFFIX).write_bytes(body)


def cut(path: Path) -> None:
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("DROP TRIGGER entry_is_never_deleted")
        file.execute("DELETE FROM entry WHERE seq > 9")


def write_again(path: Path) -> None:
    """Write the same rows with right hashes, at another time: the checkpoint is of other rows."""
    path.unlink()
    with Journal.open(path, lambda: NOW + timedelta(seconds=1)) as journal:
        journal.extend([keep_row(number) for number in range(17)])


@pytest.mark.parametrize("change", [damage, cut, write_again])
def test_a_checkpoint_that_does_not_fit_is_not_used_and_is_replaced(
    path: Path, change: Callable[[Path], None]
) -> None:
    assert is_used(path)
    change(path)
    assert not is_used(path)
    with Journal.open(path, lambda: NOW) as journal:
        journal.extend([keep_row(number) for number in range(20, 24)])
        state = JournalState(journal).catch_up()
        assert state.keeps[("c", "Deployment", "team-a", "w2")].until == NOW + timedelta(hours=23)
    assert is_used(path)
    assert opened(path).keeps == state.keeps


def test_a_checkpoint_of_other_code_is_not_used(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "hash_code", lambda: "other")
    assert not is_used(path)
    assert len(opened(path).keeps) == 3


def test_a_forged_checkpoint_is_not_used(path: Path) -> None:
    with Journal.open(path, lambda: NOW, write=False) as journal:
        seq, row_hash = 12, journal.entries()[11].hash
        state = opened(path)
        state.trusted.clear()
        state.keeps.clear()
        forged = checkpoint.Checkpoint(
            checkpoint.hash_code(), seq, row_hash, msgspec.Raw(state.dump())
        )
    body = msgspec.msgpack.encode(forged)
    path.with_name(path.name + SUFFIX).write_bytes(body)
    assert not is_used(path)
    assert len(opened(path).keeps) == 3


def test_nothing_acts_by_a_row_that_was_changed_before_the_checkpoint(path: Path) -> None:
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("DROP TRIGGER entry_is_never_changed")
        file.execute("UPDATE entry SET document = '{}' WHERE seq = 3")
    with pytest.raises(WarehouseError, match="broken at row 3"):
        opened(path, write=True)


def test_a_change_of_any_module_that_derives_the_state_makes_a_checkpoint_unusable() -> None:
    classes = [each for each in vars(derivation).values() if isinstance(each, type)]
    modules = {each.__module__ for each in classes if each.__module__.startswith("actions.journal")}
    hashed = {f"{package}.{name.removesuffix('.py')}" for package, name in checkpoint._SOURCES}
    assert modules - hashed == {"actions.journal.log"}, "a row of the journal itself has a hash"

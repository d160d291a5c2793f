"""What left the machine shows a cut journal and one whose hashes were all written again."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from actions.journal import Journal, event_types
from actions.loop.protocols import Notice
from fallow.settings import Settings, load
from runtime.operations.acting.live_actor import open_notifier
from runtime.service.delivery.outbox import Outbox, get_outbox_path
from runtime.service.delivery.sender import Deliveries
from tests.cli.conftest import Fallow
from tests.delivery.receivers import Hook, hooked, produce

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def cut(home: Path, _rows: list[tuple[str, str, str]]) -> None:
    """Remove the last row as somebody does who may write the file."""
    with closing(sqlite3.connect(home / "journal.sqlite")) as file, file:
        file.execute("DROP TRIGGER entry_is_never_deleted")
        file.execute("DELETE FROM entry WHERE seq = (SELECT max(seq) FROM entry)")


def rehash(home: Path, rows: list[tuple[str, str, str]]) -> None:
    """Write the journal again with another second row: every hash is right."""
    (home / "journal.sqlite").unlink()
    with Journal.open(home / "journal.sqlite", lambda: NOW) as journal:
        for number, (kind, key, actor) in enumerate(rows):
            document = {"until": NOW.isoformat()}
            journal.append(kind, key, document, actor="eve" if number == 1 else actor)


ROWS = [(event_types.SNOOZED, f"f{number}", "ann") for number in range(4)]


def configure(tmp_path: Path, hook: Hook) -> Settings:
    (tmp_path / "fallow.yaml").write_text(
        f"home: {tmp_path / 'home'}\ncluster: test\n"
        f"notices: {{channels: {{chat: {{url: '{hook.url}'}}}}, operators: [chat]}}\n"
        "reports: {schedules: [{name: weekly, audience: finance, cron: '0 7 * * 1',"
        " window: 7d, to: [chat]}]}\n"
    )
    settings = load(file=tmp_path / "fallow.yaml", environ={}).settings
    with Journal.open(settings.home / "journal.sqlite", lambda: NOW) as journal:
        for kind, key, actor in ROWS:
            journal.append(kind, key, {"until": NOW.isoformat()}, actor=actor)
    return settings


def send_notice(settings: Settings) -> None:
    with Journal.open(settings.home / "journal.sqlite", lambda: NOW) as journal:
        notice = Notice("x", "", "the breaker", operators=True)
        [proof] = open_notifier(settings, journal).tell([notice], NOW)
        assert proof.delivered == ("chat",)


def send_report(settings: Settings) -> None:
    with Outbox.open(get_outbox_path(settings)) as outbox:
        outbox.owe("weekly", NOW, ["chat"], NOW)
        Deliveries(settings, None, outbox, clock=lambda: NOW, produce=produce).turn()  # type: ignore[arg-type]


@pytest.mark.parametrize("send", [send_notice, send_report])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (cut, "the journal ends at row 3, before row 4"),
        (rehash, "row 4 is not the row that was written: its hash differs"),
    ],
)
def test_a_changed_journal_is_found_by_a_message_alone(
    fallow: Fallow,
    tmp_path: Path,
    send: Callable[[Settings], None],
    change: Callable[[Path, list[tuple[str, str, str]]], None],
    says: str,
) -> None:
    with hooked() as hook:
        settings = configure(tmp_path, hook)
        send(settings)
        [message] = hook.got
    last = str(message["message"]).rpartition("\n")[2]
    anchor = last.removeprefix("Journal: ")
    assert anchor.startswith("4:")
    words = ("actions", "--verify", "--anchor", anchor)
    ran = fallow(*words)
    assert (ran.code, "is as it was written" in ran.err) == (0, True), ran.err
    change(settings.home, ROWS)
    assert fallow("actions", "--verify").code == 0  # the chain alone shows nothing
    ran = fallow(*words)
    assert ran.code == 1
    assert says in ran.err


@pytest.mark.parametrize("text", ["4", "four:0123456789abcdef", "4:0123"])
def test_what_is_no_anchor_is_refused(fallow: Fallow, tmp_path: Path, text: str) -> None:
    with hooked() as hook:
        configure(tmp_path, hook)
    ran = fallow("actions", "--verify", "--anchor", text)
    assert ran.code == 2
    assert "legal: ROW:HASH" in ran.err

"""The warehouse's copy of the journal: each row once, and a witness of rows that were cut off."""

import sqlite3
from datetime import datetime
from pathlib import Path

from actions.journal import Journal
from actions.journal.warehouse_copy import copy_journal, read_copied_hashes
from fallow.settings import Settings
from warehouse.lake import Warehouse


def test_rows_are_copied_once_and_bear_witness(
    settings: Settings, now: datetime, tmp_path: Path
) -> None:
    path = tmp_path / "journal.sqlite"
    with (
        Journal.open(path, lambda: now, actor="ann") as journal,
        Warehouse.open(settings, write=True, clock=lambda: now) as lake,
    ):
        for number in range(4):
            journal.append("seen", f"f-{number}", {"number": number})
        assert copy_journal(journal, lake, "c") == 4
        assert copy_journal(journal, lake, "c") == 0
        journal.append("frozen", "fleet", {"why": "größer"})
        assert copy_journal(journal, lake, "c") == 1
        rows = lake.query("SELECT seq, kind, about, actor, document FROM action ORDER BY seq")
        assert rows.to_pylist()[4] == {
            "seq": 5,
            "kind": "frozen",
            "about": "fleet",
            "actor": "ann",
            "document": '{"why":"größer"}',
        }
        assert journal.verify(read_copied_hashes(lake, "c")) is None
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("DROP TRIGGER entry_is_never_deleted")
        connection.execute("DELETE FROM entry WHERE seq = 5")
        connection.close()
        assert journal.verify() is None
        broken = journal.verify(read_copied_hashes(lake, "c"))
    assert broken is not None
    assert broken.seq == 5

"""Journals of before 0.1.0 stay valid, and what they say was done can be undone.

`acted_at_bef8a1a.json` holds the journal that the code of commit bef8a1a wrote when it scaled a
Deployment of two replicas to zero, and the Deployment as it stood afterwards.
"""

import json
import sqlite3
from datetime import datetime
from pathlib import Path

from tests.actions.loop.site import Site

ACTED = json.loads(Path(__file__).with_name("acted_at_bef8a1a.json").read_text(encoding="utf-8"))


def test_an_action_of_an_older_version_is_undone(site: Site) -> None:
    site.deployment()
    assert site.get("Deployment", "web")["spec"]["replicas"] == 2
    site.journal().close()
    with sqlite3.connect(site.folder / "journal.sqlite") as database:
        marks = ", ".join("?" * 8)
        database.executemany(f"INSERT INTO entry VALUES ({marks})", ACTED["journal"])
    database.close()
    site.store.restore("Deployment", ACTED["object"])
    site.now = datetime.fromisoformat(ACTED["now"])
    site.settle()
    assert site.replicas() == 0

    actor = site.actor()
    (state,) = actor.record.catch_up().actions.values()
    assert actor.record.journal.verify() is None
    outcome = actor.undo(state.action.id, "ann")
    assert outcome.result == "undone", outcome
    assert site.replicas() == 2
    annotations = site.get("Deployment", "web")["metadata"].get("annotations") or {}
    assert not [name for name in annotations if name.startswith("fallow.dev/")]
    entries = [*actor.record.journal.entries()]
    assert [entry.hash for entry in entries[:7]] == [row[7] for row in ACTED["journal"]]

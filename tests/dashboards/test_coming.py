"""What an owner reads of an act: when it comes, and what it is while it is under way and after."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dashboards.figures import owner_workloads, policy_actions
from dashboards.figures.query import Filters
from fallow.settings import Settings
from fallow.tables import Batch
from tests.dashboards.drawing import stored
from warehouse.lake import Warehouse

TURN = datetime(2026, 11, 16, 4, tzinfo=UTC).replace(tzinfo=None)
BEFORE, AFTER = TURN - timedelta(seconds=1), TURN
INTENT = ("intent", {"action": {"id": "a", "decision": {"finding": "f", "verb": "stop"}}})
DONE = ("outcome", {"action": "a", "result": "done"})
UNDONE = ("reversed", {"action": "a", "by": "alice"})


@pytest.mark.parametrize(
    ("events", "at", "words", "in_plan"),
    [
        ([], AFTER, "stop, in the next turn", "does it"),
        ([INTENT], AFTER, "stop: under way", "under way"),
        ([INTENT, DONE], AFTER, "stop: done", "done"),
        ([INTENT, DONE, UNDONE], AFTER, "stop: undone", "undone"),
        # An action of an earlier turn is not the one that this plan allows.
        ([INTENT, DONE], BEFORE, "stop, in the next turn", "does it"),
    ],
)
def test_an_act_says_what_state_it_is_in(
    tmp_path: Path, events: list[tuple[str, dict[str, Any]]], at: datetime, words: str, in_plan: str
) -> None:
    plan = Batch.of(
        "plan",
        {
            "cluster": ["demo"],
            "ts": [TURN],
            "namespace": ["ns"],
            "workload_kind": ["Notebook"],
            "workload": ["nb"],
            "policy": ["nights"],
            "finding": ["f"],
            "verb": ["stop"],
            "step": ["act"],
            "ruling": ["allow"],
            "reasons": ["[]"],
            "owner": ["vision"],
            "acts": [True],
        },
    )
    journal = Batch.of(
        "action",
        {
            "cluster": ["demo"] * len(events),
            "seq": [*range(1, len(events) + 1)],
            "ts": [at] * len(events),
            "kind": [kind for kind, _ in events],
            "about": ["a"] * len(events),
            "actor": ["fallow"] * len(events),
            "document": [json.dumps(document) for _, document in events],
            "hash": [""] * len(events),
        },
    )
    with Warehouse.open_in_memory(Settings(home=tmp_path / "home")) as warehouse:
        stored(warehouse, plan, *([journal] if events else []))
        (planned,) = policy_actions.plan(warehouse, Filters()).to_pylist()
        (row,) = owner_workloads.read_coming(warehouse, Filters(), ("vision",)).to_pylist()
    assert (row["says"], planned["says"]) == (words, in_plan)

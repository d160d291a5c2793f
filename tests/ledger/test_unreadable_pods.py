"""A pod that cannot be read: what it has or may have is unknown, never free and never idle."""

import json
from collections import Counter
from typing import Any

import pytest

from fallow.protections import NAMESPACE, UNREADABLE
from warehouse.allocation import write_allocations
from warehouse.ledger import write_ledger


def pod(builders: Any, name: str, gpus: float | None, marks: dict[str, Any], **more: Any) -> Any:
    seen = {"first_seen": builders.at(0), "last_seen": builders.at(60)}
    names = {"cluster": "c", "uid": name, "namespace": f"ns-{name}", "pod": name, "node": "n"}
    own = {"gpu_request": gpus, "annotations": json.dumps(marks, separators=(",", ":"))}
    times = {"scheduled_at": builders.at(0), "phase": "Running"}
    return names | seen | own | times | more


def seconds(builders: Any, tables: Any) -> dict[str, float]:
    builders.hourly(tables)
    write_allocations(tables, builders.window(0, 60))
    write_ledger(tables, builders.window(0, 60))
    totals: Counter[str] = Counter()
    for row in tables.rows("ledger"):
        totals[f"{row['device']} {row['state']} {row['namespace']}"] += round(row["seconds"], 3)
    return dict(totals)


@pytest.mark.parametrize(
    ("gpus", "marks", "state"),
    [
        (None, {UNREADABLE: "x"}, "unknown"),
        (0.0, {UNREADABLE: "x"}, "free"),
        (None, {NAMESPACE: {UNREADABLE: "x"}}, "free"),
        (None, {"fallow.dev/keep": '"fallow.dev/unreadable":'}, "free"),
    ],
)
def test_a_device_that_an_unreadable_pod_may_have_is_not_free(
    builders: Any, tables: Any, gpus: float | None, marks: dict[str, Any], state: str
) -> None:
    tables.put("device", [builders.device("d1"), builders.device("d2", node="other")])
    tables.put("rollup_5m", [*builders.looks("d1", 0, 60), *builders.looks("d2", 0, 60)])
    tables.put("pod", [pod(builders, "evil", gpus, marks)])
    assert seconds(builders, tables) == {f"d1 {state} ": 3600, "d2 free ": 3600}


def test_only_the_time_of_the_pod_is_unknown(builders: Any, tables: Any) -> None:
    tables.put("device", [builders.device("d1")])
    tables.put("rollup_5m", builders.looks("d1", 0, 60))
    ended = pod(builders, "evil", None, {UNREADABLE: "x"}, finished_at=builders.at(15))
    tables.put("pod", [ended])
    assert seconds(builders, tables) == {"d1 unknown ": 900, "d1 free ": 2700}


def test_time_of_an_unreadable_pod_is_its_own_and_unknown(builders: Any, tables: Any) -> None:
    """Telemetry names both pods; the one that can be read is idle."""
    tables.put("device", [builders.device("d1"), builders.device("d2")])
    named = [*builders.looks("d1", 0, 60, "evil"), *builders.looks("d2", 0, 60, "good")]
    tables.put("rollup_5m", named)
    tables.put("pod", [pod(builders, "evil", 1, {UNREADABLE: "x"}), pod(builders, "good", 1, {})])
    assert seconds(builders, tables) == {
        "d1 unknown ns-evil": 3600,
        "d2 startup ns-good": 900,
        "d2 idle ns-good": 2700,
    }


@pytest.mark.parametrize(("listed", "unknown"), [(-30, 3600), (20, 1800), (49, 0), (60, 0)])
def test_the_name_of_an_ended_pod_is_unknown_once_the_inventory_is_old(
    builders: Any, tables: Any, listed: float, unknown: float
) -> None:
    """It is known for ten minutes after the last list that no other pod of the name lives."""
    tables.put("device", [builders.device("d1")])
    tables.put("rollup_5m", builders.looks("d1", 0, 60, "p"))
    ended = {"scheduled_at": builders.at(-900), "finished_at": builders.at(-600)}
    times = {"first_seen": builders.at(-900), "last_seen": builders.at(listed)}
    tables.put("pod", [pod(builders, "p", 1, {}, **ended, **times)])
    expected = {"d1 unknown ": unknown, "d1 free ": 3600 - unknown}
    assert seconds(builders, tables) == {key: value for key, value in expected.items() if value}

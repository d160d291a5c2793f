"""A device that only another node's exporter shows is where the inventory has it, and its pod's."""

import json
from collections import Counter
from typing import Any

import pytest

from warehouse.allocation import write_allocations
from warehouse.ledger import write_ledger


def pod(builders: Any, name: str, node: str, *devices: str, **claim: object) -> dict[str, Any]:
    base = {"cluster": "c", "uid": f"u-{name}", "namespace": f"ns-{name}", "pod": name}
    named = [{"device": device, "source": "hami", **claim} for device in devices]
    times = {"scheduled_at": builders.at(0), "last_seen": builders.at(60)}
    claims = {"devices": json.dumps(named)} if devices else {}
    return base | times | claims | {"node": node, "gpu_request": 2.0}


@pytest.fixture
def fleet(builders: Any, tables: Any) -> Any:
    """Put two nodes with two GPUs each; the exporter of b shows one of those of a's pod."""
    for node, *shown in (("a", "GPU-1"), ("b", "GPU-0", "GPU-2", "GPU-3")):
        name = {"a": "train", "b": "thief"}[node]
        seen = {"first_seen": builders.at(0), "last_seen": builders.at(60)}
        tables.put("node", [{"cluster": "c", "node": node, "gpu_count": 2, **seen}])
        tables.put("device", [builders.device(device, node=node) for device in shown])
        rows = [row | {"node": node} for d in shown for row in builders.looks(d, 0, 60, name)]
        tables.put("rollup_5m", rows)
    tables.put("pod", [pod(builders, "thief", "b")])
    return tables


def account(
    builders: Any, tables: Any, minutes: int = 60
) -> tuple[dict[tuple[str, str, str], float], set[str]]:
    """Return the hours by device, node and namespace, and the pods that are refused a device."""
    builders.hourly(tables)
    write_allocations(tables, builders.window(0, minutes))
    write_ledger(tables, builders.window(0, minutes))
    hours: Counter[tuple[str, str, str]] = Counter()
    for row in tables.rows("ledger"):
        hours[row["device"], row["node"], row["namespace"]] += row["seconds"] / 3600
    return dict(hours), {row["name"] for row in tables.rows("rejection")}


def test_it_is_held_by_the_pod_to_which_the_inventory_gives_it(builders: Any, fleet: Any) -> None:
    fleet.put("pod", [pod(builders, "train", "a", "GPU-0", "GPU-1")])
    hours, refused = account(builders, fleet)
    assert hours == {
        ("GPU-0", "a", "ns-train"): 1,
        ("GPU-1", "a", "ns-train"): 1,
        ("GPU-2", "b", "ns-thief"): 1,
        ("GPU-3", "b", "ns-thief"): 1,
    }
    assert refused == {"thief"}


def test_an_annotation_that_no_register_supports_moves_no_device(builders: Any, fleet: Any) -> None:
    fleet.put("pod", [pod(builders, "train", "a", "GPU-0", "GPU-1", estimated=True)])
    hours, refused = account(builders, fleet)
    assert hours["GPU-0", "b", "ns-thief"] == 1
    assert refused == {"train"}


def test_a_device_that_was_moved_is_where_its_pod_was(builders: Any, tables: Any) -> None:
    seen = {"cluster": "c", "first_seen": builders.at(0), "last_seen": builders.at(60)}
    tables.put("node", [{"node": node, "gpu_count": 1, **seen} for node in "ab"])
    tables.put("device", [builders.device("GPU-0", node="b")])
    tables.put("rollup_5m", [row | {"node": "a"} for row in builders.looks("GPU-0", 0, 60, "t")])
    tables.put("pod", [pod(builders, "t", "a")])
    hours, _ = account(builders, tables)
    assert hours["GPU-0", "a", "ns-t"] == 1
    assert sum(hours.values()) == 2, "each node has its GPU once"


@pytest.mark.parametrize(("left_at", "paid"), [(90, 2), (120, 2.5)])
def test_a_card_that_moves_within_an_hour_is_on_each_node_in_its_time(
    builders: Any, tables: Any, left_at: float, paid: float
) -> None:
    """The node that it left lacks a GPU from then on, as long as it lives."""
    lives = {"a": (0, left_at), "b": (90, 120)}
    for node, (start, end) in lives.items():
        seen = {"first_seen": builders.at(start), "last_seen": builders.at(end)}
        tables.put("node", [{"cluster": "c", "node": node, "gpu_count": 1, **seen}])
    rows = builders.looks("GPU-0", 0, 120)
    tables.put("device", [builders.device("GPU-0", node="b", end=120)])
    tables.put("rollup_5m", rows)
    eras = [("a", builders.at(0), builders.at(90)), ("b", builders.at(90), None)]
    tables.put(
        "attribute_era",
        [
            {"cluster": "c", "kind": "device.node", "id": "GPU-0", "value": node}
            | {"valid_from": start, "valid_to": end, "first_seen": start, "last_seen": end}
            for node, start, end in eras
        ],
    )
    hours, _ = account(builders, tables, 120)
    assert sum(hours.values()) == paid
    assert hours["GPU-0", "a", ""] == 1
    assert hours["GPU-0", "b", ""] == 1, "an hour has one node, that of its middle"
    assert hours.get(("a/untracked0", "a", ""), 0) == paid - 2

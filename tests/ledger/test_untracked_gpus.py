"""GPUs that the inventory has and telemetry does not: exact seconds per node."""

from collections import Counter
from typing import Any

import pytest

from warehouse.allocation import write_allocations
from warehouse.ledger import write_ledger


def node(kit: Any, name: str, gpus: int, start: float = 0, end: float = 60, **more: Any) -> Any:
    seen = {"first_seen": kit.at(start), "last_seen": kit.at(end)}
    return {"cluster": "c", "node": name, "gpu_count": gpus, **seen, **more}


def seconds(kit: Any, tables: Any, minutes: int = 60) -> dict[str, float]:
    """Return the seconds of each device that telemetry does not have, by its name and state."""
    kit.hourly(tables)
    write_allocations(tables, kit.window(0, minutes))
    write_ledger(tables, kit.window(0, minutes))
    found: Counter[str] = Counter()
    for row in tables.rows("ledger"):
        if "untracked" in row["device"]:
            found[f"{row['device']} {row['state']}"] += round(row["seconds"], 3)
    return dict(found)


def track(kit: Any, tables: Any, devices: dict[str, str], start: int = 0, end: int = 60) -> None:
    """Let devices report, each from its node."""
    tables.put(
        "device",
        [
            kit.device(d, end, node=n, first_seen=kit.at(start))
            for d, n in devices.items()
        ],
    )  # fmt: skip
    tables.put("rollup_5m", [r for d in devices for r in kit.looks(d, start, end)])


def test_devices_of_unresolved_nodes_stand_for_those_of_silent_nodes_only(
    kit: Any, tables: Any
) -> None:
    """Node a reports and lacks one; b and e are silent; d2 reports from an address."""
    track(kit, tables, {"d1": "a", "d2": "10.0.0.9"})
    tables.put("node", [node(kit, "a", 2), node(kit, "b", 2), node(kit, "e", 1)])
    assert seconds(kit, tables) == {
        "a/untracked0 unknown": 3600,
        "b/untracked0 unknown": 3600,
        "e/untracked0 unknown": 3600,
    }


def test_unresolved_devices_fill_silent_nodes_in_the_order_of_their_names(
    kit: Any, tables: Any
) -> None:
    track(kit, tables, {f"d{n}": "10.0.0.9" for n in range(3)})
    tables.put("node", [node(kit, "b", 2), node(kit, "e", 2)])
    assert seconds(kit, tables) == {"e/untracked0 unknown": 3600}


def test_more_unresolved_devices_than_gpus_leave_nothing_missing(kit: Any, tables: Any) -> None:
    track(kit, tables, {f"d{n}": "10.0.0.9" for n in range(5)})
    tables.put("node", [node(kit, "b", 2), node(kit, "e", 2)])
    assert seconds(kit, tables) == {}


def test_what_the_kubelet_cannot_allocate_is_unavailable(kit: Any, tables: Any) -> None:
    tables.put("device", [kit.device("d", node="a")])
    tables.put("rollup_5m", kit.looks("d", 0, 60))
    tables.put("node", [node(kit, "a", 4, gpu_allocatable=3), node(kit, "b", 1, gpu_allocatable=2)])
    assert seconds(kit, tables) == {
        "a/untracked0 unavailable": 3600,
        "a/untracked1 unknown": 3600,
        "a/untracked2 unknown": 3600,
        "b/untracked0 unknown": 3600,
    }


@pytest.mark.parametrize(("start", "missing"), [(5, 0), (10, 600)])
def test_five_minutes_less_than_the_node_is_the_whole_bucket(
    kit: Any, tables: Any, start: int, missing: float
) -> None:
    track(kit, tables, {"d": "a", "other": "z"}, 0, 60)
    track(kit, tables, {"late": "a"}, start, 60)
    tables.put("node", [node(kit, "a", 2), node(kit, "z", 1)])
    expected = {"a/untracked0 unknown": missing} if missing else {}
    assert seconds(kit, tables) == expected


def test_a_node_has_its_gpus_while_it_is_there(kit: Any, tables: Any) -> None:
    track(kit, tables, {"d": "z"})
    tables.put(
        "node",
        [
            node(kit, "a", 1, 15, 45),
            node(kit, "b", 0),
            node(kit, "e", 1, 60, 90),
            node(kit, "z", 1),
        ],
    )
    assert seconds(kit, tables) == {"a/untracked0 unknown": 1800}


def test_before_a_cluster_s_first_sample_nothing_is_known_of_its_nodes(
    kit: Any, tables: Any
) -> None:
    track(kit, tables, {"d": "z"}, 30, 60)
    tables.put("node", [node(kit, "a", 1), node(kit, "z", 1)])
    assert seconds(kit, tables) == {"a/untracked0 unknown": 1800}


@pytest.mark.parametrize(("start", "missing"), [(60.009, 1.08), (60.008, 0)])
def test_five_minutes_are_tolerated_only_where_the_node_comes_or_goes(
    kit: Any, tables: Any, start: float, missing: float
) -> None:
    """Its two GPUs report from a half second after the second hour began; a second is nothing."""
    late = [kit.device(d, 120, node="a", first_seen=kit.at(start)) for d in ("d1", "d2")]
    tables.put("device", [*late, kit.device("first", 120, node="z")])
    tables.put("rollup_5m", [r for d in ("d1", "d2") for r in kit.looks(d, 60, 120)])
    tables.put("node", [node(kit, "a", 2, 0, 180), node(kit, "z", 1, 0, 180)])
    assert seconds(kit, tables, 120) == {
        "a/untracked0 unknown": pytest.approx(3600 + missing),
        "a/untracked1 unknown": 3600,
    }


def test_a_gpu_without_telemetry_is_one_gpu(kit: Any, tables: Any) -> None:
    track(kit, tables, {"d1": "a"})
    tables.put("node", [node(kit, "a", 2)])
    assert seconds(kit, tables) == {"a/untracked0 unknown": 3600}
    assert {row["gpu_seconds"] for row in tables.rows("ledger")} == {3600}

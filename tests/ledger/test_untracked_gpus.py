"""GPUs that the inventory has and telemetry does not: exact seconds per node."""

from collections import Counter
from typing import Any

import pytest

from warehouse.allocation import write_allocations
from warehouse.ledger import write_ledger


def node(
    builders: Any, name: str, gpus: int, start: float = 0, end: float = 60, **more: Any
) -> Any:
    seen = {"first_seen": builders.at(start), "last_seen": builders.at(end)}
    return {"cluster": "c", "node": name, "gpu_count": gpus, **seen, **more}


def seconds(builders: Any, tables: Any, minutes: int = 60) -> dict[str, float]:
    """Return the seconds of each device that telemetry does not have, by its name and state."""
    builders.hourly(tables)
    write_allocations(tables, builders.window(0, minutes))
    write_ledger(tables, builders.window(0, minutes))
    found: Counter[str] = Counter()
    for row in tables.rows("ledger"):
        if "untracked" in row["device"]:
            found[f"{row['device']} {row['state']}"] += round(row["seconds"], 3)
    return dict(found)


def track(
    builders: Any, tables: Any, devices: dict[str, str], start: int = 0, end: int = 60
) -> None:
    """Let devices report, each from its node."""
    tables.put(
        "device",
        [
            builders.device(d, end, node=n, first_seen=builders.at(start))
            for d, n in devices.items()
        ],
    )  # fmt: skip
    tables.put("rollup_5m", [r for d in devices for r in builders.looks(d, start, end)])


def test_devices_of_unresolved_nodes_stand_for_those_of_silent_nodes_only(
    builders: Any, tables: Any
) -> None:
    """Node a reports and lacks one; b and e are silent; d2 reports from an address."""
    track(builders, tables, {"d1": "a", "d2": "10.0.0.9"})
    tables.put("node", [node(builders, "a", 2), node(builders, "b", 2), node(builders, "e", 1)])
    assert seconds(builders, tables) == {
        "a/untracked0 unknown": 3600,
        "b/untracked0 unknown": 3600,
        "e/untracked0 unknown": 3600,
    }


def test_unresolved_devices_fill_silent_nodes_in_the_order_of_their_names(
    builders: Any, tables: Any
) -> None:
    track(builders, tables, {f"d{n}": "10.0.0.9" for n in range(3)})
    tables.put("node", [node(builders, "b", 2), node(builders, "e", 2)])
    assert seconds(builders, tables) == {"e/untracked0 unknown": 3600}


def test_more_unresolved_devices_than_gpus_leave_nothing_missing(
    builders: Any, tables: Any
) -> None:
    track(builders, tables, {f"d{n}": "10.0.0.9" for n in range(5)})
    tables.put("node", [node(builders, "b", 2), node(builders, "e", 2)])
    assert seconds(builders, tables) == {}


def test_what_the_kubelet_cannot_allocate_is_unavailable(builders: Any, tables: Any) -> None:
    tables.put("device", [builders.device("d", node="a")])
    tables.put("rollup_5m", builders.looks("d", 0, 60))
    tables.put(
        "node",
        [node(builders, "a", 4, gpu_allocatable=3), node(builders, "b", 1, gpu_allocatable=2)],
    )
    assert seconds(builders, tables) == {
        "a/untracked0 unavailable": 3600,
        "a/untracked1 unknown": 3600,
        "a/untracked2 unknown": 3600,
        "b/untracked0 unknown": 3600,
    }


@pytest.mark.parametrize(("start", "missing"), [(5, 0), (10, 600)])
def test_five_minutes_less_than_the_node_is_the_whole_bucket(
    builders: Any, tables: Any, start: int, missing: float
) -> None:
    track(builders, tables, {"d": "a", "other": "z"}, 0, 60)
    track(builders, tables, {"late": "a"}, start, 60)
    tables.put("node", [node(builders, "a", 2), node(builders, "z", 1)])
    expected = {"a/untracked0 unknown": missing} if missing else {}
    assert seconds(builders, tables) == expected


def test_a_node_has_its_gpus_while_it_is_there(builders: Any, tables: Any) -> None:
    track(builders, tables, {"d": "z"})
    tables.put(
        "node",
        [
            node(builders, "a", 1, 15, 45),
            node(builders, "b", 0),
            node(builders, "e", 1, 60, 90),
            node(builders, "z", 1),
        ],
    )
    assert seconds(builders, tables) == {"a/untracked0 unknown": 1800}


def test_before_a_cluster_s_first_sample_nothing_is_known_of_its_nodes(
    builders: Any, tables: Any
) -> None:
    track(builders, tables, {"d": "z"}, 30, 60)
    tables.put("node", [node(builders, "a", 1), node(builders, "z", 1)])
    assert seconds(builders, tables) == {"a/untracked0 unknown": 1800}


@pytest.mark.parametrize(("start", "missing"), [(60.009, 1.08), (60.008, 0)])
def test_five_minutes_are_tolerated_only_where_the_node_comes_or_goes(
    builders: Any, tables: Any, start: float, missing: float
) -> None:
    """Its two GPUs report from a half second after the second hour began; a second is nothing."""
    late = [builders.device(d, 120, node="a", first_seen=builders.at(start)) for d in ("d1", "d2")]
    tables.put("device", [*late, builders.device("first", 120, node="z")])
    tables.put("rollup_5m", [r for d in ("d1", "d2") for r in builders.looks(d, 60, 120)])
    tables.put("node", [node(builders, "a", 2, 0, 180), node(builders, "z", 1, 0, 180)])
    assert seconds(builders, tables, 120) == {
        "a/untracked0 unknown": pytest.approx(3600 + missing),
        "a/untracked1 unknown": 3600,
    }


def test_a_gpu_without_telemetry_is_one_gpu(builders: Any, tables: Any) -> None:
    track(builders, tables, {"d1": "a"})
    tables.put("node", [node(builders, "a", 2)])
    assert seconds(builders, tables) == {"a/untracked0 unknown": 3600}
    assert {row["gpu_seconds"] for row in tables.rows("ledger")} == {3600}

"""Seconds and cents of devices with several holders, by hand."""

from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest

from warehouse.ledger import write_ledger


def allocation(
    builders: Any, name: str, start: float = 0, end: float = 60, device: str = "d", **more: Any
) -> dict[str, Any]:
    base = {
        "cluster": "c", "device": device, "pod_uid": f"u-{name}", "start": builders.at(start),
        "end": builders.at(end), "namespace": f"ns-{name}", "pod": name, "workload_kind": "Job",
        "workload": name, "share": 1.0, "attribution": "exact", "rule": "test",
    }  # fmt: skip
    return base | more


def seconds(builders: Any, tables: Any) -> dict[tuple[str, str, str], float]:
    """Return the seconds of the first hour by device, state and workload."""
    builders.hourly(tables)
    write_ledger(tables, builders.window(0, 60))
    return {
        (row["device"], row["state"], row["workload"]): round(row["seconds"], 3)
        for row in tables.rows("ledger")
    }


def test_a_device_that_only_an_allocation_names_is_capacity_beside_known_devices(
    builders: Any, tables: Any
) -> None:
    tables.put("device", [builders.device("d"), builders.device("x", cluster="other")])
    tables.put("allocation", [allocation(builders, "p", device="x")])
    tables.put("rollup_5m", builders.looks("d", 0, 60))
    assert seconds(builders, tables) == {
        ("d", "free", ""): 3600,
        ("x", "unknown", "p"): 3600,
        ("x", "unknown", ""): 3600,  # the one of the other cluster
    }


def test_such_a_device_is_capacity_from_its_first_holder_to_its_last(
    builders: Any, tables: Any
) -> None:
    tables.put("device", [builders.device("d")])
    held = [
        allocation(builders, "p", 10, 20, device="x"),
        allocation(builders, "q", 40, 50, device="x"),
    ]
    tables.put("allocation", held)
    found = {key: s for key, s in seconds(builders, tables).items() if key[0] == "x"}
    assert found == {
        ("x", "unknown", "p"): 600, ("x", "unknown", ""): 1200, ("x", "unknown", "q"): 600
    }  # fmt: skip


def test_such_a_device_is_on_the_node_of_its_pod_since_the_node_is_known(
    builders: Any, tables: Any
) -> None:
    """Other nodes of the cluster, and nodes of that name in others, say nothing of it."""
    held = allocation(builders, "p", 30, 45, device="x")
    tables.put("allocation", [held])
    tables.put("pod", [{"cluster": "c", "uid": "u-p", "node": "n1"}])
    nodes = {("c", "n1"): (30, 50), ("c", "n2"): (0, 60), ("b", "n1"): (0, 60)}
    tables.put(
        "node",
        [
            {"cluster": cluster, "node": node, "gpu_count": 0, "first_seen": builders.at(first),
             "last_seen": builders.at(last)}
            for (cluster, node), (first, last) in nodes.items()
        ],
    )  # fmt: skip
    assert seconds(builders, tables) == {("x", "unknown", "p"): 900, ("x", "unknown", ""): 300}


def test_pods_of_one_name_in_two_namespaces_have_their_own_samples(
    builders: Any, tables: Any
) -> None:
    tables.put("device", [builders.device("d")])
    names: dict[str, Any] = {"pod": "web", "share": 0.5, "attribution": "estimated"}
    tables.put("allocation", [allocation(builders, name, **names) for name in ("a", "b")])
    rows = builders.looks("d", 0, 60, "a", low_s=300.0) + builders.looks(
        "d", 0, 60, "b", busy_s=300.0
    )
    tables.put("rollup_5m", [row | {"pod": "web"} for row in rows])
    assert seconds(builders, tables) == {("d", "low", "a"): 1800, ("d", "productive", "b"): 1800}


def test_pods_of_one_namespace_have_their_own_samples(builders: Any, tables: Any) -> None:
    tables.put("device", [builders.device("d")])
    names: dict[str, Any] = {"namespace": "ns", "share": 0.5, "attribution": "estimated"}
    tables.put("allocation", [allocation(builders, name, **names) for name in ("a", "b")])
    rows = builders.looks("d", 0, 60, "a", low_s=300.0) + builders.looks(
        "d", 0, 60, "b", busy_s=300.0
    )
    tables.put("rollup_5m", [row | {"namespace": "ns"} for row in rows])
    assert seconds(builders, tables) == {("d", "low", "a"): 1800, ("d", "productive", "b"): 1800}


def test_what_a_part_of_a_device_leaves_is_free_as_long_as_samples_are_valid(
    builders: Any, tables: Any
) -> None:
    """Half a device is held for an hour, and its samples are valid for a quarter of it."""
    tables.put("device", [builders.device("d")])
    tables.put("allocation", [allocation(builders, "p", share=0.5)])
    tables.put("rollup_5m", builders.looks("d", 0, 15, "p", busy_s=300.0))
    assert seconds(builders, tables) == {
        ("d", "productive", "p"): 450,
        ("d", "unknown", "p"): 1350,
        ("d", "free", ""): 450,
        ("d", "unknown", ""): 1350,
    }


def test_a_startup_ends_within_a_cell(builders: Any, tables: Any) -> None:
    """A pod is scheduled at minute seven and stays idle: it starts for fifteen minutes."""
    tables.put("device", [builders.device("d")])
    tables.put("allocation", [allocation(builders, "p", 7)])
    tables.put("pod", [{"cluster": "c", "uid": "u-p", "node": "n", "scheduled_at": builders.at(7)}])
    tables.put("rollup_5m", builders.looks("d", 0, 60))
    assert seconds(builders, tables) == {
        ("d", "free", ""): 420,
        ("d", "startup", "p"): 900,
        ("d", "idle", "p"): 2280,
    }


def test_a_startup_ends_with_the_first_activity(builders: Any, tables: Any) -> None:
    tables.put("device", [builders.device("d")])
    tables.put("allocation", [allocation(builders, "p")])
    tables.put("pod", [{"cluster": "c", "uid": "u-p", "node": "n", "scheduled_at": builders.at(0)}])
    busy = builders.looks("d", 5, 10, busy_s=300.0)
    tables.put("rollup_5m", [*builders.looks("d", 0, 5), *busy, *builders.looks("d", 10, 60)])
    assert seconds(builders, tables) == {
        ("d", "startup", "p"): 300,
        ("d", "productive", "p"): 300,
        ("d", "idle", "p"): 3000,
    }


@pytest.mark.parametrize("usd", ["0.12345679", "1.00000001"])
def test_the_dollars_of_an_hour_with_many_holders_are_its_price_to_the_last_digit(
    builders: Any, tables: Any, usd: str
) -> None:
    ends = (0, 7.01, 13.13, 22.7, 31.4, 44.4, 52.9, 60)
    tables.put("device", [builders.device("d")])
    tables.put(
        "allocation",
        [
            allocation(builders, f"p{n}", begin, end)
            for n, (begin, end) in enumerate(pairwise(ends))
        ],
    )
    tables.put("rate", [builders.flat_rate(usd)])
    tables.put("rollup_5m", builders.looks("d", 0, 60, idle_s=101.0, busy_s=66.0))
    builders.hourly(tables)
    write_ledger(tables, builders.window(0, 60))
    rows = tables.rows("ledger")
    assert len(rows) > 14
    assert sum(row["usd"] for row in rows) == Decimal(usd)


def test_a_gpu_is_in_mig_mode_from_its_first_instance_to_its_last(
    builders: Any, tables: Any
) -> None:
    half = {"parent": "g", "weight": 0.5}
    tables.put(
        "device",
        [
            builders.device("g/1", 30, **half),
            builders.device("g/2", first_seen=builders.at(10), **half),
        ],
    )
    tables.put("rollup_5m", [*builders.looks("g/1", 0, 30), *builders.looks("g/2", 10, 60)])
    stranded = {
        key: value for key, value in seconds(builders, tables).items() if key[1] == "stranded"
    }
    assert stranded == {("g/unpartitioned", "stranded", ""): 3600}


def test_the_place_of_a_gpu_that_was_lost_is_untracked_after_it_alone(
    builders: Any, tables: Any
) -> None:
    """Node a has two GPUs; d2 is lost after half an hour, and p holds its place from minute 40."""
    life = {"first_seen": builders.at(0), "last_seen": builders.at(60)}
    tables.put("node", [{"cluster": "c", "node": "a", "gpu_count": 2, **life}])
    tables.put("device", [builders.device("d1", 60, node="a"), builders.device("d2", 30, node="a")])
    rows = [r for d, end in (("d1", 60), ("d2", 30)) for r in builders.looks(d, 0, end)]
    tables.put("rollup_5m", rows)
    named = {"cluster": "c", "uid": "u-p", "namespace": "ns-p", "pod": "p", "node": "a"}
    tables.put("pod", [{**named, **life}])
    tables.put("allocation", [allocation(builders, "p", 40, 60, device="a/untracked1")])
    assert seconds(builders, tables) == {
        ("d1", "free", ""): 3600,
        ("d2", "free", ""): 1800,
        ("a/untracked1", "unknown", ""): 600,
        ("a/untracked1", "unknown", "p"): 1200,
    }

"""What the ledger calls the seconds of a device."""

from typing import Any

import pytest

from warehouse.allocation import write_allocations
from warehouse.ledger import write_ledger


def states(builders: Any, tables: Any, minutes: int = 60) -> dict[tuple[str, str], float]:
    builders.hourly(tables)
    write_allocations(tables, builders.window(0, minutes))
    write_ledger(tables, builders.window(0, minutes))
    found: dict[tuple[str, str], float] = {}
    for row in tables.rows("ledger"):
        key = (row["state"], row["workload"])
        found[key] = found.get(key, 0) + round(row["seconds"], 3)
    return found


def pod(
    builders: Any, name: str, start: float | None, end: float | None = None, **more: Any
) -> Any:
    return {
        "cluster": "c",
        "uid": f"u-{name}",
        "namespace": f"ns-{name}",
        "pod": name,
        "node": "n",
        "workload_kind": "Job",
        "workload": f"job-{name}",
        "scheduled_at": None if start is None else builders.at(start),
        "finished_at": None if end is None else builders.at(end),
        "last_seen": builders.at(60),
        **more,
    }


def test_an_owner_is_idle_low_or_productive(builders: Any, tables: Any) -> None:
    tables.put("device", [builders.device("d")])
    mixed = {"idle_s": 100.0, "low_s": 50.0, "busy_s": 150.0}
    tables.put("rollup_5m", builders.looks("d", 0, 60, "p", **mixed))
    assert states(builders, tables) == {
        ("idle", "p"): 100,
        ("low", "p"): 1700,
        ("productive", "p"): 1800,
    }, "zeros among active readings are low; the first row may be a startup"


def test_nobody_and_looked_at_is_free_and_nobody_looked_is_unknown(
    builders: Any, tables: Any
) -> None:
    tables.put("device", [builders.device("d")])
    tables.put("rollup_5m", builders.looks("d", 0, 30))
    assert states(builders, tables) == {("free", ""): 1800, ("unknown", ""): 1800}


def test_activity_that_no_owner_explains_is_neither_idle_nor_free(
    builders: Any, tables: Any
) -> None:
    tables.put("device", [builders.device("d")])
    tables.put("rollup_5m", builders.looks("d", 0, 60, busy_s=300.0))
    assert states(builders, tables) == {("productive", ""): 3600}


@pytest.mark.parametrize("state", ["conflict_s", "blind_s"])
def test_contradiction_and_blindness_are_unknown(builders: Any, tables: Any, state: str) -> None:
    tables.put("device", [builders.device("d")])
    tables.put("rollup_5m", builders.looks("d", 0, 60, "p", **{state: 300.0}))
    assert states(builders, tables) == {("unknown", "p"): 3600}


def test_a_pod_starts_up_until_its_first_work_at_most_a_quarter_hour(
    builders: Any, tables: Any
) -> None:
    tables.put("device", [builders.device("d")])
    tables.put("pod", [pod(builders, "p", 10)])
    tables.put(
        "rollup_5m",
        [
            *builders.looks("d", 0, 10),
            *builders.looks("d", 10, 40, "p"),
            *builders.looks("d", 40, 60, "p", busy_s=300.0),
        ],
    )
    assert states(builders, tables) == {
        ("free", ""): 600,
        ("startup", "job-p"): 900,
        ("idle", "job-p"): 900,
        ("productive", "job-p"): 1200,
    }


def test_idle_after_first_work_is_no_startup(builders: Any, tables: Any) -> None:
    tables.put("device", [builders.device("d")])
    tables.put("pod", [pod(builders, "p", 0)])
    tables.put(
        "rollup_5m",
        [*builders.looks("d", 0, 5, "p", busy_s=300.0), *builders.looks("d", 5, 60, "p")],
    )
    assert states(builders, tables) == {("productive", "job-p"): 300, ("idle", "job-p"): 3300}


def test_a_cordoned_node_without_pods_is_unavailable(builders: Any, tables: Any) -> None:
    tables.put("device", [builders.device("d")])
    seen = {"first_seen": builders.at(0), "last_seen": builders.at(60 - 1)}
    tables.put("node", [{"cluster": "c", "node": "n", "unschedulable": True, **seen}])
    tables.put("rollup_5m", builders.looks("d", 0, 60))
    assert states(builders, tables) == {("unavailable", ""): 3600}


def test_slices_that_no_instance_covers_are_stranded(builders: Any, tables: Any) -> None:
    instance = {"parent": "G", "weight": 3 / 7}
    tables.put("device", [builders.device("G"), builders.device("G/gi1", **instance)])
    tables.put("rollup_5m", builders.looks("G/gi1", 0, 60, "p"))
    found = states(builders, tables)
    assert found == {("idle", "p"): 3600, ("stranded", ""): 3600}
    gpus = {r["device"]: r["gpu_seconds"] for r in tables.rows("ledger")}
    assert gpus == pytest.approx({"G/gi1": 3600 * 3 / 7, "G/unpartitioned": 3600 * 4 / 7})


def test_a_gpu_that_becomes_instances_is_counted_once(builders: Any, tables: Any) -> None:
    tables.put(
        "device",
        [
            builders.device("G", 180),
            *(
                builders.device(
                    f"G/gi{n}", 120, parent="G", weight=3 / 7, first_seen=builders.at(60)
                )
                for n in (1, 2)
            ),
        ],
    )
    tables.put(
        "rollup_5m",
        [
            *builders.looks("G", 0, 60, "p"),
            *builders.looks("G/gi1", 60, 120, "q"),
            *builders.looks("G/gi2", 60, 120),
            *builders.looks("G", 120, 180, "r"),
        ],
    )
    assert states(builders, tables, 180) == {
        ("idle", "p"): 3600,
        ("idle", "q"): 3600,
        ("free", ""): 3600,
        ("stranded", ""): 3600,
        ("startup", "r"): 900,
        ("idle", "r"): 2700,
    }
    hours = tables.query(
        "SELECT bucket, sum(gpu_seconds) AS s FROM ledger GROUP BY ALL"
    ).to_pylist()
    assert [h["s"] for h in hours] == pytest.approx([3600] * 3)


def test_gpus_that_only_the_inventory_knows_are_unknown(builders: Any, tables: Any) -> None:
    tables.put("device", [builders.device("d")])
    seen = {"first_seen": builders.at(0), "last_seen": builders.at(60)}
    tables.put("node", [{"cluster": "c", "node": "n", "gpu_count": 3, **seen}])
    tables.put("rollup_5m", builders.looks("d", 0, 60))
    assert states(builders, tables) == {("free", ""): 3600, ("unknown", ""): 7200}
    devices = {r["device"] for r in tables.rows("ledger")}
    assert devices == {"d", "n/untracked0", "n/untracked1"}


def test_a_fraction_leaves_the_rest_of_its_device_free(builders: Any, tables: Any) -> None:
    tables.put("device", [builders.device("d")])
    tables.put("pod", [pod(builders, "p", -60, gpu_core_request_pct=25.0)])
    tables.put("rollup_5m", builders.looks("d", 0, 60, "p", busy_s=300.0))
    assert states(builders, tables) == {("productive", "job-p"): 900, ("free", ""): 2700}


def test_pods_that_share_by_time_split_the_device(builders: Any, tables: Any) -> None:
    tables.put("device", [builders.device("d")])
    tables.put(
        "holding",
        [
            {"cluster": "c", "device": "d", "ts": builders.at(m), "namespace": f"ns-{p}", "pod": p}
            for p in "pq"
            for m in (0, 59.375)
        ],
    )
    tables.put("rollup_5m", builders.looks("d", 0, 60, busy_s=300.0))
    assert states(builders, tables) == {("productive", "p"): 1800, ("productive", "q"): 1800}
    assert {r["attribution"] for r in tables.rows("allocation")} == {"estimated"}


def test_posting_again_and_after_late_rows(builders: Any, tables: Any) -> None:
    tables.put("device", [builders.device("d")])
    tables.put("rollup_5m", builders.looks("d", 0, 30, "p"))
    first = states(builders, tables)
    before = tables.rows("ledger")
    write_ledger(tables, builders.window(0, 60))
    assert tables.rows("ledger") == before
    assert first[("unknown", "")] == 1800
    tables.put("rollup_5m", builders.looks("d", 30, 60, "p", busy_s=300.0))
    tables.query("DELETE FROM rollup_1h")
    assert states(builders, tables) == {("idle", "p"): 1800, ("productive", "p"): 1800}

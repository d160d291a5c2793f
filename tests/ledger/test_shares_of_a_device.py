"""What share of a device each pod is charged for."""

from collections.abc import Iterable
from typing import Any

import pytest

from collectors.inventory import derive_pod_uid
from warehouse.allocation import write_allocations
from warehouse.ledger import write_ledger


def pod(builders: Any, name: str, **more: Any) -> dict[str, Any]:
    base = {"cluster": "c", "uid": f"u-{name}", "namespace": f"ns-{name}", "pod": name, "node": "n"}
    return base | {"scheduled_at": builders.at(0), "last_seen": builders.at(120)} | more


def holding(
    builders: Any, name: str, minutes: Iterable[float], **more: Any
) -> list[dict[str, Any]]:
    base = {"cluster": "c", "device": "d", "namespace": f"ns-{name}", "pod": name}
    return [base | {"ts": builders.at(m)} | more for m in minutes]


def claims(builders: Any, tables: Any, end: float = 120) -> list[tuple[Any, ...]]:
    write_allocations(tables, builders.window(0, end))
    midnight = builders.at(0)
    return [
        (
            r["pod"],
            (r["start"] - midnight).total_seconds() / 60,
            (r["end"] - midnight).total_seconds() / 60,
            pytest.approx(r["share"]),
            r["rule"],
            r["attribution"],
        )
        for r in tables.rows("allocation", "device, start, pod")
    ]


@pytest.mark.parametrize(
    ("asked", "share"),
    [
        ({"gpu_core_request_pct": 25.0}, 0.25),
        ({"gpu_core_request_pct": 25.0, "gpu_mem_request_bytes": 40 * 2**30}, 0.5),
        ({"gpu_mem_request_bytes": 160 * 2**30}, 1),
        ({"gpu_request": 0.3}, 0.3),
        ({"gpu_request": 1.0}, 1),
    ],
)
def test_a_fraction_is_the_greater_of_cores_and_memory(
    builders: Any, tables: Any, asked: dict[str, float], share: float
) -> None:
    tables.put("device", [builders.device("d", 120, memory_bytes=80 * 2**30)])
    tables.put("pod", [pod(builders, "p", **asked)])
    tables.put("rollup_5m", builders.looks("d", 0, 120, "p"))
    rule = "telemetry" if share == 1 else "fraction"
    assert claims(builders, tables) == [("p", 0, 120, share, rule, "exact")]


def test_use_beyond_the_request_is_charged_in_its_hour(builders: Any, tables: Any) -> None:
    tables.put("device", [builders.device("d", 120, memory_bytes=80 * 2**30)])
    tables.put("pod", [pod(builders, name, gpu_core_request_pct=25.0) for name in "pq"])
    tables.put(
        "holding",
        [
            *holding(builders, "p", range(60), gpu_util_pct=10.0),
            *holding(builders, "p", range(60, 90), gpu_util_pct=50.0),
            *holding(builders, "p", range(90, 120), gpu_util_pct=70.0),
            *holding(builders, "q", range(120), gpu_util_pct=5.0),
        ],
    )
    expected = [
        ("p", 0, 60, 0.25, "time-slicing", "estimated"),
        ("q", 0, 120, 0.25, "time-slicing", "estimated"),
        ("p", 60, 120, 0.6, "usage", "estimated"),
    ]
    assert claims(builders, tables) == expected
    assert claims(builders, tables, 90) == expected


def test_what_sharers_use_is_never_more_than_the_device(builders: Any, tables: Any) -> None:
    tables.put("device", [builders.device("d", 60)])
    tables.put("pod", [pod(builders, name, gpu_core_request_pct=25.0) for name in "pq"])
    tables.put(
        "holding",
        [
            *holding(builders, "p", range(60), gpu_util_pct=100.0),
            *holding(builders, "q", range(60), gpu_util_pct=60.0),
        ],
    )
    assert [c[3] for c in claims(builders, tables, 60)] == [1 / 1.6, 0.6 / 1.6]


def test_copies_of_the_values_of_a_device_are_no_use_of_its_pods(
    builders: Any, tables: Any
) -> None:
    """Exporters that read no processes print the device's values for each pod of it."""
    tables.put("device", [builders.device("d", 60, memory_bytes=80 * 2**30)])
    tables.put("pod", [pod(builders, name, gpu_request=0.25) for name in "pq"])
    values = [{"gpu_util_pct": 90.0 + n % 5, "mem_used_bytes": (30 + n) << 30} for n in range(40)]
    tables.put(
        "holding",
        [
            row | values[n]
            for pod_name in "pq"
            for n, row in enumerate(holding(builders, pod_name, range(40)))
        ],
    )
    rule = ("time-slicing", "estimated")
    assert [(c[0], *c[3:]) for c in claims(builders, tables, 60)] == [
        ("p", 0.25, *rule),
        ("q", 0.25, *rule),
    ]


def test_a_share_of_an_instance_is_a_part_of_it(builders: Any, tables: Any) -> None:
    instance = {"parent": "g", "weight": 1 / 7, "profile": "1g.5gb"}
    tables.put("device", [builders.device("d", 120, **instance)])
    tables.put("pod", [pod(builders, "p", gpu_request=1 / 14)])
    tables.put("rollup_5m", builders.looks("d", 0, 120, "p"))
    assert claims(builders, tables) == [("p", 0, 120, 0.5, "fraction", "exact")]


def test_a_pod_that_shares_with_nobody_holds_its_device_once(builders: Any, tables: Any) -> None:
    tables.put("device", [builders.device("d", 60)])
    tables.put("rollup_5m", builders.looks("d", 0, 60, "p", busy_s=300.0))
    tables.put("holding", holding(builders, "p", [*range(60), 59.375]))
    builders.hourly(tables)
    assert [(c[0], c[3]) for c in claims(builders, tables, 60)] == [("p", 1)]
    write_ledger(tables, builders.window(0, 60))
    assert [(r["state"], r["seconds"]) for r in tables.rows("ledger")] == [("productive", 3600)]


@pytest.mark.parametrize("known_since", [0, None])
def test_a_pod_known_under_a_hash_and_its_uid_is_one(
    builders: Any, tables: Any, known_since: float | None
) -> None:
    start = None if known_since is None else builders.at(known_since)
    hashed = derive_pod_uid("c", "ns-p", "p")
    tables.put("device", [builders.device("d", 60), builders.device("e", 60)])
    asks = {"gpu_request": 1.0, "gpu_resource": "nvidia.com/gpu"}
    tables.put(
        "pod",
        [pod(builders, "p", uid=hashed, scheduled_at=start, **asks), pod(builders, "p", **asks)],
    )
    tables.put("rollup_5m", [*builders.looks("d", 0, 60, "p"), *builders.looks("e", 0, 60)])
    write_allocations(tables, builders.window(0, 60))
    rows = tables.rows("allocation")
    assert [(r["device"], r["pod_uid"], r["share"]) for r in rows] == [("d", "u-p", 1)]


def test_a_nameless_uid_is_the_collectors_own(builders: Any, tables: Any) -> None:
    tables.put("rollup_5m", builders.looks("d", 0, 60, "p"))
    write_allocations(tables, builders.window(0, 60))
    assert [r["pod_uid"] for r in tables.rows("allocation")] == [derive_pod_uid("c", "ns-p", "p")]


def test_a_name_used_again_is_two_lives(builders: Any, tables: Any) -> None:
    tables.put("device", [builders.device("d", 120)])
    lives = [(0, 50, "first"), (55, None, "second")]
    tables.put(
        "pod",
        [
            pod(
                builders,
                "p",
                uid=uid,
                scheduled_at=builders.at(a),
                finished_at=b and builders.at(b),
            )
            for a, b, uid in lives
        ],
    )
    tables.put("rollup_5m", [*builders.looks("d", 0, 50, "p"), *builders.looks("d", 55, 120, "p")])
    write_allocations(tables, builders.window(0, 120))
    assert [r["pod_uid"] for r in tables.rows("allocation", "start")] == ["first", "second"]


def test_a_pod_that_waits_again_under_its_name_did_not_hold_before(
    builders: Any, tables: Any
) -> None:
    tables.put("device", [builders.device("d", 120)])
    first = pod(builders, "p", uid="first", finished_at=builders.at(62), phase="Failed")
    waits = pod(builders, "p", uid="waits", phase="Pending", created_at=builders.at(62))
    tables.put("pod", [first, waits | {"scheduled_at": None, "node": None}])
    tables.put("rollup_5m", builders.looks("d", 0, 65, "p"))
    write_allocations(tables, builders.window(0, 120))
    assert [r["pod_uid"] for r in tables.rows("allocation", "start")] == ["first"]


@pytest.mark.parametrize(("node", "held"), [("n", ["first"]), ("other", ["first", "second"])])
def test_a_pod_made_anew_on_another_node_does_not_hold_the_first_ones_device(
    builders: Any, tables: Any, node: str, held: list[str]
) -> None:
    tables.put("device", [builders.device("d", 120, node=node)])
    first = pod(builders, "p", uid="first", finished_at=builders.at(52))
    second = pod(builders, "p", uid="second", scheduled_at=builders.at(52), node="m")
    tables.put("pod", [first, second])
    samples = [row | {"node": node} for row in builders.looks("d", 0, 60, "p")]
    tables.put("rollup_5m", samples)
    write_allocations(tables, builders.window(0, 120))
    # Where exporters name nodes in their own way, nodes tell nothing.
    assert sorted({r["pod_uid"] for r in tables.rows("allocation")}) == held


def test_instances_are_held_whole_and_weigh_their_slices(builders: Any, tables: Any) -> None:
    tables.put("device", [builders.device("G/gi1", 60, parent="G", weight=2 / 7)])
    tables.put(
        "pod", [pod(builders, "p", gpu_request=2 / 7, gpu_resource="nvidia.com/mig-2g.20gb")]
    )
    tables.put("rollup_5m", builders.looks("G/gi1", 0, 60, "p"))
    assert claims(builders, tables, 60) == [("p", 0, 60, 1, "mig", "exact")]


def lingering(builders: Any, tables: Any, ended: float | None = 60, **asks: Any) -> None:
    """Let `q` follow `p` at minute 60 on a device where `p` is named until 65."""
    tables.put("device", [builders.device("d", 120)])
    life = {
        "last_seen": builders.at(60),
        "finished_at": None if ended is None else builders.at(ended),
    }
    tables.put(
        "pod", [pod(builders, "p") | life, pod(builders, "q", scheduled_at=builders.at(60), **asks)]
    )
    tables.put(
        "rollup_5m",
        [
            *builders.looks("d", 0, 60, "p"),
            *builders.looks("d", 60, 65),
            *builders.looks("d", 65, 120, "q"),
        ],
    )
    tables.put("holding", [r for n in "pq" for r in holding(builders, n, range(61, 65))])


def test_a_series_that_outlives_its_pod_shares_with_nobody(builders: Any, tables: Any) -> None:
    lingering(builders, tables)
    assert claims(builders, tables) == [
        ("p", 0, 60, 1, "telemetry", "exact"),
        ("q", 60, 120, 1, "telemetry", "exact"),
    ]


def test_a_pod_that_may_still_live_shares(builders: Any, tables: Any) -> None:
    lingering(builders, tables, ended=None)
    assert {c[4:] for c in claims(builders, tables)} == {("time-slicing", "estimated")}


def test_windows_that_begin_after_the_end_know_who_is_gone(builders: Any, tables: Any) -> None:
    lingering(builders, tables)
    whole = claims(builders, tables)
    tables.replace("allocation", tables.query("SELECT * FROM allocation LIMIT 0"), "true", {})
    for start, end in [(0, 62), (62, 90), (90, 120)]:
        write_allocations(tables, builders.window(start, end))
    assert claims(builders, tables) == whole


def test_a_pod_that_sharing_alone_names_is_not_lost(builders: Any, tables: Any) -> None:
    lingering(builders, tables)
    tables.replace("rollup_5m", tables.query("SELECT * FROM rollup_5m LIMIT 0"), "true", {})
    assert ("q", 60, 120, 1, "telemetry", "exact") in claims(builders, tables)


def test_pods_that_share_go_on_sharing_when_a_third_is_gone(builders: Any, tables: Any) -> None:
    lingering(builders, tables)
    tables.put("pod", [pod(builders, "r", scheduled_at=builders.at(60))])
    tables.put("holding", holding(builders, "r", range(62, 120)))
    assert claims(builders, tables) == [
        ("p", 0, 60, 1, "telemetry", "exact"),
        ("q", 60, 120, 0.5, "time-slicing", "estimated"),
        ("r", 60, 120, 0.5, "time-slicing", "estimated"),
    ]


def test_a_share_that_the_source_names_is_a_share(builders: Any, tables: Any) -> None:
    lingering(builders, tables)
    tables.put("holding", holding(builders, "q", [64.5], share=0.25))
    assert ("q", 60, 120, 0.25, "time-slicing", "estimated") in claims(builders, tables)

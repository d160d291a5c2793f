"""Hours before a node changed have the price, pool and count of then; hours after, the new ones."""

from collections import Counter
from typing import Any

import pytest

from warehouse.allocation import write_allocations
from warehouse.ledger import write_ledger
from warehouse.pricing import derive_device_rates

LARGE = {"instance_type": "large", "pool": "blue", "gpu_count": 4}
SMALL = {"instance_type": "small", "pool": "red", "gpu_count": 1}


def build(builders: Any, tables: Any, change: float, *, left: float | None = None) -> None:
    """Store a node that was large until a minute and small from another one to minute 180."""
    ends = {"first_seen": builders.at(0), "last_seen": builders.at(180)}
    tables.put("node", [{"cluster": "c", "node": "n", **SMALL, **ends}])
    spans = [(0, change if left is None else left, LARGE), (change, None, SMALL)]
    tables.put(
        "era",
        [
            {
                "cluster": "c",
                "node": "n",
                "valid_from": builders.at(start),
                "valid_to": None if end is None else builders.at(end),
                **values,
            }
            for start, end, values in spans
        ],
    )
    tables.put(
        "rate",
        [
            builders.flat_rate(usd, instance_type=kind, gpu_count=count, source="rate-card")
            for kind, usd, count in (("large", "40", 4), ("small", "1", 1))
        ],
    )


def account(builders: Any, tables: Any) -> list[dict[str, Any]]:
    builders.hourly(tables)
    write_allocations(tables, builders.window(0, 180))
    write_ledger(tables, builders.window(0, 180))
    rows: list[dict[str, Any]] = tables.rows("ledger", "bucket, device")
    return rows


@pytest.mark.parametrize(
    ("change", "dollars", "pools"),
    [
        (60, [10, 1, 1], ["blue", "red", "red"]),
        (90, [10, 5.5, 1], ["blue", "red", "red"]),
        (105, [10, 7.75, 1], ["blue", "blue", "red"]),
        (180, [10, 10, 10], ["blue", "blue", "blue"]),
    ],
)
def test_a_device_has_the_price_and_the_pool_of_its_time(
    builders: Any, tables: Any, change: float, dollars: list[float], pools: list[str]
) -> None:
    build(builders, tables, change)
    tables.put("device", [builders.device(f"d{n}", 180) for n in range(4)])
    rows = [row for row in account(builders, tables) if row["device"] == "d0"]
    assert [float(row["usd"]) for row in rows] == pytest.approx(dollars)
    assert [row["pool"] for row in rows] == pools


def test_rates_of_a_device_are_cut_where_its_node_changed(builders: Any, tables: Any) -> None:
    build(builders, tables, 90)
    tables.put("device", [builders.device("d", 180)])
    rates = derive_device_rates(tables, builders.window(0, 180)).to_pylist()
    assert [(row["from_at"], row["to_at"], row["loaded_usd_h"]) for row in rates] == [
        (builders.at(0), builders.at(90), 10),
        (builders.at(90), builders.at(180), 1),
    ]


@pytest.mark.parametrize(
    ("change", "left", "hours"),
    [(60, None, [4, 1, 1]), (90, None, [4, 2.5, 1]), (120, 60, [4, 0, 1])],
)
def test_gpus_without_telemetry_are_those_that_the_node_had_then(
    builders: Any, tables: Any, change: float, left: float | None, hours: list[float]
) -> None:
    """Between two nodes of a name there is none."""
    build(builders, tables, change, left=left)
    tables.put("device", [builders.device("other", 180, node="m")])
    tables.put("node", [{"cluster": "c", "node": "m", "gpu_count": 1}])
    found = [0.0, 0.0, 0.0]
    for row in account(builders, tables):
        if row["node"] == "n":
            found[(row["bucket"] - builders.at(0)).seconds // 3600] += row["gpu_seconds"] / 3600
    assert found == pytest.approx(hours)


@pytest.mark.parametrize(
    ("requests", "minutes"),
    [
        ([0.5, 0.75], [("d0", 0, 60, "p0"), ("d1", 0, 60, "p0"), ("d0", 0, 60, "p1")]),
        ([0.5], [("d0", 0, 30, "p0"), ("d1", 30, 60, "p0")]),
        ([0.25, 0.25], [("d0", 0, 60, "p0"), ("d1", 0, 60, "")]),
    ],
    ids=["two replicas at once", "two replicas, one after the other", "beside a part"],
)
def test_what_pods_held_follows_the_replicas_of_their_time(
    builders: Any, tables: Any, requests: list[float], minutes: list[tuple[str, int, int, str]]
) -> None:
    at = builders.at
    tables.put("device", [builders.device("d0", 180), builders.device("d1", 180)])
    pod = {"cluster": "c", "node": "n", "scheduled_at": at(0), "last_seen": at(60)}
    names = [{"uid": f"u{k}", "namespace": f"ns-p{k}", "pod": f"p{k}"} for k in range(2)]
    pairs = zip(names, requests, strict=False)
    tables.put("pod", [pod | name | {"gpu_request": request} for name, request in pairs])
    for name, first, last, holder in minutes:
        tables.put("rollup_5m", builders.looks(name, first, last, holder))
    node = {"cluster": "c", "node": "n", "gpu_count": 2, "first_seen": at(0), "last_seen": at(180)}

    def allocate(*eras: tuple[float, float | None, int]) -> list[dict[str, Any]]:
        for table in ("node", "era"):
            tables.clear(table)
        tables.put("node", [node | {"gpu_replicas": eras[-1][2]}])
        spans = [
            {"valid_from": at(a), "valid_to": None if b is None else at(b), "gpu_replicas": n}
            for a, b, n in eras
        ]
        tables.put("era", [{"cluster": "c", "node": "n", "gpu_count": 2, **s} for s in spans])
        write_allocations(tables, builders.window(0, 60))
        rows: list[dict[str, Any]] = tables.rows("allocation", "device, start, pod")
        return rows

    then = allocate((0, None, 4))
    assert then != allocate((0, None, 1))
    assert then == allocate((0, 60, 4), (60, None, 1))


@pytest.mark.parametrize(
    ("change", "teams"),
    [
        pytest.param(60, {(0, "red"): 60, (1, "blue"): 60}, id="at-the-full-hour"),
        pytest.param(20, {(0, "red"): 20, (0, "blue"): 40, (1, "blue"): 60}, id="within-an-hour"),
        pytest.param(
            23, {(0, "red"): 25, (0, "blue"): 35, (1, "blue"): 60}, id="within-five-minutes"
        ),
        pytest.param(200, {(0, "red"): 60, (1, "red"): 60}, id="later"),
    ],
)
def test_minutes_are_of_the_team_that_its_pod_had_then(
    builders: Any, tables: Any, change: float, teams: dict[tuple[int, str], float]
) -> None:
    tables.put("device", [builders.device("g", end=120)])
    tables.put("rollup_5m", builders.looks("g", 0, 120, "p"))
    pod = {"cluster": "c", "uid": "u", "namespace": "ns-p", "pod": "p", "node": "n"}
    times = {"scheduled_at": builders.at(0), "last_seen": builders.at(200)}
    tables.put("pod", [pod | times | {"gpu_request": 1.0, "team": "blue"}])
    for team, start, end in (("red", 0, change), ("blue", change, None)):
        tables.put(
            "attribute_era",
            [
                {"cluster": "c", "kind": "pod.team", "id": "u", "value": team}
                | {"valid_from": builders.at(start)}
                | ({} if end is None else {"valid_to": builders.at(end)})
            ],
        )
    builders.hourly(tables)
    write_allocations(tables, builders.window(0, 120))
    write_ledger(tables, builders.window(0, 120))
    minutes: Counter[tuple[int, str]] = Counter()
    for row in tables.rows("ledger"):
        minutes[row["bucket"].hour, row["team"]] += row["seconds"] / 60
    assert minutes == pytest.approx(teams)

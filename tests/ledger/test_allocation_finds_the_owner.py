"""Who held which device when."""

from typing import Any

import pytest

from warehouse.allocation import write_allocations


def held(builders: Any, tables: Any, start: float = 0, end: float = 60) -> list[tuple[Any, ...]]:
    write_allocations(tables, builders.window(start, end))
    midnight = builders.at(0)
    return [
        (
            r["device"],
            r["pod"],
            (r["start"] - midnight).total_seconds() / 60,
            (r["end"] - midnight).total_seconds() / 60,
            r["share"],
            r["rule"],
        )
        for r in tables.rows("allocation", "device, start, pod")
    ]


def test_a_change_of_hands_inside_a_bucket_is_cut_where_the_looks_say(
    builders: Any, tables: Any
) -> None:
    tables.put("device", [builders.device("d")])
    tables.put(
        "rollup_5m",
        [
            *builders.looks("d", 0, 20, "p"),
            *builders.looks("d", 20, 25, "p", idle_s=120.0),
            *builders.looks("d", 20, 25, "q", idle_s=180.0),
            *builders.looks("d", 25, 60, "q"),
        ],
    )
    assert held(builders, tables) == [
        ("d", "p", 0, 22, 1, "telemetry"),
        ("d", "q", 22, 60, 1, "telemetry"),
    ]


@pytest.mark.parametrize(("start", "end"), [(59, 60), (4, 5), (22, 23), (0, 1), (3, 58), (5, 59)])
def test_a_window_that_begins_or_ends_within_a_bucket_changes_nothing(
    builders: Any, tables: Any, start: float, end: float
) -> None:
    tables.put("device", [builders.device("d")])
    tables.put("rollup_5m", [*builders.looks("d", 0, 25, "p"), *builders.looks("d", 25, 60, "q")])
    before = held(builders, tables)
    assert [row[1:4] for row in before] == [("p", 0, 25), ("q", 25, 60)]
    assert held(builders, tables, start, end) == before


def test_a_known_life_outranks_the_looks(builders: Any, tables: Any) -> None:
    life = {"scheduled_at": builders.at(7), "finished_at": builders.at(33)}
    tables.put("pod", [{"cluster": "c", "uid": "u", "namespace": "ns-p", "pod": "p", **life}])
    tables.put("rollup_5m", builders.looks("d", 10, 25, "p"))
    assert held(builders, tables) == [("d", "p", 7, 33, 1, "telemetry")]


def test_no_life_begins_before_its_pod_was_made(builders: Any, tables: Any) -> None:
    life = {"scheduled_at": builders.at(7), "created_at": builders.at(30)}
    tables.put("pod", [{"cluster": "c", "uid": "u", "namespace": "ns-p", "pod": "p", **life}])
    tables.put("rollup_5m", builders.looks("d", 0, 60, "p"))
    assert [h[2:4] for h in held(builders, tables)] == [(30, 60)]


def test_a_pod_that_leaves_and_another_between_is_two_runs(builders: Any, tables: Any) -> None:
    tables.put(
        "rollup_5m",
        [
            *builders.looks("d", 0, 15, "p"),
            *builders.looks("d", 15, 30),
            *builders.looks("d", 30, 45, "p"),
        ],
    )
    assert [h[2:4] for h in held(builders, tables)] == [(0, 15), (30, 45)]


def test_overlapping_windows_give_one_stretch(builders: Any, tables: Any) -> None:
    tables.put("rollup_5m", builders.looks("d", 0, 120, "p"))
    held(builders, tables, 0, 60)
    held(builders, tables, 30, 120)
    assert held(builders, tables, 0, 60) == [("d", "p", 0, 120, 1, "telemetry")]


def test_listed_devices_need_no_telemetry(builders: Any, tables: Any) -> None:
    listed = {"devices": '["d1", {"device": "d2", "share": 0.5}]', "last_seen": builders.at(60)}
    base = {
        "cluster": "c",
        "uid": "u",
        "namespace": "n",
        "pod": "p",
        "scheduled_at": builders.at(0),
    }
    tables.put("pod", [base | listed])
    assert held(builders, tables) == [
        ("d1", "p", 0, 60, 1, "listed"),
        ("d2", "p", 0, 60, 0.5, "fraction"),
    ]


def test_holder_pods_give_way_to_their_users(builders: Any, tables: Any) -> None:
    group = {"cluster": "c", "node": "n", "labels": '{"runai-gpu-group": "g1"}'}
    life = {"scheduled_at": builders.at(0), "last_seen": builders.at(60)}
    holder = {"uid": "h", "namespace": "kai-resource-reservation", "pod": "r"}
    user = {"uid": "u", "namespace": "team", "pod": "p", "gpu_request": 0.5}
    tables.put("pod", [group | life | holder, group | life | user])
    row = {"namespace": "kai-resource-reservation", "pod": "r"}
    tables.put("rollup_5m", [r | row for r in builders.looks("d", 0, 60, "r")])
    assert held(builders, tables) == [("d", "p", 0, 60, 0.5, "holder")]


def test_a_pod_whose_devices_nobody_names_gets_its_node_s(builders: Any, tables: Any) -> None:
    tables.put("device", [builders.device("d0"), builders.device("d1")])
    tables.put(
        "pod",
        [
            {
                "cluster": "c",
                "uid": "u",
                "namespace": "ns",
                "pod": "p",
                "node": "n",
                "gpu_request": 2.0,
                "scheduled_at": builders.at(0),
                "last_seen": builders.at(60),
            }
        ],
    )
    tables.put("rollup_5m", [*builders.looks("d0", 0, 60), *builders.looks("d1", 0, 60)])
    assert held(builders, tables) == [
        ("d0", "p", 0, 60, 1, "whole-node"),
        ("d1", "p", 0, 60, 1, "whole-node"),
    ]


def test_a_request_of_shares_is_of_physical_gpus_and_is_not_divided_again(
    builders: Any, tables: Any
) -> None:
    tables.put("device", [builders.device("d0")])
    tables.put("node", [{"cluster": "c", "node": "n", "gpu_count": 1, "gpu_replicas": 4}])
    life = {"scheduled_at": builders.at(0), "last_seen": builders.at(60)}
    pods = [{"uid": f"u{i}", "namespace": "ns", "pod": f"p{i}"} for i in range(4)]
    same = {"cluster": "c", "node": "n", "gpu_request": 0.25}
    tables.put("pod", [same | life | pod for pod in pods])
    tables.put("rollup_5m", builders.looks("d0", 0, 60))
    assert held(builders, tables) == [("d0", f"p{i}", 0, 60, 0.25, "request") for i in range(4)]


def life(builders: Any, name: str, start: float, end: float | None, **more: Any) -> dict[str, Any]:
    """Return a pod of the inventory, whose newest list is at 60 minutes."""
    times = {
        "scheduled_at": builders.at(start),
        "first_seen": builders.at(start),
        "last_seen": builders.at(60),
    }
    ended = {} if end is None else {"finished_at": builders.at(end), "phase": "Succeeded"}
    names = {"cluster": "c", "namespace": "ns-p", "pod": "p", "uid": name, "gpu_request": 1.0}
    return {**names, **times, **ended, **more}


def test_the_name_of_a_pod_that_ended_long_ago_is_no_evidence(builders: Any, tables: Any) -> None:
    tables.put("pod", [life(builders, "u", -12000, -11500)])
    tables.put("rollup_5m", builders.looks("d", 0, 60, "p"))
    assert held(builders, tables) == []


def test_a_later_life_of_the_name_is_evidence(builders: Any, tables: Any) -> None:
    tables.put("pod", [life(builders, "u", -12000, -11500), life(builders, "v", 20, None)])
    tables.put("rollup_5m", builders.looks("d", 0, 60, "p"))
    assert [h[2:4] for h in held(builders, tables)] == [(20, 60)]


def test_a_name_that_no_inventory_has_is_evidence(builders: Any, tables: Any) -> None:
    tables.put("pod", [life(builders, "u", -12000, -11500, pod="other")])
    tables.put("rollup_5m", builders.looks("d", 0, 60, "p"))
    assert [h[2:4] for h in held(builders, tables)] == [(0, 60)]


@pytest.mark.parametrize(("last", "until"), [(25, 25), (30, 30), (35, 30), (40, 60)])
def test_a_gpu_that_is_replaced_is_held_until_its_last_sight(
    builders: Any, tables: Any, last: int, until: int
) -> None:
    """Two that are seen together for longer than a sample reaches are both the pod's."""
    tables.put("pod", [life(builders, "u", -60, None)])
    tables.put(
        "rollup_5m", [*builders.looks("old", 0, last, "p"), *builders.looks("new", 30, 60, "p")]
    )
    start = 30 if until < 60 else 0
    assert [h[:1] + h[2:4] for h in held(builders, tables)] == [
        ("new", start, 60), ("old", 0, until),
    ]  # fmt: skip


def test_gpus_that_a_pod_requests_are_held_however_late_they_are_seen(
    builders: Any, tables: Any
) -> None:
    tables.put("pod", [life(builders, "u", -60, None, gpu_request=2.0)])
    tables.put("rollup_5m", [*builders.looks("a", 0, 25, "p"), *builders.looks("b", 30, 60, "p")])
    assert [h[:1] + h[2:4] for h in held(builders, tables)] == [("a", 0, 60), ("b", 0, 60)]


def test_a_node_that_is_renamed_keeps_who_was_named_under_its_old_name(
    builders: Any, tables: Any
) -> None:
    tables.put("pod", [life(builders, "u", 30, None, node="new")])
    tables.put(
        "rollup_5m",
        [
            {**row, "node": "old" if row["bucket"] < builders.at(30) else "new"}
            for row in builders.looks("d", 0, 60, "p")
        ],
    )
    assert [h[2:4] for h in held(builders, tables)] == [(0, 30), (30, 60)]


@pytest.mark.parametrize("part", [(0, 60), (40, 80), (70, 120), (10, 30), (90, 110)])
def test_a_part_of_a_silence_that_is_accounted_again_has_the_holder_of_all_of_it(
    builders: Any, tables: Any, part: tuple[float, float]
) -> None:
    """The same name before and after it; the window does not have both."""
    tables.put("device", [builders.device("d", 120)])
    tables.put("rollup_5m", [*builders.looks("d", 0, 20, "p"), *builders.looks("d", 100, 120, "p")])
    whole = held(builders, tables, 0, 120)
    assert whole == [("d", "p", 0, 120, 1, "telemetry")]
    assert held(builders, tables, *part) == whole


def test_a_pod_does_not_hold_on_where_its_device_shows_no_pod(builders: Any, tables: Any) -> None:
    tables.put("device", [builders.device("d", 120)])
    tables.put("rollup_5m", builders.looks("d", 0, 20, "p"))
    tables.put("rollup_5m", [*builders.looks("d", 60, 80), *builders.looks("d", 100, 120, "p")])
    whole = held(builders, tables, 0, 120)
    assert [h[2:4] for h in whole] == [(0, 20), (100, 120)]
    for part in ((0, 70), (40, 50), (65, 120)):
        assert held(builders, tables, *part) == whole

"""The queries of the idle analyzer: each rule on both sides of its limit, over rows by hand."""

from datetime import timedelta
from typing import Any

import pytest

from analyzers.idle.samples import FROZEN, LOW, NAMED
from analyzers.queries import compose_steps, load_sql
from tests.analyzers.queried import HOUR, WINDOW, T, at, query, us
from warehouse.steps import ACTIVE_SAMPLE, SERVING_LOAD, load_step

DEVICE = {"numbers": [7], "clusters": ["c"], "devices": ["d"], "first": "d", "last": "d"}


def device_row(**columns: Any) -> dict[str, Any]:
    return {"cluster": "c", "device": "d", "node": "n", "namespace": "", "pod": "", **columns}


def signal_row(**columns: Any) -> dict[str, Any]:
    seconds = {"idle_s": 0.0, "low_s": 0.0, "busy_s": 0.0}
    base = {"cluster": "c", "device": "d", "namespace": "", "pod": "", "bucket": T}
    return {**base, **seconds, **columns}


def read_sample(whole: bool = True, **columns: Any) -> dict[str, Any]:
    rules = {
        **WINDOW, **DEVICE, "whole_gpus": [whole], "half_tdp_w": [350.0], "context_w": [70.0],
        "threshold": 0.02, "exit_threshold": 0.1,
    }  # fmt: skip
    row = device_row(ts=columns.pop("ts", T), **columns)
    (found,) = query(compose_steps(ACTIVE_SAMPLE, "idle/samples"), rules, sample=[row])
    return dict(found)


@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        ({"power_w": 600.0}, 0),
        ({"gr_engine_active": 0.0}, 1),
        ({"gr_engine_active": 0.02}, 1),
        ({"gr_engine_active": 0.021}, 2),
        ({"gr_engine_active": 0.099}, 2),
        ({"gr_engine_active": 0.1}, 3),
        ({"gr_engine_active": 0.0, "power_w": 350.0}, 1),
        ({"gr_engine_active": 0.0, "power_w": 351.0}, 4),
        ({"gr_engine_active": 0.021, "power_w": 351.0}, 2),
        ({"gr_engine_active": 0.01, "gpu_util_pct": 10.0}, 4),
        ({"gr_engine_active": 0.01, "gpu_util_pct": 9.0}, 2),
        ({"gr_engine_active": 0.011, "gpu_util_pct": 10.0}, 3),
        ({"gpu_util_pct": 90.0, "mem_used_bytes": 0, "power_w": 70.0}, 4),
        ({"gpu_util_pct": 89.0, "mem_used_bytes": 0, "power_w": 70.0}, 3),
        ({"gpu_util_pct": 90.0, "mem_used_bytes": 1, "power_w": 70.0}, 3),
        ({"gpu_util_pct": 90.0, "mem_used_bytes": 0, "power_w": 71.0}, 3),
        ({"gpu_util_pct": 90.0, "mem_used_bytes": 0, "power_w": 70.0, "whole": False}, 3),
        ({"gr_engine_active": 0.0, "power_w": 600.0, "whole": False}, 1),
    ],
)
def test_the_kind_of_a_sample(columns: dict[str, Any], kind: int) -> None:
    assert read_sample(**columns)["kind"] == kind


def test_the_measures_of_a_sample() -> None:
    made = read_sample(
        pcie_tx_bps=1.0, pcie_rx_bps=2.0, nvlink_tx_bps=4.0, nvlink_rx_bps=8.0, power_w=9.0,
        energy_mj=5.0, throttle_mask=3, mem_used_bytes=268435457, proc_count=2,
    )  # fmt: skip
    assert (made["traffic_bps"], made["power_w"], made["energy_mj"]) == (12.0, 9.0, 5.0)
    assert (made["idle_clock"], made["context"], made["procs"]) == (1.0, 1.0, 2.0)
    assert (made["interval_s"], made["samples"], made["device"]) == (60.0, 1, 7)
    other = read_sample(
        whole=False, pcie_tx_bps=9.0, pcie_rx_bps=2.0, nvlink_tx_bps=4.0, nvlink_rx_bps=6.0,
        power_w=9.0, energy_mj=5.0, throttle_mask=2, mem_used_bytes=268435456, interval_s=30.0,
    )  # fmt: skip
    assert (other["traffic_bps"], other["power_w"], other["energy_mj"]) == (11.0, None, None)
    assert (other["idle_clock"], other["context"], other["interval_s"]) == (0.0, 0.0, 30.0)


BUCKET = {"bucket": T, "interval_s": 30.0, "act_n": 10, "act_min": 0.0}


def read_bucket(rules: dict[str, Any] | None = None, **columns: Any) -> list[Any]:
    every = {
        **WINDOW, **DEVICE, "whole_gpus": [True], "threshold": 0.02, "exit_threshold": 0.1,
        "exit_samples": 3, "max_gap_s": 600.0, "barriers": False, "every": False,
        "traffic": True, "procs": True, "kernels": True, "energy": True, **(rules or {}),
    }  # fmt: skip
    row = device_row(**{**BUCKET, **columns})
    return list(query(load_sql("idle/buckets"), every, rollup_5m=[row]))


def kinds(rules: dict[str, Any] | None = None, **columns: Any) -> list[int]:
    return [row["kind"] for row in read_bucket(rules, **columns)]


@pytest.mark.parametrize(
    ("beside", "columns", "rules", "expected"),
    [
        # `beside`: the sum of the bucket's activity without the greatest sample, which is 0.5.
        (0.0, {}, {}, [1]),
        (0.159, {}, {}, [1]),
        (0.179, {}, {}, [1]),
        (0.181, {}, {}, []),  # all ten samples may be above the threshold
        (0.199, {"act_n": 20}, {}, [1]),
        (0.201, {"act_n": 20}, {}, []),  # three samples may have reached the exit
        (0.159, {}, {"max_gap_s": 270.0}, [1]),  # nine intervals of silence
        (0.159, {}, {"max_gap_s": 269.0}, []),
        (0.019, {"act_n": 20}, {"max_gap_s": None}, [1]),  # two intervals
        (0.039, {"act_n": 20}, {"max_gap_s": None}, [1]),  # three
        (0.041, {"act_n": 20}, {"max_gap_s": None}, []),
        (0.201, {"act_n": 20}, {"barriers": True}, [3]),
        (5.0, {"act_n": 20}, {"barriers": True}, [3]),
        (5.0, {"act_n": 20, "interval_s": 101.0}, {}, [3]),
        (5.0, {"act_n": 20}, {}, []),
        (0.201, {"act_n": 20, "interval_s": 101.0}, {}, [3]),
        (0.201, {"act_n": 20, "interval_s": 100.0}, {}, []),
        (0.0, {"act_min": 0.021}, {}, []),
        (0.0, {"act_min": 0.02}, {}, [1]),
        (0.0, {"act_min": 0.021}, {"every": True}, [1]),
        (0.0, {"conflict_s": 1.0}, {}, [4]),
        (0.0, {"conflict_s": 0.0}, {}, [1]),
        (0.0, {"bucket": T - timedelta(minutes=5)}, {}, []),
        (0.0, {"bucket": T + HOUR}, {}, []),
        (0.0, {"device": "e"}, {}, []),
        (0.0, {"cluster": "b"}, {}, []),
    ],
)
def test_a_bucket_is_idle_where_too_few_samples_can_have_been_active(
    beside: float, columns: dict[str, Any], rules: dict[str, Any], expected: list[int]
) -> None:
    count = columns.get("act_n", 10)
    assert kinds(rules, act_max=0.5, act_mean=(0.5 + beside) / count, **columns) == expected


def test_a_bucket_without_an_active_sample_is_idle_up_to_the_threshold() -> None:
    assert kinds(act_max=0.02, act_mean=0.02) == [1]
    assert kinds(act_max=0.021, act_mean=0.021) == []
    assert kinds({"max_gap_s": 6000.0}, act_max=0.09, act_mean=0.012, act_n=30) == [1]
    assert kinds({"max_gap_s": 6000.0}, act_max=0.1, act_mean=0.012, act_n=30) == []


def test_the_measures_of_a_bucket_are_those_that_are_asked_for() -> None:
    columns: dict[str, Any] = {
        "act_max": 0.0, "act_mean": 0.0, "pcie_bps_max": 3.0, "nvlink_bps_max": 5.0,
        "proc_count_max": 2, "last_kernel_age_s_min": 9.0, "power_w_mean": 70.0, "energy_mj": 4.0,
        "mem_used_bytes_max": 268435457,
    }  # fmt: skip
    (row,) = read_bucket(**columns)
    assert (row["traffic_bps"], row["procs"], row["kernel_age_s"]) == (5.0, 2.0, 9.0)
    assert (row["power_w"], row["energy_mj"], row["context"]) == (70.0, 4.0, True)
    none = {"traffic": False, "procs": False, "kernels": False, "energy": False}
    (row,) = read_bucket({**none, "whole_gpus": [False]}, **columns)
    names = ("traffic_bps", "procs", "kernel_age_s", "power_w", "energy_mj")
    assert [row[name] for name in names] == [None] * 5
    (row,) = read_bucket(**{**columns, "mem_used_bytes_max": 268435456})
    assert row["context"] is False


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"rule": "among"}, [(True, False)]),
        ({"rule": "steady"}, [(True, False)]),
        ({"rule": "frozen"}, [(False, True)]),
        ({"rule": "burst"}, [(False, False)]),
        ({"rule": "stretch", "idle_s": 100.0, "low_s": 100.0}, []),
        ({"rule": "spinning", "idle_s": 100.0, "low_s": 100.0}, [(False, False)]),
        ({"idle_s": 100.0, "busy_s": 100.0}, [(False, False)]),
        ({"idle_s": 100.0}, []),
        ({"busy_s": 100.0}, []),
        ({"rule": "among", "bucket": T - timedelta(minutes=5)}, []),
        ({"rule": "among", "bucket": T + HOUR}, []),
        ({"rule": "among", "device": "e"}, []),
        ({"rule": "among", "cluster": "b"}, []),
    ],
)
def test_states_are_read_where_a_bucket_is_not_idle_throughout(
    columns: dict[str, Any], expected: list[tuple[bool, bool]]
) -> None:
    rows = query(load_sql("idle/states"), {**WINDOW, **DEVICE}, signal=[signal_row(**columns)])
    assert [(r["bits"] & LOW != 0, r["bits"] & FROZEN != 0) for r in rows] == expected
    assert all(r["bits"] & NAMED for r in rows)


NAMES = {"cluster": "c", "namespace": "ns", "workload_kind": "Job", "workload": "w"}


def held(start: float = 0, end: float = 60, **columns: Any) -> dict[str, Any]:
    base = {**NAMES, "device": "d", "pod": "p", "pod_uid": "u"}
    return {**base, "start": at(start), "end": at(end), **columns}


HOURS = {
    **WINDOW, "before": WINDOW["until"], "exit_threshold": 0.1, "models": ["A30"],
    "limits_w": [60.0],
}  # fmt: skip


def active(hours: Any = None, allocation: Any = None, **tables: Any) -> list[bool]:
    base = {"bucket": T, "act_max": 0.0, "act_n": 9, "conflict_s": 0.0}
    rollup = device_row(**{**base, **(hours or {})})
    sql = compose_steps(SERVING_LOAD, "idle/workload_hours")
    rows = query(sql, HOURS, allocation=[allocation or held()], rollup_1h=[rollup], **tables)
    return [item % 2 == 1 for row in rows for item in row["hours"]]


@pytest.mark.parametrize(
    ("hours", "expected"),
    [
        ({}, [False]),
        ({"act_max": 0.1}, [True]),
        ({"act_max": 0.099}, [False]),
        ({"act_max": 0.5, "conflict_s": 1.0}, [False]),
        ({"act_n": 0}, []),
        ({"act_n": 1}, [False]),
        ({"bucket": T - HOUR}, []),
        ({"bucket": T + HOUR}, []),
        ({"device": "e"}, []),
    ],
)
def test_an_hour_is_active_from_the_exit_threshold_on(
    hours: dict[str, Any], expected: list[bool]
) -> None:
    assert active(hours) == expected


@pytest.mark.parametrize(
    ("hours", "of", "expected"),
    [
        ({"power_w_max": 60.0}, {}, False),
        ({"power_w_max": 60.1}, {}, True),
        ({"power_w_max": None}, {}, True),
        ({"power_w_max": 60.0}, {"gpu_model": "B30"}, True),
        ({"power_w_max": 60.0}, {"parent": "G"}, True),
        # The other eight readings sum to less, or to as much, as the exit threshold.
        ({"power_w_max": 60.0, "act_mean": 0.065}, {}, False),
        ({"power_w_max": 60.0, "act_mean": 0.067}, {}, True),
    ],
)
def test_one_reading_that_its_power_does_not_confirm_makes_no_hour_active(
    hours: dict[str, Any], of: dict[str, Any], *, expected: bool
) -> None:
    device = {"cluster": "c", "device": "d", "gpu_model": "A30", **of}
    assert active({"act_max": 0.5, "act_mean": 0.5 / 9, **hours}, device=[device]) == [expected]


def test_an_hour_counts_for_a_workload_that_held_the_device_throughout() -> None:
    assert active(allocation=held(0, 60)) == [False]
    assert active(allocation=held(1, 60)) == []
    assert active(allocation=held(0, 59)) == []


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"busy_kernels": 1}, True),
        ({"busy_kernels": 0}, False),
        ({"last_kernel_activity": at(20.1)}, True),
        ({"last_kernel_activity": at(20)}, False),
        ({"last_terminal_activity": at(20.1)}, True),
        ({"last_terminal_activity": at(20)}, False),
        ({"busy_kernels": 1, "pod": "q"}, False),
        ({"busy_kernels": 1, "namespace": "other"}, False),
        ({"busy_kernels": 1, "cluster": "b"}, False),
    ],
)
def test_an_hour_is_active_by_what_a_notebook_reports(
    columns: dict[str, Any], *, expected: bool
) -> None:
    row = {"cluster": "c", "namespace": "ns", "pod": "p", "ts": at(30), **columns}
    assert active(notebook_sample=[row]) == [expected]


def test_an_hour_is_active_by_served_requests() -> None:
    row = {"cluster": "c", "namespace": "ns", "pod": "p", "ts": at(30), "requests_per_s": 0.1}
    assert active(pod_sample=[row]) == [True]
    assert active(pod_sample=[{**row, "requests_per_s": 0.0}]) == [False]
    assert active(pod_sample=[{**row, "pod": "q"}]) == [False]
    assert active(pod_sample=[{**row, "ts": at(60)}]) == [False]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(60, 90, False), (59.9, 90, True), (-30, 0, False), (-30, 0.1, True)],
)
def test_what_a_pod_reports_counts_where_it_held_a_device_in_the_window(
    start: float, end: float, *, expected: bool
) -> None:
    rollup = device_row(bucket=T, act_max=0.0, act_n=9, conflict_s=0.0)
    report = {"cluster": "c", "namespace": "ns", "pod": "q", "ts": at(30)}
    for table, columns in (("notebook_sample", {"busy_kernels": 1}),
                           ("pod_sample", {"requests_per_s": 1.0})):  # fmt: skip
        tables: dict[str, Any] = {table: [report | columns]}
        (row,) = query(
            compose_steps(SERVING_LOAD, "idle/workload_hours"),
            HOURS,
            allocation=[held(), held(start, end, pod="q", device="e")],
            rollup_1h=[rollup],
            **tables,
        )
        assert [item % 2 == 1 for item in row["hours"]] == [expected]


def test_unknown_hours_are_those_of_workloads() -> None:
    base = {**NAMES, "device": "d", "bucket": T, "state": "unknown", "gpu_seconds": 1800.0}
    rows = [
        base, {**base, "gpu_seconds": 3600.0}, {**base, "state": "idle"},
        {**base, "workload": ""}, {**base, "workload": "zero", "gpu_seconds": 0.0},
        {**base, "workload": "early", "bucket": T - HOUR},
        {**base, "workload": "late", "bucket": T + HOUR},
    ]  # fmt: skip
    found = query(load_sql("idle/unknown_hours"), WINDOW, ledger=rows)
    assert [(row["workload"], row["gpu_hours"]) for row in found] == [("w", 1.5)]


def test_samples_and_the_accounted_time_are_those_of_the_window() -> None:
    minutes = (-5, 0, 55, 60)
    (row,) = query(
        load_sql("idle/sample_counts"),
        {"since": at(2), "until": at(60)},
        sample=[device_row(ts=at(m)) for m in (*minutes, 2, 3)],
        rollup_5m=[device_row(bucket=at(m), n=10 + m) for m in (*minutes, 5)],
        signal=[signal_row(bucket=at(m)) for m in minutes],
    )
    assert (row["samples"], row["rolled"]) == (3, 15 + 65)
    first = us(0)
    assert (row["accounted_from"], row["accounted_until"]) == (first, first + 3_600_000_000)
    (row,) = query(load_sql("idle/sample_counts"), WINDOW)
    assert list(row.values()) == [0, 0, None, None]


@pytest.mark.parametrize(
    ("allocation", "rules", "count"),
    [
        (held(), {}, 1),
        (held(-60, 0), {}, 0),
        (held(60, 90), {}, 0),
        (held(), {"workloads": ["c/ns/Job/w"]}, 1),
        (held(), {"workloads": ["c/ns/Job/x"]}, 0),
        (held(-60, 0.1), {}, 1),
        (held(59.9, 90), {}, 1),
    ],
)
def test_devices_are_those_allocated_in_the_window_to_the_workloads(
    allocation: dict[str, Any], rules: dict[str, Any], count: int
) -> None:
    every = {**WINDOW, "buckets": 1, "bucket": 0, "workloads": [], **rules}
    found = query(load_sql("idle/allocated_devices"), every, allocation=[allocation])
    assert len(found) == count
    assert all(row["weight"] == 1.0 for row in found)


def test_each_workload_is_in_one_bucket_of_them() -> None:
    rows = [held(workload=f"w{n}", device=f"d{n}") for n in range(20)]
    sql = load_sql("idle/allocated_devices")
    parts = [
        [r["device"] for r in query(sql, {**WINDOW, "buckets": 3, "bucket": b, "workloads": []},
                                    allocation=rows)]
        for b in range(3)
    ]  # fmt: skip
    assert sorted(device for part in parts for device in part) == sorted(f"d{n}" for n in range(20))
    assert all(parts)


BURST = {"bucket": T, "act_max": 0.1, "conflict_s": 0.0, "power_w_max": 71.0}


@pytest.mark.parametrize(
    ("columns", "following", "works"),
    [
        ({}, None, True),
        ({"act_max": 0.099}, None, False),
        ({"power_w_max": 70.0}, None, False),
        ({"power_w_max": None}, None, False),
        ({"conflict_s": 1.0}, None, False),
        # Seventy watts for five minutes are 21 kJ: the counter is read where there is one.
        ({"energy_mj": 21_000_000}, None, False),
        ({"energy_mj": 21_000_001, "power_w_max": 60.0}, None, True),
        ({"energy_mj": 18_000_000}, 21_000_001, True),
        ({"energy_mj": 18_000_000}, 21_000_000, False),
    ],
)
def test_a_reading_is_work_where_power_or_energy_confirms_it(
    columns: dict[str, Any], following: int | None, works: bool
) -> None:
    later = T + timedelta(minutes=5)
    found = query(
        load_sql("idle/bursts"),
        {**WINDOW, **DEVICE, "at_us": [us(0)], "exit_threshold": 0.1, "margin_w": 10.0},
        rollup_5m=[
            device_row(**{**BURST, **columns}),
            device_row(bucket=later, act_max=0.0, conflict_s=0.0, energy_mj=following),
        ],
        signal=[signal_row(band_w=60.0), signal_row(band_w=60.0, bucket=later)],
    )
    assert found == ([{"number": 7, "at_us": us(0)}] if works else [])


@pytest.mark.parametrize(
    ("minutes", "ready"), [(-30, False), (0, False), (59, False), (60, None), (600, None)]
)
def test_the_last_observation_of_a_node_is_its_state(minutes: float, ready: bool | None) -> None:
    seen = {"ready": False, "last_seen": T + timedelta(minutes=minutes)}
    events = {"kind": "Node", "reason": "NodeReady", "name": "n", "ts": T - timedelta(hours=2)}
    found = query(
        load_step("inventory/ready"),
        {"until": T},
        node=[{"cluster": "c", "node": "n", **seen}],
        event=[{"cluster": "c", "uid": "e", **events}],
    )
    assert all(row["at_us"] < us(0) for row in found)
    assert found[-1]["ready"] is (True if ready is None else ready)

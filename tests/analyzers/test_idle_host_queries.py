"""The queries about pods, hosts and notebooks of idle stretches, over rows by hand."""

import json
from typing import Any

import pytest

from analyzers.idle.signals import ACTIVITY_STEPS
from analyzers.queries import compose_steps, load_sql
from tests.analyzers.queried import HOUR, WINDOW, T, at, query, us
from warehouse.steps import ACTIVE_SAMPLE, NOTEBOOK_ACTIVITY, SERVING_LOAD

NAMES = {"cluster": "c", "namespace": "ns", "workload_kind": "Job", "workload": "w"}
POD = {"cluster": "c", "namespace": "ns", "pod": "p"}
STEP = 10 * 60_000_000


def read_part(name: str, rows: list[dict[str, Any]], *, lead: int = 2) -> list[dict[str, Any]]:
    """Return what a part from minute 10 to 50 has reported; times are 30 and every ten later."""
    table = "pod_sample" if name == "hosts" else "notebook_sample"
    part = {"member": 7, **POD, "start": us(10), "end": us(50)}
    parameters = {
        **WINDOW, "parts": json.dumps([part]), "first": us(30), "step": STEP, "lead": lead,
    }  # fmt: skip
    sql = compose_steps("idle/part", SERVING_LOAD, NOTEBOOK_ACTIVITY, f"idle/{name}")
    return list(query(sql, parameters, **{table: [{**POD, **row} for row in rows]}))


@pytest.mark.parametrize("name", ["hosts", "notebooks"])
def test_samples_of_a_part_are_known_by_the_first_later_time(name: str) -> None:
    minutes = (11, 20, 29.9, 30, 39.9, 40, 49.9)
    rows = read_part(name, [{"ts": at(m)} for m in minutes])
    assert [(row["member"], row["k"]) for row in rows] == [(7, -1), (7, 0), (7, 1), (7, 2)]
    early = read_part(name, [{"ts": at(m)} for m in minutes], lead=0)
    assert [row["k"] for row in early] == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "minute", "count"),
    [
        ("hosts", 10, 0), ("hosts", 10.1, 1), ("hosts", 50, 1), ("hosts", 50.1, 0),
        ("notebooks", 10, 0), ("notebooks", 10.1, 1), ("notebooks", 50, 0),
        ("notebooks", 49.9, 1),
    ],
)  # fmt: skip
def test_a_part_has_the_samples_after_its_start(name: str, minute: float, count: int) -> None:
    assert len(read_part(name, [{"ts": at(minute)}])) == count


@pytest.mark.parametrize("name", ["hosts", "notebooks"])
@pytest.mark.parametrize("other", [{"cluster": "b"}, {"namespace": "x"}, {"pod": "q"}])
def test_a_part_has_the_samples_of_its_own_pod(name: str, other: dict[str, str]) -> None:
    assert read_part(name, [{"ts": at(20), **other}]) == []


@pytest.mark.parametrize("name", ["hosts", "notebooks"])
def test_a_part_has_the_samples_of_the_window(name: str) -> None:
    part = {"member": 7, **POD, "start": us(-60), "end": us(120)}
    rules = {**WINDOW, "parts": json.dumps([part]), "first": us(0), "step": STEP, "lead": 9}
    table = "pod_sample" if name == "hosts" else "notebook_sample"
    rows = query(
        compose_steps("idle/part", SERVING_LOAD, NOTEBOOK_ACTIVITY, f"idle/{name}"),
        rules,
        **{table: [{**POD, "ts": at(m)} for m in (-1, 0, 59, 60)]},
    )
    assert [row["k"] for row in rows] == [1, 6]


def test_sums_of_a_host() -> None:
    (row,) = read_part(
        "hosts",
        [
            {"ts": at(21), "cpu_cores": 2.0, "sidecar_cores": 0.5, "net_rx_bps": 3.0,
             "net_tx_bps": 4.0, "fs_write_bps": 5.0, "requests_per_s": 1.0},
            {"ts": at(22), "cpu_cores": 1.0, "net_rx_bps": 9.0, "requests_per_s": 0.0,
             "fs_read_bps": 2.0, "io_pressure_ratio": 0.25, "requests_running": 0.0},
            {"ts": at(23), "requests_per_s": 2.0, "fs_read_bps": 1.0, "fs_write_bps": 1.0,
             "requests_waiting": 3.0, "requests_swapped": 1.0},
            {"ts": at(24)},
        ],
    )  # fmt: skip
    assert (row["cpu"], row["cpu_n"]) == (2.5, 2)
    assert (row["net"], row["net_n"]) == (7.0, 1)
    assert (row["fs"], row["fs_n"]) == (9.0, 3), "what is read and what is written"
    assert (row["io"], row["io_n"]) == (0.25, 1)
    assert row["held_us"] == us(23), "null is not 0"
    assert (row["waiting"], row["running"], row["swapped"]) == (3.0, None, 1.0)
    assert (row["served_n"], row["requests_n"], row["served_us"]) == (2, 3, us(23))


@pytest.mark.parametrize(
    ("load", "unknown", "held"),
    [
        ({"requests_running": 0.0, "requests_waiting": 0.0}, None, None),
        ({"requests_running": 0.0}, us(21), None),
        ({"requests_running": 0.0, "requests_swapped": 0.0}, us(21), None),
        ({"requests_running": 1.0}, None, us(21)),
        ({"requests_running": 0.0, "requests_swapped": 1.0}, None, us(21)),
        ({"requests_waiting": 0.0}, None, None),  # Triton's other backends
        ({"requests_per_s": 0.0}, None, None),
    ],
)
def test_a_queue_that_is_not_known_is_no_empty_one(
    load: dict[str, float], unknown: int | None, held: int | None
) -> None:
    (row,) = read_part("hosts", [{"ts": at(21), **load}])
    assert (row["unknown_load_us"], row["held_us"]) == (unknown, held)


def test_sums_of_a_notebook_server() -> None:
    (row,) = read_part(
        "notebooks",
        [
            {"ts": at(21), "busy_kernels": 1, "last_kernel_activity": at(20),
             "last_terminal_activity": at(19), "last_activity": at(22)},
            {"ts": at(22), "busy_kernels": 2, "last_kernel_activity": at(23.5),
             "last_terminal_activity": at(18)},
            {"ts": at(23), "busy_kernels": 0, "last_kernel_activity": at(15)},
            {"ts": at(24), "busy_kernels": None},
        ],
    )  # fmt: skip
    assert (row["servers_n"], row["busy_n"], row["kernel_n"]) == (4, 2, 3)
    assert (row["busy_us"], row["last_kernel_us"]) == (us(22), us(23.5))
    assert row["last_terminal_us"] == us(19)
    assert row["ahead_us"] == 90 * 1_000_000, "a kernel 1.5 minutes after the sample's own time"


@pytest.mark.parametrize(
    ("reading", "is_known"),
    [
        ({"kernels": 1, "last_kernel_activity": at(15)}, True),
        ({"kernels": 1}, False),
        ({}, False),
        ({"kernels": 0}, True),
        ({"kernels": 0, "terminals": 0}, True),
        ({"kernels": 0, "terminals": 1}, False),
        ({"kernels": 0, "terminals": 1, "last_terminal_activity": at(15)}, True),
        ({"kernels": 0, "busy_kernels": None}, False),
        ({"kernels": 1, "busy_kernels": 1, "terminals": 1}, True),  # it is busy
    ],
)
def test_a_kernel_or_terminal_without_its_time_makes_activity_unknown(
    reading: dict[str, Any], *, is_known: bool
) -> None:
    (row,) = read_part("notebooks", [{"ts": at(21), "busy_kernels": 0, **reading}])
    assert row["unknown_activity_us"] == (None if is_known else us(21))


def read_peers(**pod: Any) -> list[dict[str, Any]]:
    workload = json.dumps([{"owner": 3, **NAMES}])
    row = {**NAMES, "pod": "p", "uid": "u", "created_at": at(0), "last_seen": at(59), **pod}
    return list(query(load_sql("idle/peers"), {**WINDOW, "workloads": workload}, pod=[row]))


@pytest.mark.parametrize(
    ("pod", "started", "waited"),
    [
        ({"phase": "Running", "started_at": at(5)}, 5, 5),
        ({"phase": "Pending", "started_at": at(5)}, 5, 60),  # its images are pulled
        ({"phase": "Pending"}, None, 60),
        ({"phase": "Pending", "last_seen": at(50)}, None, 60),
        ({"phase": "Pending", "last_seen": at(49)}, None, 49),  # no longer listed
        ({"phase": "Running", "last_seen": at(55)}, None, 55),
        ({"phase": "Pending", "deleted_at": at(40)}, None, 40),
        ({"phase": "Failed", "finished_at": at(30), "deleted_at": at(40)}, None, 30),
        ({"phase": "Failed", "started_at": at(5), "finished_at": at(30)}, 5, 5),
        ({"phase": None, "started_at": at(5)}, 5, 5),
    ],
)
def test_a_peer_waits_from_its_creation_until_it_starts_or_is_gone(
    pod: dict[str, Any], started: int | None, waited: int
) -> None:
    (row,) = read_peers(**pod)
    assert (row["owner"], row["created_us"], row["waited_until_us"]) == (3, us(0), us(waited))
    assert row["started_us"] == (None if started is None else us(started))


@pytest.mark.parametrize(
    ("pod", "count"),
    [
        ({"created_at": at(59)}, 1),
        ({"created_at": at(60)}, 0),
        ({"created_at": None, "first_seen": at(1)}, 1),
        ({"cluster": "b"}, 0),
        ({"namespace": "x"}, 0),
        ({"workload_kind": "Deployment"}, 0),
        ({"workload": "v"}, 0),
    ],
)
def test_peers_are_the_pods_of_the_workload_until_the_window_ends(
    pod: dict[str, Any], count: int
) -> None:
    assert len(read_peers(**pod)) == count


def read_band(minutes: list[float], *hours: float, **columns: Any) -> list[tuple[int, float]]:
    """Return the time's number and the band; each hour writes its own number plus 100 watts."""
    rows = [
        {"cluster": "c", "device": "d", "namespace": "", "pod": "", "bucket": at(60 * hour),
         "band_w": 100.0 + hour, "band": "learned", **columns}
        for hour in hours
    ]  # fmt: skip
    device = {"cluster": "c", "device": "d", "gpu_model": "H100"}
    times = [at(m) for m in minutes]
    found = query(
        load_sql("idle/idle_power"),
        {"times": times, "since": times[0], "until": times[-1]},
        signal=rows,
        device=[device],
    )
    assert {(row["gpu_model"], row["band"]) for row in found} <= {("H100", "learned")}
    return [(row["k"], row["band_w"]) for row in found]


def test_the_band_of_an_hour_is_read_half_an_hour_after_it_ended() -> None:
    assert read_band([89.9], 0) == []
    assert read_band([90], 0) == [(0, 100.0)]
    assert read_band([90, 150, 210], 0, 1, 2) == [(0, 100.0), (1, 101.0), (2, 102.0)]
    assert read_band([149.9, 209.9], 0, 1, 2) == [(0, 100.0), (1, 101.0)]


def test_a_band_is_read_for_three_hours() -> None:
    assert read_band([180], 0) == [(0, 100.0)]
    assert read_band([180.1], 0) == []
    assert read_band([90, 180.1], 0) == [(0, 100.0)]


def test_a_band_is_that_of_a_known_device() -> None:
    assert read_band([90], 0, device="e") == []
    assert read_band([90], 0, cluster="b") == []
    assert read_band([90], 0, band_w=None) == []


def read_shares(raw: bool, *rows: dict[str, Any]) -> list[tuple[int | None, int | None]]:
    """Return samples and busy samples of a device from minute 10 to 50."""
    rules = {
        **WINDOW, "exit_threshold": 0.1, "spans": [4], "clusters": ["c"], "devices": ["d"],
        "starts": [us(10)], "ends": [us(50)],
    }  # fmt: skip
    sql = (
        compose_steps(ACTIVE_SAMPLE, "idle/compute_share_samples")
        if raw
        else load_sql("idle/compute_shares")
    )
    named = {"cluster": "c", "device": "d", "node": "n", "namespace": "", "pod": ""}
    table = "sample" if raw else "rollup_5m"
    found = query(sql, rules, **{table: [{**named, **row} for row in rows]})
    return [(row["samples"], row["busy"]) for row in found]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"gr_engine_active": 0.1}, [(1, 1)]),
        ({"gr_engine_active": 0.099}, [(1, 0)]),
        ({"gpu_util_pct": 10.0}, [(1, 1)]),
        ({}, [(0, 0)]),
        ({"gr_engine_active": 0.01, "gpu_util_pct": 10.0, "sm_active": 0.9}, [(1, 0)]),
        ({"gr_engine_active": 0.2, "ts": at(9.9)}, []),
        ({"gr_engine_active": 0.2, "ts": at(10)}, [(1, 1)]),
        ({"gr_engine_active": 0.2, "ts": at(49.9)}, [(1, 1)]),
        ({"gr_engine_active": 0.2, "ts": at(50)}, []),
        ({"gr_engine_active": 0.2, "device": "e"}, []),
        ({"gr_engine_active": 0.2, "cluster": "b"}, []),
    ],
)
def test_a_sample_computes_from_the_exit_threshold_on(
    columns: dict[str, Any], expected: list[tuple[int, int]]
) -> None:
    assert read_shares(True, {"ts": at(20), **columns}) == expected


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"act_max": 0.1}, [(9, 9)]),
        ({"act_max": 0.099}, [(9, None)]),
        ({"act_max": 0.5, "conflict_s": 1.0}, [(9, None)]),
        ({"act_max": 0.5, "bucket": at(5)}, []),
        ({"act_max": 0.5, "bucket": at(10)}, [(9, 9)]),
        ({"act_max": 0.5, "bucket": at(45)}, [(9, 9)]),
        ({"act_max": 0.5, "bucket": at(50)}, []),
        ({"act_max": 0.5, "device": "e"}, []),
        ({"act_max": 0.5, "cluster": "b"}, []),
    ],
)
def test_a_bucket_computes_from_the_exit_threshold_on(
    columns: dict[str, Any], expected: list[tuple[int, int | None]]
) -> None:
    bucket = {"bucket": at(20), "act_n": 9, "conflict_s": 0.0, **columns}
    assert read_shares(False, bucket) == expected


def test_computing_samples_are_those_of_the_window() -> None:
    early, late = {"ts": at(15), "gr_engine_active": 0.5}, {"ts": at(45), "gr_engine_active": 0.5}
    rules = {
        "exit_threshold": 0.1, "spans": [4], "clusters": ["c"], "devices": ["d"],
        "starts": [us(-60)], "ends": [us(90)],
    }  # fmt: skip
    named = {"cluster": "c", "device": "d", "node": "n", "namespace": "", "pod": ""}
    sql = compose_steps(ACTIVE_SAMPLE, "idle/compute_share_samples")
    for since, until, count in ((15, 45, 1), (15, 46, 2), (16, 46, 1)):
        bounds = {"since": at(since), "until": at(until)}
        (row,) = query(sql, rules | bounds, sample=[{**named, **early}, {**named, **late}])
        assert row["samples"] == count
    buckets = [{**named, "bucket": at(m), "act_n": 1, "act_max": 0.5, "conflict_s": 0.0}
               for m in (15, 45)]  # fmt: skip
    for since, until, count in ((15, 45, 1), (15, 46, 2), (16, 46, 1)):
        bounds = {"since": at(since), "until": at(until)}
        (row,) = query(load_sql("idle/compute_shares"), rules | bounds, rollup_5m=buckets)
        assert row["samples"] == count


MEASURES: dict[str, Any] = {
    "energy_mj": 1.0, "pcie_bps_max": 1.0, "nvlink_bps_max": 1.0, "proc_count_max": 1,
    "last_kernel_age_s_min": 1.0,
}  # fmt: skip


def read_measures(*rows: dict[str, Any]) -> dict[str, bool]:
    named = {"cluster": "c", "device": "d", "node": "n", "namespace": "", "pod": "", "bucket": T}
    hours = [{**named, **row} for row in rows]
    (row,) = query(load_sql("idle/rollup_measures"), WINDOW, rollup_1h=hours)
    return dict(row)


@pytest.mark.parametrize(
    ("columns", "measures"),
    [
        ({}, set()),
        ({"energy_mj": 0.0}, {"energy"}),
        ({"pcie_bps_max": 1.0}, {"traffic"}),
        ({"nvlink_bps_max": 1.0}, {"traffic"}),
        ({"proc_count_max": 1}, {"procs"}),
        ({"last_kernel_age_s_min": 1.0}, {"kernels"}),
        ({"interval_s": 100.0}, set()),
        ({"interval_s": 101.0}, {"every"}),
        ({"conflict_s": 0.0}, set()),
        ({"conflict_s": 0.1}, {"every"}),
        ({"energy_mj": 0.0, "bucket": T - HOUR}, {"energy", "traffic", "procs", "kernels",
                                                  "every"}),
        ({"energy_mj": 0.0, "bucket": T + HOUR}, {"energy", "traffic", "procs", "kernels",
                                                  "every"}),
    ],
)  # fmt: skip
def test_a_measure_is_read_where_an_hour_has_it_and_every_one_without_hours(
    columns: dict[str, Any], measures: set[str]
) -> None:
    assert {name for name, value in read_measures(columns).items() if value} == measures


def test_the_hours_of_a_window_begin_with_the_one_that_it_begins_in() -> None:
    named = {"cluster": "c", "device": "d", "node": "n", "namespace": "", "pod": "", "bucket": T}
    sql, since = load_sql("idle/rollup_measures"), at(30)
    (row,) = query(sql, {"since": since, "until": at(60)}, rollup_1h=[{**named, "energy_mj": 1.0}])
    assert (row["energy"], row["traffic"]) == (True, False)


def read_allocations(
    allocation: dict[str, Any], rules: dict[str, Any] | None = None, **tables: Any
) -> list[dict[str, Any]]:
    base = {**NAMES, "device": "d", "pod": "p", "pod_uid": "u", "start": at(-60), "end": at(120)}
    every = {
        **WINDOW, "startup_s": 900.0, "buckets": 1, "bucket": 0, "workloads": [], **(rules or {}),
    }  # fmt: skip
    sql = load_sql("idle/allocations")
    return list(query(sql, every, allocation=[{**base, **allocation}], **tables))


@pytest.mark.parametrize(
    ("allocation", "pod", "first_seen", "start", "end"),
    [
        ({}, {}, None, 0, 60),
        ({"start": at(10), "end": at(50)}, {}, None, 10, 50),
        ({}, {"scheduled_at": at(0)}, None, 15, 60),
        ({}, {"started_at": at(3)}, None, 18, 60),
        ({}, {"scheduled_at": at(0), "started_at": at(3)}, None, 15, 60),
        ({}, {"scheduled_at": at(-15)}, None, 0, 60),
        ({"start": at(10)}, {}, at(5), 10, 60),  # the device itself was new
        ({"start": at(10.1)}, {}, at(5), 25.1, 60),
        ({"start": at(10)}, {}, at(10), 10, 60),
    ],
)
def test_an_allocation_begins_after_the_startup_of_its_pod(
    allocation: dict[str, Any], pod: dict[str, Any], first_seen: Any, start: float, end: float
) -> None:
    device = {"cluster": "c", "device": "d", "first_seen": first_seen}
    (row,) = read_allocations(
        allocation, pod=[{"cluster": "c", "uid": "u", **pod}], device=[device]
    )
    assert (row["start_us"], row["end_us"], row["share"]) == (us(start), us(end), 1.0)


def test_an_allocation_is_that_of_its_own_pod_and_device() -> None:
    started = {"scheduled_at": at(0)}
    for pod in ({"cluster": "b", "uid": "u", **started}, {"cluster": "c", "uid": "v", **started}):
        (row,) = read_allocations({}, pod=[pod])
        assert row["start_us"] == us(0)
    new = {"first_seen": at(-9)}
    for device in ({"cluster": "b", "device": "d", **new}, {"cluster": "c", "device": "e", **new}):
        (row,) = read_allocations({"start": at(10)}, device=[device])
        assert row["start_us"] == us(10)


@pytest.mark.parametrize(
    ("allocation", "rules", "count"),
    [
        ({"start": at(60), "end": at(90)}, {}, 0),
        ({"start": at(59.9), "end": at(90)}, {}, 1),
        ({"start": at(-9), "end": at(0)}, {}, 0),
        ({"start": at(-9), "end": at(0.1)}, {}, 1),
        ({}, {"workloads": ["c/ns/Job/w"]}, 1),
        ({}, {"workloads": ["c/ns/Job/x"]}, 0),
        ({"share": 0.25}, {}, 1),
    ],
)
def test_allocations_are_those_of_the_window_and_the_workloads(
    allocation: dict[str, Any], rules: dict[str, Any], count: int
) -> None:
    rows = read_allocations(allocation, rules)
    assert [row["share"] for row in rows] == [allocation.get("share", 1.0)] * count


def test_each_allocation_is_in_one_bucket() -> None:
    for n in range(9):
        counts = [
            len(read_allocations({"workload": f"w{n}"}, {"buckets": 3, "bucket": b}))
            for b in range(3)
        ]
        assert sorted(counts) == [0, 0, 1]


def read_activity(
    pod_sample: list[dict[str, Any]] | None = None,
    notebook_sample: list[dict[str, Any]] | None = None,
    pod: list[dict[str, Any]] | None = None,
) -> list[tuple[float, float, float]]:
    """Return from, to and known (minutes) of a stretch from minute 10 to 40."""
    hold = {"span": 5, **POD, "pod_uid": "u", "start": us(10), "end": us(40)}
    rules = {
        **WINDOW, "holds": json.dumps([hold]), "after_us": STEP, "cpu_share": 0.1,
        "cpu_cores": 0.3, "bytes_s": 1000.0, "io_pressure": 0.05,
    }  # fmt: skip
    found = query(
        compose_steps(*ACTIVITY_STEPS, "idle/host_activity/activity"),
        rules,
        pod_sample=[{**POD, **row} for row in pod_sample or ()],
        notebook_sample=[{**POD, **row} for row in notebook_sample or ()],
        pod=[{"cluster": "c", **row} for row in pod or ()],
    )
    assert {row["span"] for row in found} <= {5}
    names = ("from_us", "to_us", "known_us")
    return [tuple((row[name] - us(0)) / 60_000_000 for name in names) for row in found]


WORK = {"cpu_cores": 0.9}
REST = {"cpu_cores": 0.0}


def minute_rows(*rows: tuple[float, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"ts": at(minute), **columns} for minute, columns in rows]


def test_a_host_is_active_in_two_samples_in_a_row_from_the_one_before_them() -> None:
    assert read_activity(minute_rows((20, WORK))) == []
    assert read_activity(minute_rows((20, WORK), (25, REST), (30, WORK))) == []
    assert read_activity(minute_rows((15, REST), (20, WORK), (25, WORK), (30, REST))) == [
        (15, 25, 25)
    ]
    assert read_activity(minute_rows((20, WORK), (25, WORK), (30, WORK))) == [
        (20, 25, 25), (20, 30, 30),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "milli", "active"),
    [
        ({"cpu_cores": 0.1}, 500, False),  # of at least one core
        ({"cpu_cores": 0.11}, 500, True),
        ({"cpu_cores": 0.2}, 2000, False),
        ({"cpu_cores": 0.21}, 2000, True),
        ({"cpu_cores": 0.3}, 32000, False),
        ({"cpu_cores": 0.31}, 32000, True),
        ({"cpu_cores": 0.1}, None, False),
        ({"cpu_cores": 0.11}, None, True),
        ({"cpu_cores": 0.9, "sidecar_cores": 0.8}, None, False),
        ({"cpu_cores": 0.9, "sidecar_cores": 0.7}, None, True),
        ({"net_rx_bps": 500.0, "net_tx_bps": 499.0}, None, False),
        ({"net_rx_bps": 500.0, "net_tx_bps": 500.0}, None, True),
        ({"fs_write_bps": 999.0}, None, False),
        ({"fs_write_bps": 1000.0}, None, True),
        ({"fs_read_bps": 999.0}, None, False),
        ({"fs_read_bps": 1000.0}, None, True),
        ({"fs_read_bps": 500.0, "fs_write_bps": 500.0}, None, True),
        ({"io_pressure_ratio": 0.049}, None, False),
        ({"io_pressure_ratio": 0.05}, None, True),
        ({"requests_waiting": 9.0}, None, False),
        ({}, None, False),
    ],
)
def test_a_host_works_above_its_bounds(
    columns: dict[str, Any], milli: int | None, *, active: bool
) -> None:
    pod: list[dict[str, Any]] = [{"uid": "u", "cpu_request_milli": milli}]
    rows = read_activity(minute_rows((20, columns), (25, columns)), pod=pod)
    assert bool(rows) is active
    other: list[dict[str, Any]] = [
        {"uid": "u", "cluster": "b", "cpu_request_milli": 9000},
        {"uid": "v"},
    ]
    small = read_activity(
        minute_rows((20, {"cpu_cores": 0.11}), (25, {"cpu_cores": 0.11})), pod=other
    )
    assert small == [(20, 25, 25)]


def test_a_served_request_is_activity_since_the_sample_before() -> None:
    serve = {"requests_per_s": 0.1}
    assert read_activity(minute_rows((15, {}), (20, serve), (25, {}))) == [(15, 20, 20)]
    assert read_activity(minute_rows((20, serve))) == [(20, 20, 20)]
    assert read_activity(minute_rows((20, {"requests_per_s": 0.0}))) == []


@pytest.mark.parametrize(
    ("minute", "count"), [(9.9, 0), (10, 1), (40, 1), (49.9, 1), (50, 0), (60, 0)]
)
def test_samples_until_shortly_after_a_stretch_count(minute: float, count: int) -> None:
    assert len(read_activity(minute_rows((minute, {"requests_per_s": 1.0})))) == count
    kernels = minute_rows((minute, {"busy_kernels": 1}))
    assert len(read_activity(notebook_sample=kernels)) == count


@pytest.mark.parametrize("other", [{"cluster": "b"}, {"namespace": "x"}, {"pod": "q"}])
def test_activity_is_that_of_the_stretch_s_own_pods(other: dict[str, str]) -> None:
    assert read_activity(minute_rows((20, {"requests_per_s": 1.0, **other}))) == []
    assert read_activity(notebook_sample=minute_rows((20, {"busy_kernels": 1, **other}))) == []


def test_a_busy_kernel_is_activity_since_the_sample_before() -> None:
    rows = minute_rows((15, {"busy_kernels": 0}), (20, {"busy_kernels": 1}), (25, {}))
    assert read_activity(notebook_sample=rows) == [(15, 20, 20)]
    assert read_activity(notebook_sample=minute_rows((20, {"busy_kernels": 2}))) == [(20, 20, 20)]


@pytest.mark.parametrize("name", ["last_kernel_activity", "last_terminal_activity"])
@pytest.mark.parametrize(("minute", "count"), [(10, 0), (10.5, 1), (39.5, 1), (40, 0)])
def test_the_last_activity_within_a_stretch_is_a_moment_known_by_the_first_sample(
    name: str, minute: float, count: int
) -> None:
    rows = minute_rows((42, {name: at(minute)}), (44, {name: at(minute)}))
    assert read_activity(notebook_sample=rows) == [(minute, minute, 42)] * count

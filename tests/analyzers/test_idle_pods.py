"""What was known of the pods of a stretch at each time, from rows by hand."""

from datetime import UTC, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

from analyzers.idle.pods import (
    add_inventory,
    add_peers,
    find_unready,
    join_pods,
    number_pods,
    read_readings,
    sum_readings,
)
from analyzers.idle.signals import compute_most_cores
from fallow.settings.idle import IdleSettings
from fallow.window import Window
from tests.analyzers.queried import T, TableViews, at, us
from warehouse.signals.runs import MICRO

MINUTE = 60 * MICRO
HOUR = 60 * MINUTE
DAY = 24 * HOUR
SETTINGS = IdleSettings()


def window(hours: float = 1) -> Window:
    from_at = T.replace(tzinfo=UTC)
    return Window(from_at, from_at + timedelta(hours=hours))


def hold(start: int, end: int, pod: str = "p", span: int = 0) -> dict[str, Any]:
    return {
        "span": span, "cluster": "c", "namespace": "ns", "pod": pod, "pod_uid": f"uid-{pod}",
        "start": start, "end": end,
    }  # fmt: skip


def row(start: int, end: int, at_us: int, number: int = 0, k: int = 0) -> dict[str, Any]:
    return {"row": number, "span": 0, "k": k, "start": start, "end": end, "at": at_us}


def test_a_pod_holds_from_its_first_device_to_its_last_and_weighs_their_number() -> None:
    holds = pl.DataFrame([hold(5, 20), hold(0, 10), hold(3, 7, "q"), hold(0, 9, span=1)])
    columns = ("pod_number", "span", "pod", "hold_start", "hold_end", "weight")
    assert number_pods(holds).select(columns).rows() == [
        (0, 0, "p", 0, 20, 2), (1, 0, "q", 3, 7, 1), (2, 1, "p", 0, 9, 1),
    ]  # fmt: skip


def pods_of(
    rows: list[dict[str, Any]], holds: list[dict[str, Any]], *, single: bool = False
) -> list[tuple[int, ...]]:
    """Return row, pod number, begin and finish."""
    joined = join_pods(pl.DataFrame(rows), number_pods(pl.DataFrame(holds)), single=single)
    columns = ("row", "pod_number", "begin", "finish")
    return joined.select(columns).sort("row", "pod_number").rows()


def test_a_row_has_the_pods_that_held_a_device_in_it() -> None:
    holds = [hold(0, 10, "a"), hold(0, 11, "b"), hold(19, 40, "c"), hold(20, 40, "d")]
    assert [each[1:4] for each in pods_of([row(10, 20, 20)], holds)] == [(1, 10, 11), (2, 19, 20)]


def test_rows_share_the_readings_of_a_pod_from_the_same_time_on_in_whichever_part_they_are() -> (
    None
):
    numbered = number_pods(pl.DataFrame([hold(0, 100), hold(0, 100, span=1)]))
    rows = [row(10, 20, 20), row(10, 30, 30, 1, 1), row(15, 40, 40, 2, 2)]
    parts = [
        pl.DataFrame(rows).drop("row"),
        pl.DataFrame(row(10, 20, 20) | {"span": 1}).drop("row"),
    ]
    readings = read_readings(TableViews(), window(), parts, numbered, np.array([20, 30, 40]))
    assert readings.members.rows() == [(0, 0, 10), (1, 0, 15), (2, 1, 10)]


@pytest.mark.parametrize(
    ("late", "begin"),
    [
        (0, 2 * DAY),
        (20 * MINUTE, 2 * DAY + 20 * MINUTE),  # it still lasts: the day before its time
        (20 * MINUTE + 1, 2 * DAY),  # it is over: the day before its end
    ],
)
def test_a_single_time_reads_the_last_day(late: int, begin: int) -> None:
    rows = [row(0, 3 * DAY, 3 * DAY + late)]
    holds = [hold(0, 3 * DAY)]
    assert [each[2] for each in pods_of(rows, holds, single=True)] == [begin]
    assert [each[2] for each in pods_of(rows, holds)] == [0]


def unready(
    *events: tuple[float, str], times: tuple[float, ...] = (30,), **event: Any
) -> list[int]:
    """Return the rows, one per time, whose node was not ready."""
    rows = [
        {"cluster": "c", "uid": "e", "ts": at(minute), "kind": "Node", "name": "n",
         "reason": reason, **event}
        for minute, reason in events
    ]  # fmt: skip
    pods = pl.DataFrame(
        [{"row": k, "k": k, "pod_number": 0} for k in range(len(times))],
    )
    places = pl.DataFrame({"pod_number": [0], "cluster": ["c"], "node": ["n"]})
    views: Any = TableViews(event=rows)
    at_us = np.array([us(minute) for minute in times])
    return sorted(find_unready(views, window(), pods, places, at_us)["row"].to_list())


def test_a_node_is_not_ready_by_its_last_event_before_the_time() -> None:
    assert unready() == []
    assert unready((20, "NodeNotReady")) == [0]
    assert unready((20, "NodeNotReady"), (25, "NodeReady")) == []
    assert unready((20, "NodeReady"), (25, "NodeNotReady")) == [0]
    assert unready((30, "NodeNotReady")) == [], "not before"
    assert unready((20, "NodeNotReady"), (40, "NodeReady"), times=(10, 30, 50)) == [1]


@pytest.mark.parametrize(
    "other", [{"name": "m"}, {"cluster": "b"}, {"kind": "Pod"}, {"reason": "Rebooted"}]
)
def test_events_of_other_objects_say_nothing_of_a_node(other: dict[str, Any]) -> None:
    assert unready((20, "NodeNotReady"), **other) == []


def peers(at_minute: float = 30, **pod: Any) -> bool:
    """Return whether a pod of the workload waits or starts at a time."""
    names = {"cluster": "c", "namespace": "ns", "workload_kind": "Job", "workload": "w"}
    base = {**names, "pod": "p", "uid": "u", "phase": "Pending", "created_at": at(10),
            "last_seen": at(59)}  # fmt: skip
    rows = pl.DataFrame([{"row": 0, "owner": 3, "at": us(at_minute), **names}])
    views: Any = TableViews(pod=[base | pod])
    both = add_peers(views, window(), rows, SETTINGS)
    return bool(both["waiting_peer"][0])


@pytest.mark.parametrize(
    ("minute", "pod", "waits"),
    [
        (10, {}, False),
        (10.1, {}, True),
        (40, {"deleted_at": at(40)}, True),
        (40.1, {"deleted_at": at(40)}, False),
        (30, {"phase": "Running", "started_at": at(30)}, True),  # it waited until now
        (30.1, {"phase": "Running", "started_at": at(30)}, True),  # and starts
        (44.9, {"phase": "Running", "started_at": at(30)}, True),
        (45, {"phase": "Running", "started_at": at(30)}, False),
        (29, {"phase": "Running", "started_at": at(30), "created_at": at(29)}, False),
        (30, {"phase": "Running", "started_at": at(30), "created_at": at(30)}, False),
        (30, {"workload": "v"}, False),
    ],
)
def test_a_peer_waits_until_it_starts_and_starts_for_the_grace(
    minute: float, pod: dict[str, Any], *, waits: bool
) -> None:
    assert peers(minute, **pod) is waits


@pytest.mark.parametrize(
    ("milli", "cores"),
    [(None, 0.05), (0, 0.05), (500, 0.05), (2000, 0.1), (6000, 0.3), (9000, 0.3)],
)
def test_a_host_may_use_a_twentieth_of_the_request_and_not_more_than_the_setting(
    milli: int | None, cores: float
) -> None:
    assert compute_most_cores(milli, SETTINGS) == pytest.approx(cores)


class Samples:
    """Samples of hosts and servers of pods p and q, and what is summed of them."""

    def __init__(self, pod_sample: list[Any], notebook_sample: list[Any]) -> None:
        base = {"cluster": "c", "namespace": "ns"}
        self.views: Any = TableViews(
            pod_sample=[base | each for each in pod_sample],
            notebook_sample=[base | each for each in notebook_sample],
        )

    def read(self, minutes: list[float], *pods: str, start: float = 0) -> tuple[Any, Any]:
        """Return the sums of a row per time, by its number; it lasts since `start`."""
        at_us = np.array([us(minute) for minute in minutes])
        rows = [row(us(start), int(time), int(time), k, k) for k, time in enumerate(at_us)]
        numbered = number_pods(pl.DataFrame([hold(us(start), int(at_us[-1]), pod) for pod in pods]))
        joined = join_pods(pl.DataFrame(rows), numbered, single=len(minutes) == 1)
        cores = numbered.select("pod_number", cores=pl.lit(0.25))
        parts = [pl.DataFrame(rows).drop("row")]
        readings = read_readings(self.views, window(72), parts, numbered, at_us)
        found = sum_readings(readings, joined, at_us, cores)
        host, book = ({each["row"]: each for each in frame.rows(named=True)} for frame in found)
        return host, book


def host_sample(minute: float, cpu: float | None = 0.0, pod: str = "p", **more: Any) -> Any:
    return {"ts": at(minute), "pod": pod, "cpu_cores": cpu, **more}


def test_a_row_sums_the_samples_until_its_time() -> None:
    samples = Samples(
        [host_sample(m, cpu=0.2, requests_per_s=float(m == 15)) for m in (5, 15, 25)], []
    )
    host, book = samples.read([10, 20, 30], "p")
    assert [host[k]["cpu_n"] for k in range(3)] == [1, 2, 3]
    assert [round(host[k]["cpu"], 6) for k in range(3)] == [0.2, 0.4, 0.6]
    assert [host[k]["served_n"] for k in range(3)] == [0, 1, 1]
    assert [host[k]["served_us"] for k in range(3)] == [None, us(15), us(15)]
    assert [host[k]["active"] for k in range(3)] == [False] * 3
    assert [host[k]["pods_cpu"] for k in range(3)] == [1] * 3
    assert book == {}


def test_a_row_without_samples_is_absent() -> None:
    samples = Samples([host_sample(25)], [])
    assert sorted(samples.read([10, 20, 30], "p")[0]) == [2]
    assert samples.read([10], "p")[0] == {}


def test_means_are_those_of_the_last_day() -> None:
    """One busy sample at hour 3 counts for a day."""
    hours = [host_sample(60 * h + 30, cpu=9.0 if h == 3 else 0.2) for h in range(40)]
    host, _ = Samples(hours, []).read([60.0 * h for h in range(1, 40)], "p")
    active = [k + 1 for k, each in sorted(host.items()) if each["active"]]
    assert active == list(range(4, 28))
    assert [host[k]["cpu_n"] for k in (0, 22, 23, 24, 37)] == [1, 23, 24, 24, 24]
    for hour, busy in ((27, True), (28, False)):
        single, _ = Samples(hours, []).read([60.0 * hour], "p")
        assert (single[0]["active"], single[0]["cpu_n"]) == (busy, 24)


@pytest.mark.parametrize(
    ("columns", "active"),
    [
        ({"cpu": 0.25}, False),
        ({"cpu": 0.26}, True),
        ({"cpu": None}, False),
        ({"net_rx_bps": 9_999.0, "net_tx_bps": 0.0}, False),
        ({"net_rx_bps": 9_999.0, "net_tx_bps": 1.0}, True),
        ({"fs_write_bps": 9_999.0}, False),
        ({"fs_write_bps": 10_000.0}, True),
    ],
)
def test_a_host_is_active_above_its_bounds(columns: dict[str, Any], *, active: bool) -> None:
    samples = Samples([host_sample(5, **columns)], [])
    for times in ([10.0], [10.0, 20.0]):
        host, _ = samples.read(times, "p")
        assert host[0]["active"] is active


def test_one_active_pod_makes_the_row_active_and_pods_are_counted() -> None:
    quiet = [host_sample(5), host_sample(6, pod="q")]
    busy = [host_sample(5), host_sample(6, 0.9, "q", requests_per_s=0.0)]
    host, _ = Samples(quiet, []).read([10.0], "p", "q")
    assert (host[0]["active"], host[0]["pods_cpu"], host[0]["pods_requests"]) == (False, 2, 0)
    host, _ = Samples(busy, []).read([10.0], "p", "q")
    assert (host[0]["active"], host[0]["pods_cpu"], host[0]["pods_requests"]) == (True, 2, 1)


def test_sums_weigh_a_pod_by_its_devices() -> None:
    samples = Samples([host_sample(5, 0.1), host_sample(6, 0.2, "q")], [])
    host, _ = samples.read([10.0], "p", "p", "q")
    assert host[0]["cpu"] == pytest.approx(0.4)
    assert (host[0]["cpu_n"], host[0]["pods_cpu"]) == (3, 2)


def test_a_row_has_the_latest_of_its_notebook_servers() -> None:
    def server(minute: float, busy: int | None, pod: str = "p", **more: Any) -> Any:
        return {"ts": at(minute), "pod": pod, "busy_kernels": busy, **more}

    servers = [
        server(5, 1, last_kernel_activity=at(4)),
        server(15, 0, last_kernel_activity=at(3), last_terminal_activity=at(2)),
        server(16, 0, "q", last_terminal_activity=at(14)),
    ]
    _, book = Samples([], servers).read([10, 20], "p", "q")
    assert [book[k]["servers_n"] for k in (0, 1)] == [1, 3]
    assert [book[k]["busy_n"] for k in (0, 1)] == [1, 1]
    assert [book[k]["kernel_n"] for k in (0, 1)] == [1, 3]
    assert [book[k]["pods"] for k in (0, 1)] == [1, 2]
    assert [book[k]["busy_us"] for k in (0, 1)] == [us(5), us(5)]
    assert [book[k]["last_kernel_us"] for k in (0, 1)] == [us(4), us(4)]
    assert [book[k]["last_terminal_us"] for k in (0, 1)] == [None, us(14)]
    assert "active" not in book[0]


NAMES = {"cluster": "c", "namespace": "ns", "workload_kind": "Job", "workload": "w"}


@pytest.mark.parametrize(
    ("state", "coverage", "expected"),
    [("idle", 0.9, 0.5), ("idle", 0.4, 0.4), ("partly idle", 0.9, 0.9)],
)
def test_pods_without_telemetry_lower_the_coverage_of_an_idle_workload(
    state: str, coverage: float, expected: float
) -> None:
    """Of two pods with a GPU each, one has no device in evidence."""
    pods = [
        {**NAMES, "pod": f"p{n}", "uid": f"u{n}", "node": f"n{n}", "phase": "Running",
         "gpu_request": 1, "created_at": at(-90), "scheduled_at": at(-90),
         "started_at": at(-90), "first_seen": at(-90), "last_seen": at(90)}
        for n in range(2)
    ]  # fmt: skip
    held = {**NAMES, "device": "d", "pod": "p0", "pod_uid": "u0", "start": at(-90),
            "end": at(90), "share": 1.0}  # fmt: skip
    device = {"cluster": "c", "device": "d", "node": "n0", "weight": 1.0}
    views: Any = TableViews(pod=pods, allocation=[held], device=[device])
    rows = pl.DataFrame(
        [{"row": 0, **NAMES, "start": us(0), "end": us(60), "state": state, "coverage": coverage}]
    )
    (both,) = add_inventory(views, rows).rows(named=True)
    assert both["coverage"] == pytest.approx(expected)
    assert "1 of 2 replicas has no telemetry: p1 on node n1" in both["gap"]
    assert "seen" not in both

"""The last reading of each signal: one that is active or old leaves a workload alone."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actions.loop.recheck import (
    ActivityLimits,
    Recheck,
    SignalReading,
    find_unanswered,
    judge_readings,
    read_signals,
)
from fallow.action_models import Facts, PodRef
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from tests.actions import cases
from tests.actions.cases import NOW
from warehouse.lake import Warehouse

LIMITS = ActivityLimits(0.05, 0.3, timedelta(hours=1))
MINUTE = timedelta(minutes=1)
DETAILS = {"devices": ["GPU-1"], "idle_band_w": 70.0, "rule": {"power_margin_w": 10.0}}


def facts(hours: float = 8, **more: Any) -> Facts:
    window = Window(NOW - timedelta(hours=hours), NOW)
    found = cases.finding(details=DETAILS | more, window=window)
    return cases.facts(finding=found, pods=(PodRef("nb-0"),))


def said(signal: str, value: float | None = None, *, age_s: float = 0, **more: Any) -> Recheck:
    at = NOW - timedelta(seconds=age_s)
    reading = SignalReading(signal, "nb-0", at, **{"interval_s": 60.0, **more}, value=value)
    return judge_readings([reading], facts(), NOW, LIMITS)


@pytest.mark.parametrize(
    ("signal", "rests", "active"),
    [
        ("activity", 0.05, 0.051),
        ("power", 80.0, 80.1),
        ("CPU", 0.05, 0.051),
        ("network", 9_999.0, 10_000.0),
        ("files", 9_999.0, 10_000.0),
        ("I/O pressure", 0.049, 0.05),
        ("requests held", 0.0, 1.0),
        ("requests", 0.0, 0.001),
        ("kernels", 0.0, 1.0),
    ],
)
def test_each_signal_at_both_sides_of_its_limit(signal: str, rests: float, active: float) -> None:
    assert said(signal, rests) == Recheck()
    (why,) = said(signal, active).active
    assert "nb-0" in why


@pytest.mark.parametrize(("cores", "most"), [(None, 0.05), (1.0, 0.05), (4.0, 0.2), (32.0, 0.3)])
def test_a_core_is_no_rest_however_many_are_requested(cores: float | None, most: float) -> None:
    assert said("CPU", most, cores=cores) == Recheck()
    assert said("CPU", most + 0.001, cores=cores).active


@pytest.mark.parametrize("signal", ["kernels", "terminals"])
@pytest.mark.parametrize(("ago_s", "active"), [(65, True), (3599, True), (3600, False)])
def test_what_was_active_within_the_least_duration_is_active(
    signal: str, ago_s: int, active: bool
) -> None:
    found = said(signal, 0.0, active_at=NOW - timedelta(seconds=ago_s))
    assert bool(found.active) == active
    if ago_s == 65:
        assert found.active == (f"{signal[:-1]} active 1m5s ago (nb-0)",)


@pytest.mark.parametrize(("after_s", "active"), [(30, False), (31, True)])
def test_activity_that_the_stretch_began_with_is_not_its_own(after_s: int, active: bool) -> None:
    about = facts(hours=0.5)
    at = about.finding.window.start + timedelta(seconds=after_s)
    reading = SignalReading("terminals", "nb-0", NOW, 60.0, 0.0, at)
    assert bool(judge_readings([reading], about, NOW, LIMITS).active) == active


@pytest.mark.parametrize(("age_s", "old"), [(90, False), (91, True), (720, True)])
def test_a_reading_is_old_after_its_interval_and_30_s(age_s: int, old: bool) -> None:
    found = said("kernels", 0.0, age_s=age_s)
    assert (bool(found.stale), found.active) == (old, ())
    if age_s == 720:
        assert found.stale == ("the last reading of kernels is 12m old (nb-0)",)


@given(
    age_s=st.integers(0, 100_000),
    interval_s=st.floats(1, 3600),
    value=st.floats(0, 1),
    signal=st.sampled_from(["activity", "CPU", "requests", "kernels"]),
)
def test_a_reading_passes_only_when_it_is_fresh_and_at_rest(
    age_s: int, interval_s: float, value: float, signal: str
) -> None:
    found = said(signal, value, age_s=age_s, interval_s=interval_s)
    assert bool(found.stale) == (age_s > interval_s + 30)
    if value > 0.06:
        assert found.active


def rows(lake: Warehouse, table: str, *listed: dict[str, Any]) -> None:
    names = {name: None for row in listed for name in row}
    data: dict[str, object] = {n: [row.get(n) for row in listed] for n in names}
    lake.ingest([Batch.of(table, data)])


def at(ago: timedelta) -> datetime:
    return (NOW - ago).replace(tzinfo=None)


def test_a_queue_that_could_not_be_read_is_stale(settings: Settings) -> None:
    here = {"cluster": "c", "namespace": facts().finding.subject.namespace, "pod": "nb-0"}
    host = here | {"interval_s": 300.0, "requests_running": 0.0}
    with Warehouse.open_in_memory(settings, clock=lambda: NOW) as lake:
        rows(
            lake, "pod_sample",
            host | {"ts": at(11 * MINUTE), "requests_waiting": 0.0},
            host | {"ts": at(6 * MINUTE)},
        )  # fmt: skip
        found = judge_readings(read_signals(lake, facts(), NOW, LIMITS), facts(), NOW, LIMITS)
    assert found.stale == ("the last reading of requests held is 6m old (nb-0)",)


@pytest.mark.parametrize(
    ("reading", "is_known"),
    [
        ({"kernels": 0, "terminals": 0}, True),
        ({"kernels": 0, "terminals": None}, True),
        ({"terminals": 1}, False),
        ({"terminals": 1, "last_terminal_activity": at(90 * MINUTE)}, True),
        ({"last_kernel_activity": None}, False),
        ({"kernels": None, "last_kernel_activity": None}, False),
        ({"busy_kernels": None}, False),
        ({"kernels": 0, "busy_kernels": None}, False),
    ],
)
def test_a_server_of_unknown_activity_is_left_alone(
    settings: Settings, reading: dict[str, Any], *, is_known: bool
) -> None:
    pod = {"cluster": "c", "namespace": facts().finding.subject.namespace, "pod": "nb-0"}
    idle = {"kernels": 1, "busy_kernels": 0, "last_kernel_activity": at(90 * MINUTE)}
    with Warehouse.open_in_memory(settings, clock=lambda: NOW) as lake:
        rows(
            lake, "notebook_sample",
            pod | idle | {"ts": at(MINUTE), "terminals": 0},
            pod | idle | {"ts": at(timedelta())} | reading,
        )  # fmt: skip
        recheck = judge_readings(read_signals(lake, facts(), NOW, LIMITS), facts(), NOW, LIMITS)
    reason = "whether a kernel or terminal of nb-0 is active is not known"
    assert recheck == Recheck((), () if is_known else (reason,))


def test_the_last_of_each_stored_signal_is_read(settings: Settings) -> None:
    space = facts().finding.subject.namespace
    here = {"cluster": "c", "namespace": space, "pod": "nb-0"}
    with Warehouse.open_in_memory(settings, clock=lambda: NOW) as lake:
        device = {"cluster": "c", "device": "GPU-1", "source": "exporters", "interval_s": 60.0}
        rows(
            lake, "sample",
            device | {"ts": at(3 * MINUTE), "sm_active": 0.9, "power_w": 400.0},
            device | {"ts": at(MINUTE), "sm_active": 0.0, "power_w": 70.0},
            device | {"device": "GPU-2", "ts": at(MINUTE), "sm_active": 1.0},
        )  # fmt: skip
        host = here | {"interval_s": 60.0}
        rows(
            lake, "pod_sample",
            host | {"ts": at(9 * MINUTE), "cpu_cores": 0.5, "requests_per_s": 0.0},
            host | {"ts": at(2 * MINUTE), "cpu_cores": 0.51, "sidecar_cores": 0.5}
            | {"net_rx_bps": 1.0, "net_tx_bps": 2.0},
            host | {"ts": at(2 * MINUTE), "pod": "other-0", "cpu_cores": 9.0},
        )  # fmt: skip
        seen = {"kernels": 0, "busy_kernels": 0, "terminals": 1}
        rows(
            lake, "notebook_sample",
            here | seen | {"ts": at(12 * MINUTE), "last_terminal_activity": at(90 * MINUTE)},
        )  # fmt: skip
        rows(lake, "pod", here | {"uid": "u", "cpu_request_milli": 8000})
        found = {r.signal: r for r in read_signals(lake, facts(), NOW, LIMITS)}
    assert (found["activity"].value, found["power"].value) == (0.0, 70.0)
    assert (found["activity"].ts, found["activity"].source) == (NOW - MINUTE, "exporters")
    assert (found["CPU"].ts, found["CPU"].cores) == (NOW - MINUTE, 8.0)
    assert found["CPU"].value == pytest.approx(0.01)
    assert found["network"].value == 3.0
    assert found["requests"].ts == NOW - 8 * MINUTE
    assert found["terminals"].active_at == NOW - 90 * MINUTE
    assert "file writes" not in found
    assert judge_readings(found.values(), facts(), NOW, LIMITS) == Recheck(
        (),
        (
            "the last reading of kernels is 12m old (nb-0)",
            "the last reading of requests is 8m old (nb-0)",
            "the last reading of terminals is 12m old (nb-0)",
        ),
    )


STANDS = "the power of GPU-1 stands still, and may be frozen"
LIVE = {"sm_active": 0.0, "power_w": 70.0}


@pytest.mark.parametrize(
    ("before", "changed_ago", "still"),
    [
        (LIVE, 2, True),
        (LIVE | {"power_w": 70.5}, 59, False),
        (LIVE | {"power_w": 70.5}, 61, True),
        (LIVE | {"energy_mj": 999.0}, 59, False),
        (LIVE | {"energy_mj": 1000.0}, 59, True),
        (LIVE | {"last_kernel_age_s": 60.0}, 59, False),
        (LIVE | {"pcie_tx_bps": 1.0, "pcie_rx_bps": 0.0}, 59, False),
        ({"sm_active": 0.0}, 59, True),
    ],
    ids=[
        "nothing", "power", "power before", "counter", "still counter", "kernel", "traffic",
        "a gap",
    ],
)  # fmt: skip
def test_power_that_stands_still_up_to_the_act_holds_it(
    settings: Settings, before: dict[str, Any], changed_ago: int, still: bool
) -> None:
    """What read the same all day may be frozen since the last change."""
    of_now = LIVE | {"energy_mj": 1000.0, "last_kernel_age_s": 120.0}
    of_now |= {"pcie_tx_bps": 0.0, "pcie_rx_bps": 0.0}
    shown = {name: of_now[name] for name in {**LIVE, **before}}
    device = {"cluster": "c", "device": "GPU-1", "interval_s": 60.0}
    minutes = ((ago, before if ago == changed_ago else shown) for ago in range(70, 0, -1))
    with Warehouse.open_in_memory(settings, clock=lambda: NOW) as lake:
        rows(lake, "sample", *(device | {"ts": at(ago * MINUTE)} | row for ago, row in minutes))
        found = read_signals(lake, facts(), NOW, LIMITS)
    assert judge_readings(found, facts(), NOW, LIMITS).stale == ((STANDS,) if still else ())


@pytest.mark.parametrize(
    ("host", "intent", "held"),
    [("idle", "idle", False), ("idle", "unknown", True), ("unknown", "idle", True)],
)
def test_power_that_stands_still_holds_no_act_that_host_and_intent_decided(
    host: str, intent: str, held: bool
) -> None:
    reading = SignalReading("power", "GPU-1", NOW, 60.0, 70.0, changes=0)
    about = facts(signals={"host": host, "intent": intent})
    assert judge_readings([reading], about, NOW, LIMITS).stale == ((STANDS,) if held else ())


def test_an_instance_has_no_power_that_could_stand_still(settings: Settings) -> None:
    """The gauge is of the whole GPU."""
    device = {"cluster": "c", "device": "GPU-1", "parent": "GPU-0", "interval_s": 60.0}
    with Warehouse.open_in_memory(settings, clock=lambda: NOW) as lake:
        rows(lake, "sample", *(device | {"ts": at(n * MINUTE)} | LIVE for n in range(70, 0, -1)))
        assert judge_readings(read_signals(lake, facts(), NOW, LIMITS), facts(), NOW, LIMITS) == (
            Recheck()
        )


def scrape(collector: str, target: str, *, up: bool, ago: timedelta) -> dict[str, Any]:
    error = None if up else "HTTP 503"
    where = {"cluster": "c", "collector": collector, "target": target}
    return where | {"ts": at(ago), "up": up, "error": error}


@pytest.mark.parametrize(
    ("collector", "target", "held"),
    [
        ("jupyter", "http://nb:8888/", True),
        ("jupyter", "http://other:8888/", False),
        ("prometheus", "http://prom", True),
        ("kubernetes", "https://api/api/v1/pods?limit=500", True),
        ("kubernetes", "https://api/apis/kueue.x-k8s.io", False),
        ("exporters", "http://node-1/metrics", True),
    ],
)
def test_a_source_of_the_case_that_does_not_answer_is_named(
    settings: Settings, collector: str, target: str, held: bool
) -> None:
    device = SignalReading("activity", "GPU-1", NOW - 2 * MINUTE, 300.0, 0.0, source="exporters")
    with Warehouse.open_in_memory(settings, clock=lambda: NOW) as lake:
        rows(
            lake, "scrape",
            scrape(collector, target, up=True, ago=9 * MINUTE),
            scrape(collector, target, up=False, ago=timedelta(seconds=5)),
            scrape("jupyter", "http://old:8888", up=False, ago=9 * MINUTE),
        )  # fmt: skip
        servers = ["http://nb:8888", "http://old:8888"]
        why = find_unanswered(lake, [device], NOW - MINUTE, cluster="c", servers=servers)
        assert why == ((f"{collector} {target} did not answer: HTTP 503",) if held else ())
        rows(lake, "scrape", scrape(collector, target, up=True, ago=timedelta(seconds=1)))
        again = find_unanswered(lake, [device], NOW - MINUTE, cluster="c", servers=servers)
        assert again == ()


def test_an_exporter_that_is_away_holds_no_device_that_another_one_showed(
    settings: Settings,
) -> None:
    device = SignalReading("activity", "GPU-1", NOW, 60.0, 0.0, source="exporters")
    with Warehouse.open_in_memory(settings, clock=lambda: NOW) as lake:
        rows(lake, "scrape", scrape("exporters", "http://n2", up=False, ago=timedelta(seconds=5)))
        assert find_unanswered(lake, [device], NOW - MINUTE, cluster="c") == ()

"""Requests of CPU and memory against a container's own use, at both sides of every threshold."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from analyzers.sizing.analyzer import SizingAnalyzer
from analyzers.waterfall import build_waterfall
from fallow.models import Finding
from tests.analyzers.hourly import GIB, HOURS, NAIVE, Hours

WEEK = 7 * 24 * 12
"""Five-minute rows of a week."""
MAIN: dict[str, Any] = {"name": "main", "cpu_milli": 16_000, "memory_bytes": 128 * GIB, "gpu": True}


def use(
    hours: Hours,
    pod: str,
    *,
    container: str = "main",
    rows: int = WEEK,
    cores: Sequence[float] = (2.0,),
    gib: Sequence[float] = (20.0,),
) -> None:
    """Let a container use so much in the five minutes before the window's end, over and over."""
    end = NAIVE + timedelta(hours=HOURS)
    hours.views.rows(
        "container_sample",
        [
            {
                "cluster": "c", "ts": end - (n + 1) * timedelta(minutes=5), "namespace": "ns",
                "pod": pod, "container": container, "interval_s": 300.0,
                "cpu_cores": cores[n % len(cores)], "memory_bytes": int(gib[n % len(gib)] * GIB),
            }
            for n in range(rows)
        ],
    )  # fmt: skip


def work(hours: Hours, *containers: Mapping[str, Any], **more: Any) -> None:
    """Let a Deployment `w` of one pod on one GPU ask for what its containers say."""
    every: Sequence[Mapping[str, Any]] = containers or (MAIN,)
    wanted = {
        "cpu_request_milli": sum(c.get("cpu_milli", 0) for c in every),
        "memory_request_bytes": sum(c.get("memory_bytes", 0) for c in every),
        "containers": json.dumps(every),
    }
    hours.workload("w", kind="Deployment", pod=wanted, **more)


def found(hours: Hours) -> dict[str, Finding]:
    kinds = ("cpu_request", "memory_request", "cpu_hog", "memory_hog")
    every = SizingAnalyzer().find(hours.views, hours.window)
    return {f.kind: f for f in every if f.kind in kinds}


def asks(hours: Hours) -> dict[str, int]:
    return {
        kind: f.recommendations[0].parameters["ask"]
        for kind, f in found(hours).items()
        if kind.endswith("_request")
    }


@pytest.mark.parametrize(("rows", "known"), [(WEEK - 1, False), (WEEK, True)])
def test_a_week_of_its_own_use_is_the_least(hours: Hours, rows: int, known: bool) -> None:
    hours.node("n0")
    work(hours)
    use(hours, "w-0", rows=rows)
    wanted = {"cpu_request": 2_000, "memory_request": 23 * GIB}
    assert asks(hours) == (wanted if known else {})
    reasons = [r for u in SizingAnalyzer().unjudged(hours.views, hours.window) for r in u.reasons]
    assert any("days of CPU and memory use" in reason for reason in reasons) is not known


def test_cpu_goes_by_the_95th_percentile_and_memory_by_the_most(hours: Hours) -> None:
    """Four of a hundred readings are bursts of 12 cores, and one takes 60 GiB."""
    hours.node("n0")
    work(hours)
    use(hours, "w-0", cores=[12.0] * 4 + [3.0] * 96, gib=[60.0] + [10.0] * 99)
    assert asks(hours) == {"cpu_request": 3_000, "memory_request": 69 * GIB}
    advice = found(hours)["cpu_request"].recommendations[0]
    assert "its peak was 12.00 cores" in (advice.caution or "")


def test_six_bursts_in_a_hundred_are_its_95th_percentile(hours: Hours) -> None:
    hours.node("n0")
    work(hours)
    use(hours, "w-0", cores=[12.0] * 6 + [3.0] * 94)
    assert asks(hours)["cpu_request"] == 12_000


@pytest.mark.parametrize(
    ("cores", "gib", "lowered"),
    [
        (14.4, 100.0, {"cpu_request": 14_400, "memory_request": 115 * GIB}),
        (14.41, 100.2, {}),  # 14.42 and 115.23: less than a tenth below what is asked for
    ],
)
def test_a_tenth_too_much_is_the_least(
    hours: Hours, cores: float, gib: float, lowered: dict[str, int]
) -> None:
    hours.node("n0")
    work(hours)
    use(hours, "w-0", cores=[cores], gib=[gib])
    assert asks(hours) == lowered


@pytest.mark.parametrize("gib", [1.0, 100.0])
def test_a_container_that_was_killed_for_memory_is_never_lowered(hours: Hours, gib: float) -> None:
    hours.node("n0", free_gpus=4)
    work(hours, {**MAIN, "memory_bytes": 512 * GIB, "oom_killed": True})
    use(hours, "w-0", gib=[gib])
    assert set(found(hours)) == {"cpu_request"}  # no memory_hog either
    (result,) = found(hours)["cpu_request"].details["containers"]
    assert result["oom_killed"] is True


def test_another_pod_of_the_workload_that_was_killed_counts(hours: Hours) -> None:
    hours.node("n0")
    work(hours)
    use(hours, "w-0")
    assert "memory_request" in found(hours)
    gone = {
        "cluster": "c", "uid": "gone", "namespace": "ns", "pod": "w-gone", "phase": "Failed",
        "workload_kind": "Deployment", "workload": "w",
        "containers": json.dumps([{**MAIN, "oom_killed": True}]),
    }  # fmt: skip
    hours.views.rows("pod", [gone])
    assert "memory_request" not in found(hours)


def test_each_container_is_judged_by_itself_and_the_largest_is_named(hours: Hours) -> None:
    hours.node("n0")
    side = {"name": "side", "cpu_milli": 20_000, "memory_bytes": GIB}
    work(hours, {**MAIN, "cpu_milli": 8_000}, side)
    use(hours, "w-0", cores=[6.0], gib=[110.0])
    use(hours, "w-0", container="side", cores=[0.5], gib=[0.9])
    assert asks(hours) == {"cpu_request": 500}
    finding = found(hours)["cpu_request"]
    assert finding.recommendations[0].parameters["container"] == "side"
    assert {c["container"]: c["should_ask"]["cpu"] for c in finding.details["containers"]} == {
        "main": 6_000, "side": 500,
    }  # fmt: skip


def test_the_busiest_replica_decides(hours: Hours) -> None:
    hours.node("n0")
    work(hours, ranks=({}, {}), gpus_per_pod=1)
    use(hours, "w-0", cores=[1.0], gib=[5.0])
    use(hours, "w-1", cores=[9.0], gib=[50.0])
    assert asks(hours) == {"cpu_request": 9_000, "memory_request": 58_880 * 2**20}


@pytest.mark.parametrize(
    ("cpu_milli", "free", "blocked_hours", "strands"),
    [(48_000, 4, 48.0, "cpu"), (48_000, 0.5, 24.0, "cpu"), (24_000, 4, 0.0, None)],
)
def test_it_says_which_request_strands_gpus_and_what_they_cost(
    hours: Hours, cpu_milli: int, free: float, blocked_hours: float, strands: str | None
) -> None:
    """A GPU's share of the node is 24 cores: 48 asked for with one GPU keep one more from use."""
    hours.node("n0", free_gpus=free)
    work(hours, {**MAIN, "cpu_milli": cpu_milli})
    use(hours, "w-0", gib=[120.0])
    finding = found(hours)["cpu_request"]
    assert "cpu_hog" not in found(hours)
    assert finding.gpu_hours == blocked_hours
    assert finding.details["request_that_strands_gpus"] == strands
    assert ("free GPUs from use" in finding.recommendations[0].why) == bool(strands)
    if strands:
        assert finding.usd == Decimal("6.88") * Decimal(repr(blocked_hours))
    bill = build_waterfall(hours.views, hours.window, [finding])
    assert bill.bounded().gpu_hours <= bill.bill.gpu_hours


def test_a_hog_that_needs_what_it_asks_for_is_none(hours: Hours) -> None:
    hours.node("n0", free_gpus=4)
    work(hours, {**MAIN, "cpu_milli": 48_000})
    use(hours, "w-0", cores=[46.0], gib=[110.0])
    assert found(hours) == {}


def test_nothing_is_said_of_containers_whose_use_or_request_nobody_tells(hours: Hours) -> None:
    hours.node("n0")
    work(hours, {"name": "main", "gpu": True})
    use(hours, "w-0")
    assert asks(hours) == {}


@pytest.mark.parametrize(("rows", "known"), [(WEEK - 12, False), (WEEK, True)])
def test_replicas_side_by_side_do_not_make_a_week_of_half_a_week(
    hours: Hours, rows: int, known: bool
) -> None:
    hours.node("n0")
    work(hours, ranks=({}, {}), gpus_per_pod=1)
    use(hours, "w-0", rows=rows)
    use(hours, "w-1", rows=rows)
    assert bool(asks(hours)) is known

"""What idle findings cost: the bill's own rate, never more than the bill, never twice."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzers.idle.analyzer import IdleAnalyzer
from fallow.models import Finding
from fallow.settings.idle import IdleSettings
from fallow.window import Window

pytestmark = pytest.mark.slow

Site = Any
DAY = timedelta(days=1)

PLAIN = IdleSettings(
    threshold=0.05,
    exit_threshold=0.05,
    exit_samples=1,
    min_duration=timedelta(minutes=30),
    max_gap=timedelta(minutes=3),
)


def day(site: Site) -> Window:
    return Window(site.start, site.start + DAY)


def find(site: Site, rule: IdleSettings = PLAIN) -> list[Finding]:
    return IdleAnalyzer(rule).find(site.views, day(site))


def test_dollars_are_gpu_hours_times_the_rate(site: Site) -> None:
    site.device("GPU-0", [0.0] * 240)
    site.holds("train", ["GPU-0"], share=0.5)
    site.price("2.50")
    (found,) = find(site)
    assert found.gpu_hours == pytest.approx(2)
    assert found.usd == pytest.approx(Decimal(5), abs=Decimal("0.00001"))


def test_without_a_rate_there_are_no_dollars(site: Site) -> None:
    site.device("GPU-0", [0.0] * 240)
    site.holds("train", ["GPU-0"])
    (found,) = find(site)
    assert found.usd is None


def test_a_stretch_priced_only_in_part_has_no_dollars(site: Site) -> None:
    site.device("GPU-0", [0.0] * 240)
    site.holds("train", ["GPU-0"])
    site.price("2.50", hours=2)
    (found,) = find(site)
    assert found.usd is None


LEVELS: list[float | None] = [0.0, 0.0, 0.03, 0.2, 0.9, None]


@st.composite
def bursts(draw: st.DrawFn) -> list[float | None]:
    """Return activities by the minute, in stretches of one level."""
    level = st.tuples(st.sampled_from(LEVELS), st.integers(1, 90))
    parts = draw(st.lists(level, min_size=1, max_size=8))
    return [value for value, count in parts for _ in range(count)]


@st.composite
def fleets(draw: st.DrawFn) -> list[tuple[str, list[float | None], int]]:
    """Return devices: the workload that holds each, its looks, and when they begin (minutes)."""
    count = draw(st.integers(1, 4))
    return [
        (draw(st.sampled_from(["a", "b"])), draw(bursts()), draw(st.integers(0, 120)))
        for _ in range(count)
    ]


@given(fleets())
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_findings_of_a_device_never_overlap_nor_exceed_the_bill(
    make_site: Callable[[], Site], fleet: list[tuple[str, list[float | None], int]]
) -> None:
    site = make_site()
    for n, (_, values, begin) in enumerate(fleet):
        site.device(f"GPU-{n}", values, begin=timedelta(minutes=begin))
    for workload in ("a", "b"):
        mine = [f"GPU-{n}" for n, (name, _, _) in enumerate(fleet) if name == workload]
        if mine:
            site.holds(workload, mine)
    site.price("2.00")
    found = find(site)
    windows = sorted((f.subject.workload, f.window.start, f.window.end) for f in found)
    for (first, _, end), (second, start, _) in pairwise(windows):
        assert first != second or start >= end
    for f in found:
        assert f.usd is not None
        assert f.gpu_hours <= f.details["devices_held"] * f.window.seconds / 3600 + 1e-6
        assert f.usd <= Decimal(repr(round(f.gpu_hours * 2 + 1e-5, 6)))
    assert sum(f.gpu_hours for f in found) <= len(fleet) * 24
    site.views.engine.close()


@st.composite
def flickers(draw: st.DrawFn) -> list[float | None]:
    """Return rest, work and silence by the minute, with single readings of a little work.

    They are too rare for their mean to be steady low work, which no threshold makes idle.
    """
    level = st.tuples(st.sampled_from([0.0, 0.0, 0.9, None]), st.integers(1, 90))
    parts = draw(st.lists(level, min_size=1, max_size=8))
    values: list[float | None] = [value for value, count in parts for _ in range(count)]
    for at in range(draw(st.integers(0, 19)), len(values), 20):
        if values[at] == 0.0:
            values[at] = draw(st.sampled_from([0.03, 0.2]))
    return values


@given(flickers(), st.floats(0.0, 0.7), st.floats(0.0, 0.1))
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_higher_threshold_never_finds_fewer_idle_hours(
    make_site: Callable[[], Site], values: list[float | None], threshold: float, more: float
) -> None:
    site = make_site()
    site.device("GPU-0", values)
    site.holds("a", ["GPU-0"])
    hours = [
        sum(
            f.gpu_hours
            for f in find(
                site, PLAIN.model_copy(update={"threshold": level, "exit_threshold": level})
            )
        )
        for level in (threshold, threshold + more)
    ]
    assert hours[0] <= hours[1] + 1e-6
    site.views.engine.close()


def test_a_threshold_above_steady_low_work_does_not_make_it_idle(site: Site) -> None:
    site.device("GPU-0", [0.0] * 60 + [0.2] * 60)
    site.holds("a", ["GPU-0"])
    rule = PLAIN.model_copy(update={"threshold": 0.22, "exit_threshold": 0.22})
    assert find(site, rule) == []
    (found,) = find(site)
    assert found.gpu_hours == pytest.approx(1)

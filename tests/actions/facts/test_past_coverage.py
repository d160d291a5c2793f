"""A replay queries workloads again of which a pod was unseen for a part of any finding."""

from datetime import timedelta

import polars as pl
import pytest

from actions.facts.coverage import PastCoverage, find_partly_seen, find_shortest
from tests.warehouse.test_workload_gpus import START, Floor, _naive
from warehouse.workload_gpus import convert_to_us

DAYS = timedelta(days=30)
END = START + DAYS
KEY = ("c", "ml", "Deployment", "web")
STRETCH = timedelta(hours=8)
LONGEST_GAP = STRETCH * 0.05


def _rows(length: timedelta = STRETCH) -> pl.DataFrame:
    start, end = convert_to_us(END - length), convert_to_us(END)
    names = dict(zip(("cluster", "namespace", "workload_kind", "workload"), KEY, strict=True))
    return pl.DataFrame([{"row": 4, "k": 0, **names, "start": start, "end": end}])


def _replicas_with_a_gap(gap: timedelta) -> Floor:
    """Return two replicas that began with the window: one has no allocation before its end."""
    floor = Floor()
    for pod, last in (("web-0", END), ("web-1", END - gap)):
        floor.pod(pod, last_seen=_naive(END))
        floor.telemetry(pod, last=END, end=_naive(last))
    return floor


def _find(floor: Floor, rows: pl.DataFrame) -> frozenset[tuple[str, str, str, str]]:
    return find_partly_seen(floor.views, find_shortest(rows, [convert_to_us(END)]), START, END)


def test_a_replica_unseen_on_the_last_of_thirty_days_is_queried_again() -> None:
    floor = _replicas_with_a_gap(timedelta(days=1))
    assert _find(floor, _rows()) == {KEY}
    past = PastCoverage(floor.views, _rows(), {KEY}, [convert_to_us(END)])
    held_gpus = past.get(4, 0)
    assert held_gpus is not None
    assert held_gpus.coverage == pytest.approx(0.5)
    assert held_gpus.gap is not None


@pytest.mark.parametrize(
    ("gap", "found"),
    [
        (LONGEST_GAP + timedelta(seconds=1), {KEY}),
        (LONGEST_GAP - timedelta(seconds=1), frozenset()),
    ],
)
def test_a_gap_counts_from_a_twentieth_of_the_shortest_finding_on(
    gap: timedelta, found: frozenset[object]
) -> None:
    assert _find(_replicas_with_a_gap(gap), _rows()) == found


def test_a_finding_that_ends_after_its_evaluation_is_as_long_as_until_then() -> None:
    gap = LONGEST_GAP / 2 + timedelta(seconds=1)
    at = [convert_to_us(END - STRETCH / 2)]
    shortest = find_shortest(_rows(), at)
    assert shortest == {KEY: STRETCH // 2 // timedelta(microseconds=1)}
    floor = _replicas_with_a_gap(gap)
    assert find_partly_seen(floor.views, shortest, START, END) == {KEY}


def test_findings_about_no_pods_are_not_queried_again() -> None:
    rows = _rows().with_columns(namespace=pl.lit(""))
    assert find_shortest(rows, [convert_to_us(END)]) == {}
    assert find_partly_seen(Floor().views, {}, START, END) == frozenset()

"""Idle runs of single devices: gaps, hysteresis, and agreement with a plain loop."""

from datetime import timedelta

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from warehouse.signals.runs import (
    BETWEEN,
    BUSY,
    CONFLICT,
    IDLE,
    MICRO,
    DeviceSamples,
    find_idle_runs,
)


def looks(kinds: list[int], steps: list[int] | None = None, *, gap_s: int = 180) -> DeviceSamples:
    """Return one device's looks, `steps` seconds apart (60 unless told)."""
    n = len(kinds)
    at = np.cumsum([0, *(steps or [60] * n)][:n]).astype(np.int64) * MICRO
    return DeviceSamples(
        device=np.zeros(n, dtype=np.int64),
        at=at,
        validity=np.full(n, 60 * MICRO),
        gap=np.full(n, gap_s * MICRO),
        kind=np.array(kinds, dtype=np.int8),
        sample_count=np.ones(n, dtype=np.int64),
        interval_s=np.full(n, 60.0),
        measures={},
    )


def lengths(found: DeviceSamples, *, exit_samples: int = 2, shortest_s: float = 0) -> list[float]:
    runs = find_idle_runs(found, exit_samples=exit_samples, shortest_s=shortest_s)
    return [(e - s) / MICRO for s, e in zip(runs.start, runs.end, strict=True)]


def test_a_run_lasts_from_the_first_idle_look_to_the_last_ones_interval() -> None:
    assert lengths(looks([IDLE] * 10)) == [600]


def test_one_busy_look_does_not_end_a_run_but_two_in_a_row_do() -> None:
    assert lengths(looks([IDLE, IDLE, BUSY, IDLE, IDLE])) == [300]
    assert lengths(looks([IDLE, IDLE, BUSY, BUSY, IDLE])) == [120, 60]


def test_two_busy_looks_with_an_idle_one_between_them_are_not_in_a_row() -> None:
    assert lengths(looks([IDLE, BUSY, IDLE, BUSY, IDLE])) == [300]


def test_with_one_exit_sample_any_busy_look_ends_the_run() -> None:
    assert lengths(looks([IDLE, BUSY, IDLE]), exit_samples=1) == [60, 60]


def test_looks_between_the_thresholds_end_a_run_only_by_their_silence() -> None:
    assert lengths(looks([IDLE, BETWEEN, BETWEEN, IDLE])) == [240]
    assert lengths(looks([IDLE, BETWEEN, BETWEEN, BETWEEN, IDLE])) == [60, 60]


def test_a_silence_of_exactly_the_gap_is_bridged_and_a_longer_one_is_not() -> None:
    assert lengths(looks([IDLE, IDLE], [180])) == [240]
    assert lengths(looks([IDLE, IDLE], [181])) == [60, 60]


def test_a_conflict_ends_a_run_at_once() -> None:
    assert lengths(looks([IDLE, CONFLICT, IDLE])) == [60, 60]


def test_a_run_does_not_cross_from_one_device_to_the_next() -> None:
    both = looks([IDLE] * 4)
    both.device[2:] = 1
    runs = find_idle_runs(both, exit_samples=2, shortest_s=0)
    assert runs.device.tolist() == [0, 1]


def test_no_looks_have_no_runs() -> None:
    assert lengths(looks([])) == []
    assert lengths(looks([BUSY] * 3)) == []


def plain(found: DeviceSamples, exit_samples: int) -> list[tuple[int, int]]:
    """Return the runs by a loop that reads like the definition."""
    out: list[tuple[int, int]] = []
    current: tuple[int, int] | None = None
    streak = 0
    for at, kind, gap in zip(found.at, found.kind, found.gap, strict=True):
        streak = streak + 1 if kind == BUSY else 0
        if current is not None and (kind == CONFLICT or streak >= exit_samples):
            out.append(current)
            current = None
        if kind == IDLE:
            if current is not None and at - current[1] > gap:
                out.append(current)
                current = None
            current = (at, at) if current is None else (current[0], at)
    return [*out, current] if current else out


@given(
    st.lists(
        st.tuples(st.sampled_from([IDLE, IDLE, BETWEEN, BUSY, CONFLICT]), st.integers(1, 240)),
        max_size=80,
    ),
    st.integers(1, 4),
)
def test_runs_are_those_of_a_plain_loop(steps: list[tuple[int, int]], exit_samples: int) -> None:
    found = looks([k for k, _ in steps], [s for _, s in steps])
    runs = find_idle_runs(found, exit_samples=exit_samples, shortest_s=0)
    speaks = round(timedelta(seconds=60).total_seconds() * MICRO)
    got = [(int(s), int(e) - speaks) for s, e in zip(runs.start, runs.end, strict=True)]
    assert got == plain(found, exit_samples)

"""Idle runs cut by holders, and what was known of them at each time, by hand."""

from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest

from analyzers.idle.pieces import count_learned, cut_by_holders, cut_runs
from analyzers.idle.spans import MEASURES
from warehouse.signals.runs import (
    BUSY,
    IDLE,
    MICRO,
    DeviceSamples,
    IdleRuns,
    find_idle_runs,
)

MINUTE = 60 * MICRO


def samples(*devices: str, still: list[bool] | None = None) -> DeviceSamples:
    """Return samples a minute apart: `.` idle, `a` busy, a space no sample."""
    rows = [
        (n, minute, IDLE if mark == "." else BUSY)
        for n, marks in enumerate(devices)
        for minute, mark in enumerate(marks)
        if mark != " "
    ]
    device, minutes, kinds = (np.array(column) for column in zip(*rows, strict=True))
    count = len(rows)
    return DeviceSamples(
        device=device.astype(np.int64),
        at=minutes.astype(np.int64) * MINUTE,
        validity=np.full(count, MINUTE),
        gap=np.full(count, 3 * MINUTE),
        kind=kinds.astype(np.int8),
        sample_count=np.ones(count, dtype=np.int64),
        interval_s=np.full(count, 60.0),
        measures={name: np.full(count, np.nan) for name in MEASURES},
        still=None if still is None else np.array(still, dtype=np.bool_),
    )


def hold(number: int, start: int, end: int, owner: int = 0, share: float = 1.0) -> dict[str, Any]:
    return {"owner": owner, "number": number, "start": start * MINUTE, "end": end * MINUTE,
            "share": share}  # fmt: skip


def test_a_run_is_cut_by_the_holders_of_its_device() -> None:
    runs = IdleRuns(*(np.array([value]) for value in (1, 0, 9, 0, 10 * MINUTE)))
    holds = pl.DataFrame(
        [hold(1, -5, 4), hold(1, 4, 20, 1), hold(1, 10, 12, 2), hold(1, 9, 30, 3), hold(0, 0, 9, 4)]
    )
    cut = cut_by_holders(runs, holds).sort("owner")
    rows = [(o, s // MINUTE, e // MINUTE) for o, s, e in cut.select("owner", "start", "end").rows()]
    assert rows == [(0, 0, 4), (1, 4, 10), (3, 9, 10)]


def cut(
    made: DeviceSamples, times: list[float], *holds: dict[str, Any], shortest: int = 3
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return the pieces (owner, device, start, end, ripe), and those inside times (k, end, n)."""
    runs = find_idle_runs(made, exit_samples=1, shortest_s=shortest * 60)
    at = np.array([round(t * MINUTE) for t in times])
    pieces = cut_runs(made, runs, pl.DataFrame(list(holds)), at, shortest_s=shortest * 60)
    whole = [
        (row["owner"], row["number"], row["start"] / MINUTE, row["end"] / MINUTE,
         row["ripe"] / MINUTE)
        for row in pieces.whole.rows(named=True)
    ]  # fmt: skip
    inside = [
        (row["piece"], row["k"], row["end"] / MINUTE, row["samples"])
        for row in pieces.at.rows(named=True)
    ]
    return whole, inside


def test_a_run_is_known_once_it_is_long_enough() -> None:
    """Ten idle minutes from the second on: the third sample makes three minutes."""
    made = samples("aa..........aa")
    times = [3, 4, 4.5, 5, 8, 11.5, 12, 13]
    whole, inside = cut(made, times, hold(0, 0, 60))
    assert whole == [(0, 0, 2, 12, 4)]
    # At minute 4 the sample of that minute is not yet known.
    assert inside == [(0, 2, 4.5, 3), (0, 3, 5, 3), (0, 4, 8, 6), (0, 5, 11.5, 10)]


@pytest.mark.parametrize(("shortest", "ripe"), [(1, 2), (3, 4), (4, 5), (10, 11)])
def test_a_run_is_ripe_with_the_sample_that_makes_it_long_enough(shortest: int, ripe: int) -> None:
    (piece,), _ = cut(samples("aa..........aa"), [], hold(0, 0, 60), shortest=shortest)
    assert piece[-1] == ripe


def test_a_run_ends_at_each_time_with_the_validity_of_its_last_idle_sample() -> None:
    made = samples(".......  ....")
    _, inside = cut(made, [6.5, 7.5, 8.5, 9.5, 10], hold(0, 0, 60))
    assert [(k, end) for _, k, end, _ in inside] == [(0, 6.5), (1, 7), (2, 7), (3, 9.5), (4, 10)]


def test_each_piece_has_the_samples_of_its_own_holder_and_device() -> None:
    made = samples("......", ".......")
    whole, inside = cut(made, [5], hold(0, 0, 4), hold(0, 4, 60, 1), hold(1, 1, 60, 0))
    assert whole == [(0, 0, 0, 4, 2), (0, 1, 1, 7, 2), (1, 0, 4, 6, 2)]
    assert inside == [(1, 0, 5, 4), (2, 0, 5, 1)]


def test_a_run_without_a_holder_has_no_pieces() -> None:
    assert cut(samples("......"), [5], hold(0, 10, 60)) == ([], [])


def test_a_run_of_repeated_values_is_marked() -> None:
    still = [False] * 4 + [True] * 4
    made = samples("........", still=still)
    runs = find_idle_runs(made, exit_samples=1, shortest_s=60)
    pieces = cut_runs(made, runs, pl.DataFrame([hold(0, 0, 60)]), np.array([60]), shortest_s=60)
    assert pieces.whole["repeats"].to_list() == [False, True]
    live = samples("........")
    runs = find_idle_runs(live, exit_samples=1, shortest_s=60)
    pieces = cut_runs(live, runs, pl.DataFrame([hold(0, 0, 60)]), np.array([60]), shortest_s=60)
    assert pieces.whole["repeats"].to_list() == [False]


def test_a_peak_is_in_the_five_minutes_of_a_run_alone() -> None:
    """Of the busy minutes 3, 4, 7 and 13 of the first device, the run is 0 to 8; 13 is after it."""
    made = samples("...aa..a.    a", "..a.")
    peak = made.kind == BUSY
    made = msgspec.structs.replace(made, peak=peak)
    runs = find_idle_runs(made, exit_samples=3, shortest_s=300)
    held = pl.DataFrame([hold(0, 0, 60), hold(1, 0, 60)])
    cut = cut_runs(made, runs, held, np.array([60]), shortest_s=300)
    assert sorted(cut.peaks.rows()) == [(0, 0), (0, 5 * MINUTE)]
    quiet = cut_runs(
        msgspec.structs.replace(made, peak=None), runs, held, np.array([60]), shortest_s=300
    )
    assert quiet.peaks.is_empty()


def test_idle_power_is_learned_by_the_first_later_time_of_each_model() -> None:
    """Device 0 is allocated from minute 2 on, device 1 always; the models are 1 and 0."""
    made = samples("....", "....")
    watts = np.array([70.4, 70.4, 70.4, 70.6, 99.5, 9999.0, -5.0, np.nan])
    made = DeviceSamples(
        **{name: getattr(made, name) for name in made.__struct_fields__ if name != "measures"},
        measures=made.measures | {"power_w": watts},
    )
    times = np.array([1 * MINUTE, 3 * MINUTE])
    counted = count_learned(made, np.array([1, 0]), np.array([2 * MINUTE, 0]), 2, times)
    assert counted.shape[:2] == (3, 2)
    rows = [(int(k), int(m), int(w), int(counted[k, m, w])) for k, m, w in np.argwhere(counted)]
    most = counted.shape[2] - 1
    assert rows == [(0, 0, 100, 1), (1, 0, 0, 1), (1, 0, most, 1), (1, 1, 70, 3), (2, 1, 71, 1)]

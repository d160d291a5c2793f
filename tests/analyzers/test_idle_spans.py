"""Figures of idle pieces by hand: watts from a counter, silence, shares, and where spans end."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from analyzers.idle.spans import (
    MEASURES,
    find_rows,
    find_stretches,
    is_absent,
    merge_holds,
    split_stretches,
    sum_samples,
)
from warehouse.signals.runs import BUSY, IDLE, MICRO, DeviceSamples

NAN = float("nan")
MB = 1e6


def samples(n: int, *, bucketed: bool = False, step_s: int = 60, **columns: Any) -> DeviceSamples:
    """Return samples of one device, or of those in `device`, a minute apart."""
    still = columns.pop("still", None)
    at = columns.pop("at", range(0, n * step_s, step_s))
    made = {name: np.full(n, NAN) for name in MEASURES}
    made |= {name: np.array(columns.pop(name)) for name in MEASURES if name in columns}
    return DeviceSamples(
        device=np.array(columns.get("device", [0] * n), dtype=np.int64),
        at=np.array(at, dtype=np.int64) * MICRO,
        validity=np.full(n, step_s * MICRO),
        gap=np.full(n, 3 * step_s * MICRO),
        kind=np.array(columns.get("kind", [IDLE] * n), dtype=np.int8),
        sample_count=np.array(columns.get("counts", [1] * n), dtype=np.int64),
        interval_s=np.full(n, float(columns.get("interval_s", step_s))),
        measures=made,
        still=None if still is None else np.array(still, dtype=np.bool_),
        bucketed=bucketed,
    )


def summed(made: DeviceSamples, low: int = 0, high: int | None = None) -> Any:
    """Return the sums of one piece, as plain figures."""
    end = len(made) if high is None else high
    sums = sum_samples(made, np.array([low]), np.array([end]))
    return {name: value[0].item() for name, value in sums.items()}


def test_values_are_absent_only_where_every_one_of_them_is_missing() -> None:
    assert is_absent(np.array([]))
    assert is_absent(np.array([NAN, NAN]))
    assert not is_absent(np.array([NAN, 1.0]))
    assert not is_absent(np.array([1.0, NAN]))


def test_a_mean_is_over_the_samples_that_have_a_value() -> None:
    made = samples(
        4,
        power_w=[NAN, 60.0, 70.0, NAN],
        activity=[NAN, 0.0, 0.01, 0.0099],
        procs=[NAN, 0.0, 1.0, 2.0],
        kernel_age_s=[1.0, 2.0, 3.0, 4.0],
        idle_clock=[1.0, 0.0, 1.0, 0.0],
        kind=[IDLE, IDLE, BUSY, IDLE],
        counts=[1, 2, 4, 8],
    )
    got = summed(made)
    assert got["power_w"] == 65.0
    assert got["low"] == pytest.approx(1 / 3)
    assert got["procs"] == pytest.approx(2 / 3)
    assert (got["kernel_age_s"], got["idle_clock"]) == (4.0, 0.5)
    assert (got["samples"], got["idle_samples"], got["interval_s"]) == (15, 11, 60.0)
    part = summed(made, 1, 3)
    assert (part["kernel_age_s"], part["samples"], part["idle_samples"]) == (3.0, 6, 2)
    assert np.isnan(summed(made, 0, 1)["power_w"])


def test_a_piece_without_a_sample_has_no_figures() -> None:
    got = summed(samples(3, power_w=[1.0, 2.0, 3.0]), 1, 1)
    assert np.isnan(got["power_w"])
    assert (got["samples"], got["silent_us"]) == (0, 0)


def test_watts_come_from_the_increase_of_the_energy_counter() -> None:
    counter = [10_000.0, 610_000.0, 1_810_000.0, 60_000.0]  # + 600 J, + 1200 J, then from zero
    made = samples(4, power_w=[50.0] * 4, energy_mj=counter)
    assert summed(made, 0, 2)["power_w"] == 10.0
    assert summed(made, 0, 3)["power_w"] == 15.0
    assert summed(made)["power_w"] == pytest.approx(1860 / 180)
    assert summed(made, 1, 3)["power_w"] == 20.0
    assert summed(made, 3, 4)["power_w"] == 50.0, "one reading has no increase: the gauge serves"
    gap = samples(4, power_w=[50.0] * 4, energy_mj=[0.0, NAN, 600_000.0, 1_200_000.0])
    assert summed(gap)["power_w"] == 10.0, "an increase over a hole has no time of its own"


def test_watts_of_buckets_come_from_the_energy_that_they_used() -> None:
    used = [1_500.0, 3_000.0, NAN]  # 1.5 J and 3 J in 300 s each
    made = samples(3, bucketed=True, step_s=300, power_w=[50.0] * 3, energy_mj=used)
    assert summed(made, 0, 1)["power_w"] == 0.005
    assert summed(made)["power_w"] == 0.0075
    assert summed(made, 2, 3)["power_w"] == 50.0


def test_a_counter_that_stands_still_measures_nothing() -> None:
    got = summed(samples(11, power_w=[50.0] * 11, energy_mj=[5_000.0] * 11))
    assert got["power_w"] == 50.0
    assert not got["still"]


@pytest.mark.parametrize(
    ("gauge", "counter", "minutes", "contrary"),
    [
        (60.0, 40.0, 10, False),  # 20 W above
        (60.0, 39.9, 10, True),
        (60.0, 39.9, 9, False),  # for less than ten minutes
        (200.0, 150.0, 10, False),  # a quarter above
        (200.0, 149.9, 10, True),
        (40.0, 60.1, 10, False),  # a counter above the gauge saw bursts
    ],
)
def test_a_counter_below_the_gauge_is_a_contradiction(
    gauge: float, counter: float, minutes: int, *, contrary: bool
) -> None:
    energy = [counter * 60_000 * n for n in range(minutes + 1)]
    made = samples(minutes + 1, power_w=[gauge] * (minutes + 1), energy_mj=energy)
    assert summed(made)["contrary"] == contrary


def test_a_piece_of_repeated_values_is_still() -> None:
    assert summed(samples(3, still=[True] * 3))["still"]
    assert not summed(samples(3, still=[False] * 3))["still"]


W, BEFORE = 110.0, 500.0


@pytest.mark.parametrize(
    ("columns", "changes", "readings"),
    [
        ({"power_w": [BEFORE, W, W, W]}, 0, 3),
        ({"power_w": [BEFORE, W, W, W + 0.1]}, 1, 3),
        ({"power_w": [BEFORE, NAN, W, W]}, 0, 2),
        ({"power_w": [W, W, NAN, W]}, 0, 2),
        ({"power_w": [W, W, NAN, W + 0.1]}, 1, 2),
        ({"energy_mj": [0.0, 5.0, 5.0, 5.0]}, 0, 0),
        ({"energy_mj": [0.0, 5.0, 5.0, 6.0]}, 1, 0),
        ({"power_w": [W] * 4, "energy_mj": [0.0, 5.0, 6.0, 7.0]}, 2, 3),
        ({"power_w": [W] * 4, "traffic_bps": [9.0, 0.0, 0.0, 1.0]}, 1, 3),
        ({"power_w": [W] * 4, "kernel_age_s": [0.0, 60.0, 120.0, 120.0]}, 1, 3),
        ({"power_w": [W] * 4, "procs": [1.0, 1.0, 0.0, 0.0]}, 0, 3),
        ({}, 0, 0),
    ],
)
def test_changes_within_a_piece_are_counted_of_what_moves_on_a_live_device(
    columns: dict[str, Any], changes: int, readings: int
) -> None:
    columns = {"power_w": [NAN] * 4, **columns}
    found = summed(samples(4, still_w=columns["power_w"], **columns), 1)
    assert (found["changes"], found["readings"]) == (changes, readings)


@pytest.mark.parametrize(
    ("columns", "changes"),
    [
        ({"power_w": [W] * 3, "still_w": [W] * 3}, 0),
        # Means of equal readings may differ in their last digit.
        ({"power_w": [W, W + 1e-9, W], "still_w": [W] * 3}, 0),
        ({"power_w": [W] * 3, "still_w": [W, W, NAN]}, 1),
        ({"power_w": [W] * 3, "still_w": [W, NAN, W]}, 1),
        ({"power_w": [W, W, NAN], "still_w": [W, W, NAN]}, 0),
        ({"power_w": [W, W, W + 1], "still_w": [W, W, W + 1]}, 1),
        ({"power_w": [W] * 3, "still_w": [W] * 3, "energy_mj": [0.0, 0.0, 0.0]}, 0),
        ({"power_w": [W] * 3, "still_w": [W] * 3, "energy_mj": [5.0, 5.0, 5.0]}, 2),
        ({"energy_mj": [5.0, 5.0, 5.0]}, 2),
    ],
)
def test_changes_of_buckets_are_those_within_them_too(
    columns: dict[str, Any], changes: int
) -> None:
    assert summed(samples(3, bucketed=True, step_s=300, **columns), 1)["changes"] == changes


def test_pieces_of_two_devices_count_their_own_changes() -> None:
    made = samples(4, device=[0, 0, 1, 1], power_w=[W, W, 60.0, 61.0], still_w=[W, W, 60.0, 61.0])
    sums = sum_samples(made, np.array([0, 2]), np.array([2, 4]))
    assert sums["changes"].tolist() == [0, 1]


def test_traffic_counts_above_the_least_of_its_own_device() -> None:
    rates = [3 * MB, 4 * MB, 4.1 * MB, 9 * MB, 9 * MB, NAN]
    made = samples(6, device=[0, 0, 0, 1, 1, 1], at=[0, 60, 120, 0, 60, 120], traffic_bps=rates)
    assert summed(made, 0, 3)["traffic"] == pytest.approx(1 / 3)
    assert summed(made, 3, 6)["traffic"] == 0.0
    falling = samples(3, traffic_bps=[4.1 * MB, 3 * MB, 4.1 * MB])
    assert summed(falling)["traffic"] == pytest.approx(1 / 3), "later samples say nothing of it"


def test_silence_is_what_no_sample_is_valid_for() -> None:
    made = samples(3, at=[0, 60, 200])
    assert summed(made)["silent_us"] == 65 * MICRO, "140 s less 1.25 times 60"
    assert summed(made, 0, 2)["silent_us"] == 0
    assert summed(made, 1, 3)["silent_us"] == 65 * MICRO
    few = samples(3, bucketed=True, step_s=300, counts=[4, 10, 1], interval_s=30)
    assert summed(few)["silent_us"] == 150 * MICRO, "4 samples of 30 s are valid for 150 s"


def test_rows_of_a_piece_are_those_of_its_device_and_time() -> None:
    made = samples(5, device=[0, 0, 0, 1, 1], at=[0, 60, 120, 0, 60])
    cut = pl.DataFrame(
        {
            "number": [0, 0, 0, 1, 1],
            "start": [0, 1 * MICRO, 60 * MICRO, 0, 60 * MICRO],
            "end": [120 * MICRO, 121 * MICRO, 60 * MICRO, 900 * MICRO, 61 * MICRO],
            "first": [0, 0, 0, 3, 3],
            "last": [2, 1, 2, 4, 4],
        }
    )
    low, high = find_rows(made, cut)
    assert list(zip(low.tolist(), high.tolist(), strict=True)) == [
        (0, 2), (1, 2), (1, 1), (3, 5), (4, 5),
    ]  # fmt: skip


def hold(start: int, end: int, share: float = 1.0, owner: int = 0, number: int = 0) -> Any:
    return {"owner": owner, "number": number, "start": start, "end": end, "share": share}


def test_pods_of_one_owner_are_one_hold_and_their_shares_add_up_to_one() -> None:
    holds = pl.DataFrame([hold(0, 10, 0.25), hold(5, 20, 0.5), hold(30, 40), hold(30, 50, 0.5)])
    assert [tuple(row) for row in merge_holds(holds).rows()] == [
        (0, 0, 0, 5, 0.25),
        (0, 0, 5, 10, 0.75),
        (0, 0, 10, 20, 0.5),
        (0, 0, 30, 40, 1.0),
        (0, 0, 40, 50, 0.5),
    ]


def piece(number: int, start: int, end: int, gpus: float = 1.0) -> Any:
    return {"owner": 0, "number": number, "start": start, "end": end, "gpus": gpus}


def test_a_workload_is_idle_while_all_its_devices_are_and_partly_while_some_are() -> None:
    holds = pl.DataFrame([piece(0, 0, 100), piece(1, 0, 100)])
    cut = pl.DataFrame([piece(0, 10, 60), piece(1, 40, 80, 0.5)])
    assert find_stretches(cut, holds).rows(named=True) == [
        {"owner": 0, "state": "partly idle", "start": 10, "end": 40, "devices": 2, "idle": 1,
         "gpu_us": 30.0},
        {"owner": 0, "state": "idle", "start": 40, "end": 60, "devices": 2, "idle": 2,
         "gpu_us": 30.0},
        {"owner": 0, "state": "partly idle", "start": 60, "end": 80, "devices": 2, "idle": 1,
         "gpu_us": 10.0},
    ]  # fmt: skip


def test_work_splits_a_stretch_where_it_begins_and_ends() -> None:
    stretches = pl.DataFrame({"span": [0, 1], "start": [0, 50], "end": [100, 60]})
    works = pl.DataFrame({"span": [0, 0], "from_us": [-5, 40], "to_us": [10, 100]})
    assert split_stretches(stretches, works).rows() == [
        (0, 0, 10), (0, 10, 40), (0, 40, 100), (1, 50, 60),
    ]  # fmt: skip

"""Frozen telemetry, the idle band and rows among active ones: both sides of each limit, by hand."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from fallow.gpu_models import read_gpu_models
from warehouse.signals.frozen import classify_samples
from warehouse.signals.power_band import BINS, IdleBand, learn_band
from warehouse.signals.runs import MICRO, DeviceSamples, IdleRuns
from warehouse.signals.states import (
    REACH_US,
    _flag_among,
    _flag_beside,
    _flag_joined,
    _measure_runs,
)

NAN = float("nan")


def samples(
    n: int, *, step_s: float = 30, bucketed: bool = False, counts: int = 1, **columns: Any
) -> DeviceSamples:
    at = (np.arange(n) * step_s * MICRO).astype(np.int64)
    device = np.array(columns.get("device", [0] * n), dtype=np.int64)
    return DeviceSamples(
        device=device,
        at=at,
        validity=np.full(n, int(step_s * MICRO)),
        gap=np.full(n, int(3 * step_s * MICRO)),
        kind=np.ones(n, dtype=np.int8),
        sample_count=np.full(n, counts),
        interval_s=np.full(n, step_s),
        measures={
            "power_w": np.array(columns.get("power_w", [NAN] * n), dtype=float),
            "still_w": np.array(
                columns.get("still_w", columns.get("power_w", [NAN] * n)), dtype=float
            ),
            "energy_mj": np.array(columns.get("energy_mj", [NAN] * n), dtype=float),
        },
        bucketed=bucketed,
    )


def classes(*arguments: Any, **columns: Any) -> list[int]:
    return [int(kind) for kind in classify_samples(samples(*arguments, **columns))]


def test_an_energy_counter_stands_still_from_ten_minutes() -> None:
    assert classes(21, energy_mj=[5.0] * 21) == [0] + [1] * 20
    assert classes(20, energy_mj=[5.0] * 20) == [0] * 20
    assert classes(22, energy_mj=[4.0] + [5.0] * 21) == [0] * 2 + [1] * 20
    assert classes(21, energy_mj=[5.0] * 20 + [6.0]) == [0] * 21
    assert classes(22, energy_mj=[5.0] * 22, device=[0] * 11 + [1] * 11) == [0] * 22
    assert classes(22, energy_mj=[NAN] * 21 + [1.0]) == [0] * 22


@pytest.mark.parametrize(
    ("energy", "expected"),
    [
        ([5, 0, 0], [0, 1, 1]),
        ([5, 0, 5], [0, 0, 0]),
        ([0, 0, 0], [1] * 3),
        ([0, 0, 5], [0] * 3),
        ([5, 5, 5], [0] * 3),
        ([5, 0, 0, 7, 0], [0, 1, 1, 0, 0]),
    ],
)
def test_buckets_without_energy_repeat_from_ten_minutes(
    energy: list[float], expected: list[int]
) -> None:
    assert classes(len(energy), step_s=300, bucketed=True, energy_mj=energy) == expected


def test_a_counter_that_stands_still_is_unknown_with_power_that_stands_still_or_moves() -> None:
    flat = {"energy_mj": [5.0] * 21}
    assert classes(21, power_w=[100.0] * 21, **flat) == [0] + [1] * 20
    assert classes(21, power_w=[100.0] * 20 + [101.0], **flat) == [0] + [1] * 20, "a contradiction"
    assert classes(21, power_w=[0.0] * 21, **flat) == [0] * 21, "no sensor"
    buckets = {"step_s": 300, "bucketed": True, "energy_mj": [0.0] * 3, "power_w": [100.0] * 3}
    assert classes(3, still_w=[100.0] * 3, **buckets) == [1] * 3
    assert classes(3, still_w=[NAN] * 3, **buckets) == [1] * 3, "a contradiction"


MODEL = next(m for m in read_gpu_models() if m.gpu_model == "H100")
PRIOR = MODEL.idle_context_w


def band(**counts: int) -> IdleBand:
    """Return the band that so many samples of watts teach: `w70=3` is three samples of 70 W."""
    histogram = np.zeros((1, BINS), dtype=np.int64)
    for watts, count in counts.items():
        histogram[0, int(watts[1:])] = count
    return learn_band([MODEL.gpu_model], histogram)[MODEL.gpu_model]


def test_a_band_is_learned_from_240_samples() -> None:
    assert band(w70=239) == IdleBand(PRIOR, "prior", 239)
    assert band(w70=240) == IdleBand(70.0, "learned", 240)


def test_the_band_is_the_mode_between_the_quantiles_of_five_and_twenty_per_cent() -> None:
    assert band(w60=50, w70=70, w80=880).watts == 80.0, "80 of the 150 in between"
    assert band(w60=50, w70=76, w80=874).watts == 70.0
    assert band(w60=50, w70=160, w80=790).watts == 70.0
    assert band(w60=120, w70=80, w80=800).watts == 70.0, "70 of 60 W are in between, 80 of 70 W"
    assert band(w60=126, w70=74, w80=800).watts == 60.0, "76 against 74"


def test_an_absurd_band_is_the_prior() -> None:
    most = int(1.5 * PRIOR)
    assert band(**{f"w{most}": 240}).source == "learned"
    assert band(**{f"w{most + 1}": 240}) == IdleBand(PRIOR, "prior", 240)
    assert band(w0=240) == IdleBand(PRIOR, "prior", 240)
    assert band(w1=240) == IdleBand(1.0, "learned", 240)


def among(
    pattern: str, *, above: bool = False, step_s: float = 300, lines: list[int] | None = None
) -> str:
    """Return `x` per row between active ones: `a` active, `.` a zero, `s` in a stretch."""
    n = len(pattern)
    letters = np.array(list(pattern))
    flags = _flag_among(
        np.array(lines or [0] * n),
        (np.arange(n) * step_s * MICRO).astype(np.int64),
        stretch=letters == "s",
        active=letters == "a",
        above=np.full(n, above),
        gap=np.full(n, 300 * MICRO),
        reach=REACH_US,
    )
    return "".join("x" if flag else "-" for flag in flags)


def test_zeros_between_active_rows_are_low() -> None:
    assert among(".a..a.") == "--xxx-"
    assert among(".a..a.", above=True) == "--xxxx"
    assert among("......", above=True) == "------"
    assert among("a..a", lines=[0, 0, 1, 1]) == "----"
    assert among("") == ""


def test_active_rows_are_searched_for_an_hour() -> None:
    assert among("a" + "." * 11 + "a") == "-" + "x" * 12
    assert among("a" + "." * 12 + "a") == "-" + "x" * 12 + "-"
    assert among("a" + "." * 13 + "a") == "--" + "x" * 11 + "--", "an hour either way"
    assert among("a" + "." * 12, above=True, step_s=300.05) == "-" + "x" * 11 + "-"
    assert among("a" + "." * 13, above=True) == "-" + "x" * 12 + "-"


def test_a_stretch_or_a_silence_cuts_and_the_row_before_a_stretch_is_its_own() -> None:
    assert among("a.sa.") == "-----"
    assert among("a..sa", above=True) == "-x---"
    assert among("a.a", step_s=600) == "-xx"
    assert among("a.a", step_s=601) == "---"


def test_the_row_beside_a_stretch_is_of_its_line() -> None:
    stretch, line = np.array([False, True, True, False, False]), np.array([0, 0, 0, 0, 1])
    joined = join_rows(line)
    assert _flag_beside(stretch, joined).tolist() == [True, True, False, False, False]
    assert _flag_beside(stretch, joined, -1).tolist() == [False, False, True, True, False]
    other = join_rows(np.array([0, 1, 1, 2, 2]))
    assert not _flag_beside(stretch, other)[0]
    assert not _flag_beside(stretch, other, -1)[3]


def test_a_row_follows_the_one_before_up_to_three_intervals_and_two_rows() -> None:
    line = np.zeros(2, dtype=np.int64)
    for interval_s, apart_s, joined in (
        (60, 600, True),
        (60, 601, False),
        (300, 900, True),
        (300, 901, False),
    ):
        at = np.array([0, apart_s * 1_000_000])
        gap = np.full(2, interval_s * 3_000_000)
        assert _flag_joined(line, at, gap).tolist() == [joined], (interval_s, apart_s)


def join_rows(line: Any) -> Any:
    """Return which rows follow the one before, five minutes apart."""
    at = np.arange(len(line)) * 300_000_000
    return _flag_joined(line, at, np.full(len(line), 300_000_000))


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (1, 2, 600 + 100 + 40),  # the idle seconds of the rows on both sides count
        (0, 2, 900 + 40),  # nothing before
        (2, 3, 600 + 20),  # a hole after it
        (4, 4, 300),  # a hole before it, another line after it
        (5, 5, 300 + 60),
        (6, 6, 300 + 50),  # nothing after
    ],
)
def test_a_run_begins_and_ends_within_the_rows_beside_it(
    first: int, last: int, expected: float
) -> None:
    at = np.array([0, 300, 600, 900, 1800, 2100, 2400]) * MICRO
    idle = [100.0, 20.0, 30.0, 40.0, 90.0, 50.0, 60.0]
    line = np.array([0, 0, 0, 0, 0, 1, 1])
    rows = pl.DataFrame({"at_us": at, "idle_s": idle})
    begin, final = np.array([first]), np.array([last])
    runs = IdleRuns(line[begin], begin, final, at[begin], at[final] + 300 * MICRO)
    assert _measure_runs(rows, line, runs).tolist() == [expected]

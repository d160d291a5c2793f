"""Power above the idle band by more than the margin is low use, whatever the utilisation says.

One definition (`power_band.is_above_band`) for the ledger's five minutes and for the newest
samples, which are not accounted yet; from both sides of the margin.
"""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
import pytest

from analyzers.idle.samples import drop_above_band
from analyzers.idle.spans import MEASURES
from fallow.settings import Settings
from warehouse.signals.power_band import EnergyRows, is_above_band
from warehouse.signals.runs import CONFLICT, IDLE, MICRO, DeviceSamples
from warehouse.signals.states import name_states

BAND_W, MARGIN_W = 117.0, 10.0
NAN = float("nan")
SIDES = [
    pytest.param(127.0, NAN, True, id="power-within"),
    pytest.param(127.1, NAN, False, id="power-above"),
    pytest.param(NAN, 127.0, True, id="energy-within"),
    pytest.param(NAN, 127.1, False, id="energy-above"),
    pytest.param(117.0, 166.0, False, id="bursts-the-gauge-missed"),
    pytest.param(NAN, NAN, True, id="neither"),
]
"""Mean watts of the gauge, watts by the energy counter, whether it is idle."""


def name_rules(power_w: float, energy_w: float, *, shares: bool = False) -> set[str | None]:
    """Return the rules of two hours of zeros that have this power."""
    count = 24
    at = [n * 300 * MICRO for n in range(count)]
    columns: dict[str, Any] = {
        "owner": 0, "shares": shares, "stream": 0, "hold": 0, "kind": IDLE, "allocated": True,
        "active": False, "interval_s": 30.0, "sample_count": 10, "idle_s": 300.0, "low_s": 0.0,
        "busy_s": 0.0, "unknown_s": 0.0, "hot_s": 0.0, "activity": 0.0, "power_w": power_w,
        "energy_mj": energy_w * 300 * 1000, "still_w": NAN, "band_w": BAND_W, "spins": False,
    }  # fmt: skip
    rows = pl.DataFrame({"at_us": at, **{n: [v] * count for n, v in columns.items()}}).with_columns(
        pl.col("kind").cast(pl.Int8),
        bucket=pl.from_epoch("at_us", time_unit="us"),
    )
    named = name_states(rows, Settings())
    assert (named["idle_s"] + named["low_s"]).to_list() == [300.0] * count
    return {rule if idle else "low" for rule, idle in named.select("rule", "idle_s").iter_rows()}


@pytest.mark.parametrize(("power_w", "energy_w", "idle"), SIDES)
def test_five_minutes_are_idle_within_the_margin(
    power_w: float, energy_w: float, *, idle: bool
) -> None:
    assert name_rules(power_w, energy_w) == ({"stretch"} if idle else {"low"})


INTERVALS_S = [15.0, 30.0, 60.0, 120.0, 300.0]


def above_band(energy_w: Any, counts: Any, interval_s: float) -> list[bool]:
    """Return which five minutes of so many readings are above the band by their energy."""
    counts = np.asarray(counts, dtype=float)
    joules = np.asarray(energy_w, dtype=float) * 1000 * interval_s
    rows = EnergyRows(joules, counts * interval_s, np.full(len(counts), interval_s))
    line = np.zeros(len(counts), dtype=np.int64)
    limit_w = np.full(len(counts), BAND_W + MARGIN_W)
    return [bool(x) for x in is_above_band(line, np.full(len(counts), NAN), rows, limit_w)]


@pytest.mark.parametrize("interval_s", INTERVALS_S)
def test_a_missed_or_a_late_reading_is_no_power_above_the_band(interval_s: float) -> None:
    """Each reading's counter has `BAND_W` since the one before: one of them is missing."""
    held = round(300 / interval_s)
    seen = np.full(24, held)
    seen[12] = max(held - 1, 1)
    ended = np.full(24, held)
    # With one reading in five minutes its increase may be of the next scrape.
    ended[7], ended[8] = held + 1, held - 1
    assert not any(above_band(ended * BAND_W, seen, interval_s))


@pytest.mark.parametrize("interval_s", INTERVALS_S)
def test_a_burst_is_work_in_its_own_five_minutes_only(interval_s: float) -> None:
    held = round(300 / interval_s)
    used = np.full(24, held * BAND_W)
    used[12] = held * 600.0
    assert above_band(used, np.full(24, held), interval_s) == [n == 12 for n in range(24)]


def test_the_power_of_a_shared_gpu_does_not_describe_one_of_its_pods() -> None:
    assert name_rules(190.0, NAN, shares=True) == {"stretch"}


@pytest.mark.parametrize("bucketed", [False, True])
@pytest.mark.parametrize(("power_w", "energy_w", "idle"), SIDES)
def test_the_newest_samples_follow_the_same_rule(
    power_w: float, energy_w: float, *, idle: bool, bucketed: bool
) -> None:
    step_s = 300 if bucketed else 30
    count = 1 + 3600 // step_s
    origin = round(datetime(2026, 11, 2, tzinfo=UTC).timestamp())
    used = np.full(count, energy_w * step_s * 1000)
    measures = {name: np.full(count, NAN) for name in MEASURES}
    measures |= {
        "power_w": np.full(count, power_w),
        "energy_mj": used if bucketed else np.cumsum(used),
    }
    samples = DeviceSamples(
        device=np.zeros(count, dtype=np.int64),
        at=(origin + step_s * np.arange(count)) * MICRO,
        validity=np.full(count, step_s * MICRO),
        gap=np.full(count, 900 * MICRO),
        kind=np.full(count, IDLE, dtype=np.int8),
        sample_count=np.full(count, step_s // 30),
        interval_s=np.full(count, 30.0),
        measures=measures,
        bucketed=bucketed,
    )
    accounted = ((origin - 3600) * MICRO, origin * MICRO)
    got = drop_above_band(samples, np.array([BAND_W]), accounted, MARGIN_W)
    assert set(got.kind.tolist()) == ({IDLE} if idle else {CONFLICT})
    later = (accounted[0], int(samples.at[-1]) + 1)
    assert set(drop_above_band(samples, np.array([BAND_W]), later, MARGIN_W).kind.tolist()) == {
        IDLE
    }

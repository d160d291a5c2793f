"""Idle power learned from the fleet, and when it is not believed."""

import numpy as np
import pytest

from analyzers.idle.pieces import count_learned
from warehouse.signals import power_band
from warehouse.signals.runs import BUSY, IDLE, DeviceSamples


def looks(
    watts: list[float], kind: int = IDLE, context: float = 1.0, activity: float = 0.0
) -> DeviceSamples:
    n = len(watts)
    zeros = np.zeros(n, dtype=np.int64)
    return DeviceSamples(
        device=zeros,
        at=np.arange(n, dtype=np.int64),
        validity=zeros,
        gap=zeros,
        kind=np.full(n, kind, dtype=np.int8),
        sample_count=np.ones(n, dtype=np.int64),
        interval_s=np.ones(n),
        measures={
            "power_w": np.array(watts, dtype=np.float32),
            "context": np.full(n, context, dtype=np.float32),
            "activity": np.full(n, activity, dtype=np.float32),
        },
    )


def learned(*parts: DeviceSamples, model: int = 0) -> power_band.IdleBand:
    late, held_from = np.array([10**15]), np.zeros(1, dtype=np.int64)
    counted = sum(count_learned(part, np.array([model]), held_from, 1, late) for part in parts)
    return power_band.learn_band(["H100"], counted.sum(axis=0))["H100"]


def test_the_band_is_the_mode_of_the_lowest_idle_looks() -> None:
    band = learned(looks([70.0] * 5 + [98.0] * 300 + [105.0] * 400 + [180.0] * 900))
    assert (band.watts, band.source, band.sample_count) == (98.0, "learned", 1605)


def test_few_looks_leave_the_prior() -> None:
    band = learned(looks([98.0] * 239))
    assert (band.watts, band.source) == (120.0, "prior")
    enough = learned(looks([98.0] * 240))
    assert (enough.watts, enough.source) == (98.0, "learned")


def test_boards_that_lie_about_their_load_do_not_teach() -> None:
    assert learned(looks([300.0] * 1000)).source == "prior"


def test_busy_looks_boards_without_a_context_and_unknown_models_do_not_count() -> None:
    assert learned(looks([98.0] * 1000, kind=BUSY)).sample_count == 0
    assert learned(looks([70.0] * 1000, context=0.0)).sample_count == 0
    assert learned(looks([98.0] * 1000), model=-1).sample_count == 0


@pytest.mark.parametrize(("activity", "count"), [(0.0, 1000), (0.009, 1000), (0.01, 0), (0.03, 0)])
def test_light_work_does_not_teach(activity: float, count: int) -> None:
    band = learned(looks([140.0] * 1000, activity=activity))
    assert (band.sample_count, band.source) == (count, "learned" if count else "prior")


def test_missing_power_is_missing_and_not_zero_watts() -> None:
    assert learned(looks([float("nan")] * 500 + [98.0] * 500)).sample_count == 500


def test_each_model_has_its_own_row_of_the_histogram() -> None:
    with pytest.raises(ValueError, match="shorter"):
        power_band.learn_band(["H100", "A100"], np.zeros((1, 10), dtype=np.int64))

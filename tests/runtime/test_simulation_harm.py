"""Harm in two figures: each cause at both sides, and the interval of what was wanted back."""

from datetime import timedelta

import pytest

from actions.policy.model import Policy, RecurringWindow, ReversalLimit
from runtime.experiments.simulation.harm import (
    OwnerCare,
    compute_interval,
    count_returns,
    find_causes,
)
from simulator.world import WorkloadStop

HOUR = 3600.0
TOLD = OwnerCare("p", keeps_files=False, notice="What is lost: kernel state.", lost="kernel state")


def stop(**more: object) -> WorkloadStop:
    answer: dict[str, object] = {
        "key": ("Notebook", "lab", "nb"),
        "at_s": 0.0,
        "gpus": 1.0,
        "active": False,
        "lost_gpu_s": 0.0,
        "files": False,
        "memory": False,
        "idle": True,
        "back_s": None,
    }
    return WorkloadStop(**{**answer, **more})  # type: ignore[arg-type]


def test_a_stop_that_cuts_nothing_off_does_no_harm() -> None:
    assert find_causes(stop(), OwnerCare()) == []


def test_whatever_was_active_or_is_to_be_done_again_is_harm() -> None:
    assert find_causes(stop(active=True), TOLD) == ["active"]
    assert find_causes(stop(lost_gpu_s=30.0), TOLD) == ["work lost"]


def test_files_on_no_volume_are_lost_unless_a_snapshot_has_them() -> None:
    assert find_causes(stop(files=True), TOLD) == ["files lost"]
    assert find_causes(stop(files=True), OwnerCare("p", keeps_files=True)) == []


def test_a_kernels_memory_is_lost_unless_its_owner_was_told() -> None:
    assert find_causes(stop(memory=True), TOLD) == []
    assert find_causes(stop(memory=True), OwnerCare("p", lost="kernel state")) == ["memory lost"]
    assert find_causes(stop(memory=True), OwnerCare("p", notice="it stops")) == ["memory lost"]


def test_early_returns_count_a_day_the_least_rest_and_what_the_policy_declares() -> None:
    rule = Policy("p", reversals=ReversalLimit(0.1, timedelta(hours=12)))
    backs = [None, 4 * HOUR, 4 * HOUR + 1, 12 * HOUR, 24 * HOUR, 24 * HOUR + 1]
    found = count_returns([(stop(back_s=back), TOLD) for back in backs], [rule])
    for name in ("*", "p"):
        made = found[name]
        assert (made.stops, made.within_min_expected_rest, made.within_24h) == (6, 1, 4)
        assert (made.within_declared, made.declared) == (3, 0.1)
        assert made.interval == compute_interval(4, 6)
        assert made.upper_end == compute_interval(3, 6)[1]


def test_announced_night_stops_stand_apart() -> None:
    night = RecurringWindow("0 20 * * *", timedelta(hours=9))
    rules = [Policy("p"), Policy("night-work", act_window=night)]
    result = [(stop(back_s=HOUR), TOLD), (stop(back_s=9 * HOUR), OwnerCare("night-work"))]
    found = count_returns(result, rules)["*"]
    assert (found.stops, found.within_24h) == (1, 1)
    assert (found.night_stops, found.night_within_24h) == (1, 1)


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [
        (0, 3, 0.0, 1 - 0.05 ** (1 / 3)),  # 0 of 3 says little: up to 63 %
        (0, 59, 0.0, 0.0495),  # the rule of three: 59 stops prove 5 %
        (3, 3, 0.05 ** (1 / 3), 1.0),
        (1, 10, 0.00512, 0.39416),  # Clopper and Pearson 1934, by tables
        (0, 0, 0.0, 1.0),
    ],
)
def test_the_interval_is_clopper_and_pearsons(count: int, of: int, low: float, high: float) -> None:
    assert list(compute_interval(count, of)) == pytest.approx([low, high], abs=5e-5)

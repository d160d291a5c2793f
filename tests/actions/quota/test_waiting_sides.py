"""When a step is undone: each rule on both sides of its limit, by hand."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from actions.quota.waiting_time import QuotaSample, StepVerdict, compare_waiting

START = datetime(2026, 11, 1, tzinfo=UTC)
HOURS = 48


def samples(
    key: str, nominal: float, used: float, waiting: float | None, *, day: int = 0, n: int = HOURS
) -> list[QuotaSample]:
    """Return the same figures for each of `n` hours."""
    first = START + timedelta(days=day)
    return [QuotaSample(first + timedelta(hours=h), key, nominal, used, waiting) for h in range(n)]


def compare(before: Sequence[QuotaSample], after: Sequence[QuotaSample]) -> StepVerdict:
    return compare_waiting(before, after)


def harm(used: float, waiting: float, gain: float) -> StepVerdict:
    """Return the verdict where `a` gave 2 of 10 devices to `b`, which uses so many of them."""
    before = [*samples("a", 10, 6, 0), *samples("b", 4, 4, 100)]
    after = [*samples("a", 8, used, waiting, day=9), *samples("b", 6, 4 + gain, 100, day=9)]
    return compare(before, after)


@pytest.mark.parametrize(
    ("used", "waiting", "gain", "gpu_hours", "good", "worse"),
    [
        (8.0, 0.0, 2.0, 0, 96, False),
        (8.0, 0.4, 2.0, 19.2, 96, False),  # 19.2 of 403.2 GPU-hours: 4.8 %
        (8.0, 0.43, 2.0, 20.64, 96, True),  # 5.1 %
        (8.0, 1.0, 2.0, 48, 96, True),
        (8.0, 0.3, 0.3, 14.4, 14.4, False),  # as much harm as good
        (8.0, 0.3, 0.29, 14.4, 13.92, True),
        (8.0, 9.0, 2.0, 96, 96, True),  # no more than was given
        (7.0, 1.0, 2.0, 0, 96, False),  # the nominal quota would admit it
        (9.0, 1.0, 2.0, 48, 96, True),  # borrowed: only the tenth device is missing
        (8.0, 0.02, 0.0, 0.96, 0, False),  # less than one GPU-hour
    ],
)
def test_harm_is_demand_that_waits_for_what_was_given(  # noqa: PLR0917
    used: float, waiting: float, gain: float, gpu_hours: float, good: float, worse: bool
) -> None:  # fmt: skip
    made = harm(used, waiting, gain)
    assert made.harm_gpu_hours == pytest.approx(gpu_hours)
    assert made.good_gpu_hours == pytest.approx(good)
    assert made.worse == worse
    if worse:
        assert made.why.startswith(f"givers waited for {gpu_hours:,.1f} GPU-hours")
        assert made.why.endswith(f"receivers used {good:,.1f}")


@pytest.mark.parametrize(
    ("before", "after", "worse"),
    [
        (2.0, 2.5, False),  # 25 % longer
        (2.0, 2.51, True),
        (0.1, 0.299, False),  # less than 0.02 hours per GPU-hour: noise
        (0.1, 0.301, True),
        (2.0, 3.21, False),  # 10.1 % more demand: then queues prove nothing
        (2.0, 3.19, True),
    ],
)
def test_queues_are_longer_above_a_quarter_and_above_noise(
    *, before: float, after: float, worse: bool
) -> None:
    made = compare(samples("a", 10, 10, before), samples("a", 10, 10, after, day=9))
    assert made.worse == worse
    assert (made.waited_before, made.waited_after) == (round(before / 10, 6), round(after / 10, 6))
    text = f"{after / 10:.3f} hours were waited per GPU-hour had, {before / 10:.3f} before"
    assert made.why.startswith(text)


def test_a_day_before_that_was_as_bad_excuses_the_days_after() -> None:
    bad = samples("a", 10, 10, 4.0, n=24)
    good = samples("a", 10, 10, 0.0, day=1, n=24)
    assert compare([*bad, *good], samples("a", 10, 9, 3.6, day=9)).worse is False
    later = compare([*bad, *good], samples("a", 10, 8, 3.3, day=9))
    assert later.worse
    assert later.why.endswith("0.400 on the worst day before")


def test_more_demand_is_said_with_its_share() -> None:
    made = compare(samples("a", 10, 10, 2.0), samples("a", 10, 10, 5.0, day=9))
    assert made.why.endswith("but 25% more was asked for")


@pytest.mark.parametrize("hours", [23, 24])
def test_a_verdict_needs_a_day_of_each_quota_on_both_sides(hours: int) -> None:
    whole, part = samples("a", 10, 5, 0), samples("a", 10, 5, 0, day=9, n=hours)
    short = "23 hours were seen {} the step, at least 24 make an answer"
    for before, after, when in ((whole, part, "after"), (part, whole, "before")):
        made = compare(before, after)
        expected = (None, short.format(when)) if hours == 23 else (False, made.why)
        assert (made.worse, made.why) == expected
    both = [*whole, *samples("b", 10, 5, 0, n=hours)]
    assert (compare(both, whole).worse is None) == (hours == 23)


def test_without_a_figure_of_what_waited_there_is_no_verdict() -> None:
    known = samples("a", 10, 5, 0)
    for before, after, when in (
        ([*known, *samples("b", 1, 1, None)], known, "before"),
        (known, [], "after"),
    ):
        made = compare(before, after)
        assert (made.worse, made.why) == (None, f"what waited {when} the step is not known")


def test_a_quota_without_use_waits_for_each_hour_it_waited() -> None:
    made = compare(samples("a", 10, 0, 0), samples("a", 10, 0, 0.5, day=9))
    assert (made.worse, made.waited_before, made.waited_after) == (False, 0.0, 24.0)
    assert made.why.endswith("but nothing was asked for before")


def test_a_quota_that_is_new_was_nothing_before() -> None:
    before = samples("a", 10, 5, 0)
    made = compare(before, [*samples("a", 10, 5, 0, day=9), *samples("b", 4, 3, 9, day=9)])
    assert (made.harm_gpu_hours, made.good_gpu_hours) == (0.0, 144.0)


def test_the_nominal_quota_is_that_of_the_last_hour() -> None:
    late = samples("a", 10, 8, 1, day=9)
    changed = [*samples("a", 8, 8, 1, day=11, n=1), *late]
    made = compare([*samples("a", 10, 8, 0), *samples("b", 1, 1, 9)], [
        *changed, *samples("b", 1, 1, 9, day=9),
    ])  # fmt: skip
    assert made.harm_gpu_hours == 49.0


def test_a_quota_that_is_new_gave_nothing_and_received_all_that_it_has() -> None:
    before = [*samples("a", 10, 6, 0), *samples("b", 4, 4, 100)]
    after = [*samples("a", 8, 8, 0.43, day=9), *samples("b", 6, 4, 100, day=9)]
    empty, used = samples("c", 0, 0, 5, day=9), samples("d", 2, 2, 0, day=9)
    made = compare(before, [*after, *empty, *used])
    assert made.harm_gpu_hours == pytest.approx(20.64)
    assert made.good_gpu_hours == pytest.approx(2 * HOURS)
    # Its demand is no giver's: 20.64 of 404.64 GPU-hours.
    assert compare(before, [*after, *empty]).why.startswith(
        "givers waited for 20.6 GPU-hours of what they gave (5.1%)"
    )

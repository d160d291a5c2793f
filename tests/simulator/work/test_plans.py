"""A plan is checked where it is used, and its numbers are its seed's."""

import math

import pytest

from fallow.errors import UsageError
from simulator.work.behaviours import WorkPlan, build_script, read_behaviours
from simulator.work.plans import draw_numbers

MONDAY = 1_789_948_800.0


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (
            WorkPlan("mining", 1),
            "no behaviour called 'mining' (hint: there are: abandoned notebook, ",
        ),
        (
            WorkPlan("training", 1, params={"rps": 2}),
            "'training' has no parameter 'rps' (hint: there",
        ),
        (
            WorkPlan("training", 1, gpu_model="H900"),
            "no GPU model called 'H900' (hint: there are: B20",
        ),
        (
            WorkPlan("serving", 1, work_s=60),
            "'serving' has no work to finish: work_s is 60 (hint: le",
        ),
    ],
)
def test_a_wrong_plan_is_refused_with_the_legal_answers(plan: WorkPlan, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        build_script(plan, MONDAY)
    assert says in str(raised.value)
    assert raised.value.exit_code == 2


@pytest.mark.parametrize("name", read_behaviours())
def test_parameters_are_drawn_between_their_bounds(name: str) -> None:
    for seed in range(20):
        for parameter, value in draw_numbers(WorkPlan(name, seed)).items():
            low, high = read_behaviours()[name].ranges[parameter]
            assert math.isnan(low) or low <= value <= high


def test_naming_one_parameter_leaves_the_others_as_they_were() -> None:
    drawn = draw_numbers(WorkPlan("training", 5))
    named = draw_numbers(WorkPlan("training", 5, params={"wait_s": 1.0}))
    assert named == {**drawn, "wait_s": 1.0} or math.isnan(drawn["mean"])
    assert {k: v for k, v in named.items() if v != drawn[k] and v == v} == {"wait_s": 1.0}  # noqa: PLR0124


def test_a_rank_outside_the_gang_is_refused() -> None:
    with pytest.raises(ValueError, match="rank 4 of a gang of 4"):
        build_script(WorkPlan("training", 1, ranks=4), MONDAY).play(ticks=[MONDAY], ranks=range(5))  # type: ignore[arg-type]

"""What a script keeps for the same ticks, and rows of several pods at once, change no value."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.exporters.service_rows import build_steps, compute_steps
from simulator.models import DeviceAllocation, Holder
from simulator.work.behaviours import Script, WorkPlan, build_script
from simulator.work.chance import Array, build_generator, draw_uniform
from simulator.work.timeline import MOST_KEPT

START = datetime(2026, 11, 16, 8, tzinfo=UTC).timestamp()
PLANS = ("serving", "day notebook", "terminal notebook", "training")


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**64 - 1), name=st.text(max_size=20))
def test_a_number_is_the_first_of_a_generator_of_its_own(seed: int, name: str) -> None:
    assert draw_uniform(seed, name) == float(build_generator(seed, name).random())


def list_values(script: Script, ticks: Array) -> list[npt.NDArray[Any]]:
    values = [
        script.timeline.at(ticks),
        script.cpu_cores(ticks),
        *script.net(ticks),
        script.cpu_throttled(ticks),
        script.memory_mib(ticks),
        script.kernel_last(ticks),
        script.requests_total(ticks),
    ]
    return [value for value in values if value is not None]


@pytest.mark.parametrize("behaviour", PLANS)
@pytest.mark.parametrize("count", [1, 48, MOST_KEPT, MOST_KEPT + 1])
def test_the_same_array_has_the_values_of_an_equal_one(behaviour: str, count: int) -> None:
    script = build_script(WorkPlan(behaviour, 7), START)
    stretches = [
        START + 300.0 * np.arange(n * count, (n + 1) * count, dtype=np.float64) for n in range(3)
    ]
    for ticks in [*stretches, stretches[0], stretches[2]]:
        first, again = list_values(script, ticks), list_values(script, ticks)
        script.timeline.grow(ticks[-1] + 86_400)
        later = list_values(script, ticks)
        expected = list_values(build_script(WorkPlan(behaviour, 7), START), ticks.copy())
        for kept in (first, again, later):
            for mine, value in zip(kept, expected, strict=True):
                np.testing.assert_array_equal(mine, value)


def test_steps_of_several_pods_are_those_of_each() -> None:
    parts = []
    for number in range(4):
        plan = WorkPlan("training", 5, 4, first_rank=number, pod_ranks=1)
        holder = Holder(f"uid-{number}", "team-a", f"pod-{number}", "main", "Job", "work", "a")
        allocation = DeviceAllocation(holder, (number,), START, START + 86_400)
        now = START + 60.0 * np.arange(10.0 * number, 200.0, dtype=np.float64)
        steps = compute_steps(allocation, build_script(plan, START), now)
        assert steps is not None
        parts.append(steps)
    joined = build_steps(parts, "sim").rows
    assert joined.num_rows > 100
    assert joined.equals(pa.concat_tables(build_steps([p], "sim").rows for p in parts))
    rows = joined.to_pylist()
    assert {r["pod"] for r in rows if r["job_work_per_s"] is not None} == {"pod-0"}
    assert {r["pod"] for r in rows if r["work"] is not None} == {"pod-0"}

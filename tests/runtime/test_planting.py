"""What was found, laid over what is true: shares of GPU-hours, alarms that hit nothing."""

from datetime import UTC, datetime, timedelta

import msgspec
import numpy as np
import pytest

from fallow.models import Finding, Subject
from fallow.window import Window
from runtime.experiments.planting import compare
from runtime.experiments.truth import Course, Truth
from simulator.hardware_faults import HardwareFault
from simulator.models import TICK_S, SimulatedDevice
from simulator.world import Spec
from tests.runtime.planted_troubles import list_troubles

START = datetime(2026, 11, 2, tzinfo=UTC)
TICKS = START.timestamp() + TICK_S * np.arange(480.0)  # four hours
DEVICES = (SimulatedDevice("GPU-a", "n", 0, "H100"), SimulatedDevice("GPU-b", "n", 1, "H100"))
OWNER = ("team", "Notebook", "alice")


def truth() -> Truth:
    shape = (2, len(TICKS))
    return Truth(TICKS, DEVICES, np.zeros(shape, np.int16), np.zeros(shape, np.bool_), ())


def course(*, idle: dict[str, tuple[int, int]], hurts: bool = False) -> Course:
    """Return a workload that holds both devices, each idle from one minute to another."""
    marks = {}
    for device in ("GPU-a", "GPU-b"):
        begin, end = idle.get(device, (0, 0))
        marks[device] = np.zeros(len(TICKS), np.bool_)
        marks[device][begin * 2 : end * 2] = True
    held = np.ones(len(TICKS))
    both = marks["GPU-a"] & marks["GPU-b"]
    by_device = {device: (held, mark) for device, mark in marks.items()}
    return Course(OWNER, 2 * held, both, np.full(len(TICKS), hurts), by_device)


def finding(begin: int, end: int, workload: str = "alice", devices: int = 2) -> Finding:
    window = Window(START + timedelta(minutes=begin), START + timedelta(minutes=end))
    return Finding(
        id=f"{workload}-{begin}",
        analyzer="idle",
        kind="idle_notebook",
        subject=Subject("c", "team", "Notebook", workload),
        window=window,
        verdict="idle",
        evidence="confirmed",
        confidence=0.9,
        gpu_hours=devices * window.seconds / 3600,
        usd=None,
        details={"devices": ["GPU-a", "GPU-b"][:devices]},
    )


def test_what_is_planted_and_found_is_right_and_priced() -> None:
    idle = {"GPU-a": (60, 180), "GPU-b": (60, 180)}
    rates = {"GPU-a": 2.0, "GPU-b": 3.0}
    comparison = compare(truth(), {OWNER: course(idle=idle)}, [finding(60, 180)], rates)
    assert (comparison.planted_gpu_hours, comparison.found_gpu_hours) == (4.0, 4.0)
    assert (comparison.precision, comparison.recall, comparison.false_alarms) == (1.0, 1.0, 0)
    assert float(comparison.planted_usd or 0) == pytest.approx(10.0)
    unpriced = compare(truth(), {OWNER: course(idle=idle)}, [], {"GPU-a": 2.0})
    assert unpriced.planted_usd is None
    assert (unpriced.recall, unpriced.precision) == (0.0, 1.0)


def test_half_right_is_half_precise_and_half_found() -> None:
    idle = {"GPU-a": (60, 180), "GPU-b": (60, 180)}
    comparison = compare(truth(), {OWNER: course(idle=idle)}, [finding(120, 240)], {})
    assert (comparison.precision, comparison.recall) == (0.5, 0.5)
    assert comparison.false_alarms == 0


@pytest.mark.parametrize("workload", ["alice", "nobody"])
def test_a_finding_that_hits_nothing_is_a_false_alarm(workload: str) -> None:
    comparison = compare(truth(), {OWNER: course(idle={})}, [finding(0, 120, workload)], {})
    assert (comparison.false_alarms, comparison.precision) == (1, 0.0)


def test_short_rests_and_rests_that_a_stop_would_hurt_are_not_planted() -> None:
    short = course(idle={"GPU-a": (0, 59), "GPU-b": (0, 59)})
    hurting = course(idle={"GPU-a": (0, 120), "GPU-b": (0, 120)}, hurts=True)
    for one in (short, hurting):
        assert compare(truth(), {OWNER: one}, [], {}).planted_gpu_hours == 0


def test_an_idle_rank_beside_ranks_at_work_is_planted() -> None:
    one = course(idle={"GPU-a": (0, 240)}, hurts=True)
    comparison = compare(truth(), {OWNER: one}, [finding(0, 240, devices=1)], {"GPU-a": 1.0})
    assert comparison.planted_gpu_hours == 4.0
    assert (comparison.recall, comparison.precision) == (1.0, 1.0)


def test_findings_of_other_analyzers_are_no_claims_of_idleness() -> None:
    other = msgspec.structs.replace(finding(0, 120), analyzer="sizing")
    comparison = compare(truth(), {OWNER: course(idle={})}, [other], {})
    assert (comparison.found_gpu_hours, comparison.false_alarms) == (0, 0)


def test_what_befalls_nodes_and_bad_work_is_found_by_its_own_analyzer() -> None:
    spec = Spec(nodes=(), start_s=0, planted=(HardwareFault(0, "n", "xid", 60, 0),))
    long = course(idle={})
    long = msgspec.structs.replace(long, gpus=long.gpus * 10)
    result = finding(0, 120)
    sick = msgspec.structs.replace(
        result,
        id="s",
        analyzer="reliability",
        kind="sick_node",
        subject=Subject("c", "", "Node", "n", nodes=("n",)),
    )
    asleep = msgspec.structs.replace(result, id="f", analyzer="precision", kind="fp32_asleep")
    wrong = msgspec.structs.replace(asleep, subject=Subject("c", "team", "Notebook", "bob"))
    behaviours = {OWNER: "fp32 training"}
    made = list_troubles(spec, {OWNER: long}, behaviours, [result, sick, asleep, wrong])
    assert [(t.kind, t.subject, t.findings) for t in made] == [
        ("fp32 training", "team/Notebook/alice", ("f",)),
        ("xid", "n", ("s",)),
    ]
    # Four hours are less than the analyzer wants to see.
    assert len(list_troubles(spec, {OWNER: course(idle={})}, behaviours, [])) == 1

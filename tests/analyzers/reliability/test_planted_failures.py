"""The failures that `python -m benchmarks incidents` plants: how many, and their verdicts."""

from collections import Counter
from collections.abc import Sequence

import pytest

from analyzers.reliability.incidents.records import Incident
from analyzers.reliability.incidents.tables import read_steps
from benchmarks.failures import count_failures, plant_failures, read_kinds
from benchmarks.incidents import FULL, SMALL, fill, list_wrong, open_week, read_week


@pytest.fixture(scope="module")
def incidents(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Incident]:
    """Return the incidents of the small fleet."""
    home = tmp_path_factory.mktemp("small")
    fill(home, *SMALL)
    with open_week(home) as warehouse:
        return read_week(warehouse, SMALL[1])


def test_a_failure_of_each_kind_is_one_incident_with_its_cause_and_step(
    incidents: Sequence[Incident],
) -> None:
    planted = plant_failures(*SMALL)
    assert {failure.kind for failure in planted} == set(read_kinds())
    assert list(list_wrong(planted, incidents)) == []


def test_no_step_is_given_to_what_did_not_fail(incidents: Sequence[Incident]) -> None:
    """Of 40 jobs 17.2 % fail by themselves: 7, two of them by memory and two by their input."""
    assert Counter(i.verdict.step for i in incidents) == {
        "tell the owner": 14,
        "hold": 8,
        "recycle the node": 4,
        "reset the GPU": 4,
        "restart elsewhere": 4,
        "restart in place": 4,
    }


def test_a_failure_without_its_incident_is_wrong() -> None:
    planted = plant_failures(*SMALL)
    wrong = list(list_wrong(planted, []))
    assert len(wrong) == len(planted) == 38
    assert "fallen GPU: none" in wrong


def test_the_counts_are_those_of_the_studies() -> None:
    totals = Counter(dict.fromkeys(("llama3", "philly", ""), 0))
    for kind in read_kinds():
        totals[kind.study] += kind.count
    assert totals == {"llama3": 419, "philly": 39_766, "": 0}


def test_a_week_of_10_000_gpus_has_its_share_of_each_kind() -> None:
    """419 in 884,736 GPU-days are 33.2 in 70,000; 17.2 % of 1,092 jobs are 187.8."""
    gpus, days, job_nodes = FULL
    jobs = gpus // 8 // job_nodes * days
    counts = {kind.kind: count_failures(kind, gpus, days, jobs) for kind in read_kinds()}
    assert jobs == 1_092
    assert (counts["fallen GPU"], counts["software bug"], counts["hot GPU"]) == (6, 4, 1)
    assert (counts["memory limit"], counts["wrong input"], counts["bad image"]) == (57, 46, 1)
    planted = plant_failures(*FULL)
    assert Counter(f.kind.kind for f in planted) == counts
    assert len({(f.place, f.turn) for f in planted}) == len(planted)


def test_a_fleet_with_fewer_jobs_than_failures_is_refused() -> None:
    with pytest.raises(ValueError, match="need as many jobs; there are 20"):
        plant_failures(320, 1, 2)


def test_each_kind_has_the_step_of_its_cause_or_no_cause() -> None:
    """Without a known checkpoint the step is `otherwise`."""
    for kind in read_kinds():
        row = read_steps().get(kind.cause)
        step = "hold" if row is None else row.otherwise or row.step
        assert (kind.cause if row is None else "", kind.step) == (
            "unknown" if row is None else "",
            step,
        ), kind.kind

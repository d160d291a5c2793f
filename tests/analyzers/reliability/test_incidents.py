"""Incidents of simulated failures: the right step for each, and another one for its near twin."""

import json
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from actions.policy.parser import read_policies
from analyzers.reliability.incidents.judge import judge_signals
from analyzers.reliability.incidents.records import Incident
from fallow.resources import read_table
from tests.analyzers.conftest import Memory
from tests.analyzers.reliability.recordings import START, classify, fill
from tests.failure_cases.cases import read_cases
from tests.failure_cases.recording import CasePlayer

POLICIES = Path(__file__).resolve().parents[3] / "policies"
ANSWERS = {
    row["case"]: (row["cause"], row["step"])
    for row in read_table("tests.analyzers.reliability", "failure_answers.csv")
}


@pytest.fixture(scope="module")
def classified() -> Iterator[dict[str, list[Incident]]]:
    """Return the incidents of all cases, each a cluster of its own in the same tables."""
    views = Memory()
    for case in read_cases().values():
        fill(views, CasePlayer(case, START.timestamp()).play())
    yield classify(views)
    views.engine.close()


def test_every_case_has_an_answer_and_every_failure_a_twin_with_another_step() -> None:
    assert set(ANSWERS) == set(read_cases())
    failures = [case for case in read_cases().values() if not case.twin_of]
    assert len(failures) >= 12
    for failure in failures:
        twins = [c.name for c in read_cases().values() if c.twin_of == failure.name]
        assert twins, failure.name
        for twin in twins:
            assert ANSWERS[twin][1] != ANSWERS[failure.name][1], (failure.name, twin)


@pytest.mark.parametrize("case", ANSWERS)
def test_a_failure_gets_its_step_and_no_other(
    classified: dict[str, list[Incident]], case: str
) -> None:
    cause, step = ANSWERS[case]
    verdicts = {(i.verdict.cause, i.verdict.step) for i in classified.get(case, [])}
    assert verdicts == ({(cause, step)} if cause else set())


def test_no_other_step_is_given_while_the_evidence_arrives(
    classified: dict[str, list[Incident]],
) -> None:
    for case, incidents in classified.items():
        # Until the second workload has its error, the first one's is its own.
        legal = {"hold", ANSWERS[case][1], *(["restart in place"] if case == "bad GPU" else [])}
        for incident in incidents:
            for known in {s.known_at for s in incident.signals}:
                early = [s for s in incident.signals if s.known_at <= known]
                verdict = judge_signals(early, has_checkpoint=True, recovered=False)
                assert verdict.step in legal, (case, known, verdict.cause)


def test_ranks_and_nodes_of_one_failure_are_one_incident(
    classified: dict[str, list[Incident]],
) -> None:
    counts = {case: len(incidents) for case, incidents in classified.items()}
    several = {case: count for case, count in counts.items() if count > 1}
    # Two jobs that fail on a broken node are two incidents: their owners are told apart.
    assert several == {"broken node": 2}
    [partition] = classified["network partition"]
    assert partition.nodes == ("n-0", "n-1")
    [gpu] = classified["bad GPU"]
    assert {owner[3] for owner in gpu.owners} == {"job0", "job1"}


def test_a_gpu_that_vanishes_with_its_pod_is_one_incident_with_its_node() -> None:
    """The series of one of four GPUs ends in the second in which its pod fails: one failure.

    A series that ends (2) and a process that does (1) name no cause yet: hold. Another GPU that
    nobody has, of another node, is an incident of its own.
    """
    end = _naive(7200.0)
    views = Memory()
    views.rows(
        "device",
        [
            {
                "cluster": "c", "device": f"{node}-{n}", "node": node, "weight": 1.0,
                "interval_s": 30.0, "first_seen": _naive(0),
                "last_seen": end if n == 0 else _naive(14_400.0),
            }
            for node in ("n-0", "n-1")
            for n in range(4)
        ],
    )  # fmt: skip
    about = {"cluster": "c", "namespace": "ml", "pod": "p", "workload": "p", "workload_kind": "Job"}
    views.rows(
        "allocation",
        [
            {
                **about,
                "device": "n-0-0",
                "pod_uid": "u",
                "start": _naive(0),
                "end": end,
                "share": 1.0,
            }
        ],
    )
    failed = {"name": "c", "last_exit": {"code": 1, "finished_at": f"{end.isoformat()}Z"}}
    views.rows(
        "pod",
        [{
            **about, "uid": "u", "node": "n-0", "phase": "Failed", "gpu_request": 1.0,
            "created_at": _naive(0), "started_at": _naive(0), "finished_at": end,
            "first_seen": _naive(0), "last_seen": end, "containers": json.dumps([failed]),
        }],
    )  # fmt: skip
    with_pod, alone = sorted(classify(views)["c"], key=lambda i: i.nodes)
    views.engine.close()
    assert {s.name for s in with_pod.signals} == {"device_gone", "process_failed"}
    assert (with_pod.nodes, with_pod.devices, with_pod.verdict.step) == (
        ("n-0",), ("n-0-0",), "hold"
    )  # fmt: skip
    assert (alone.nodes, alone.owners) == (("n-1",), ())


def test_the_time_to_detect_is_measured_from_the_fault(
    classified: dict[str, list[Incident]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Minutes from the fault to the first evidence that gives the verdict, as the test prints."""
    seconds = {}
    for case, incidents in classified.items():
        if ANSWERS[case][1] == "hold" or case == "bad GPU":
            continue
        fault = min((f.at_s for f in read_cases()[case].faults), default=None)
        hang = read_cases()[case].hang_s
        begun = min(at for at in (fault, hang) if at is not None)
        known = min(i.known_at for i in incidents)
        seconds[case] = (known - _naive(begun)).total_seconds()
    lines = [f"  {c:26} {s / 60:5.1f} min" for c, s in sorted(seconds.items())]
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(lines) + "\n")
    late = {case: s for case, s in seconds.items() if not 0 <= s <= 1300}
    # A loop of OOM kills is one after the third restart.
    assert set(late) <= {"OOM loop"}


def _find_first_sign(case: str) -> float | None:
    """Return the first time (s after the start) at which Kubernetes alone shows a failure.

    That is an event of a node or pod, or a pod that ended. None = none within the five hours.
    """
    recording = CasePlayer(read_cases()[case], START.timestamp()).play()
    texts = [event["lastTimestamp"] for event in recording.events]
    for body, _, _ in recording.pods:
        for container in body["status"].get("containerStatuses", ()):
            ended = {**container.get("state", {}), **container.get("lastState", {})}
            texts += [s["finishedAt"] for s in ended.values() if "finishedAt" in s]
    times = [datetime.fromisoformat(text) for text in texts]
    return min(((at - START).total_seconds() for at in times), default=None)


def test_the_time_to_detect_is_printed_against_no_fallow(
    classified: dict[str, list[Incident]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Minutes from the fault to the cause and step, and to the first sign without Fallow.

    `docs/incidents.md` quotes the table. Only a hang is restarted by Fallow: after the grace of the
    shipped policy and the end of its pods.
    """
    [policy] = read_policies([POLICIES / "restart-stalled-jobs.yaml"])
    grace = policy.stage("grace")
    assert grace is not None
    rows = {}
    for case, incidents in classified.items():
        faults = read_cases()[case]
        if faults.twin_of or ANSWERS[case][1] == "hold":
            continue
        at = [f.at_s for f in faults.faults] + ([faults.hang_s] if faults.hang_s else [])
        sign, known = _find_first_sign(case), min(i.known_at for i in incidents)
        rows[case] = (
            (known - _naive(min(at))).total_seconds() / 60,
            None if sign is None else (sign - min(at)) / 60,
        )
    lines = [
        f"| {case} | {ours:.1f} | {'never' if alone is None else f'{alone:.1f}'} |"
        for case, (ours, alone) in sorted(rows.items())
    ]
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(lines) + "\n")
    ours, alone = rows["silent hang"]
    assert (round(ours, 1), alone) == (10.0, None)
    assert rows["straggler by a hot pair"][1] is None
    text = (POLICIES.parent / "docs" / "incidents.md").read_text(encoding="utf-8")
    missing = [line for line in lines if line not in text]
    assert not missing, "docs/incidents.md has other figures"
    assert f"{grace.wait.total_seconds() / 60:.0f} minutes of grace" in text


def test_an_application_error_is_the_boards_only_from_the_second_workload_on(
    classified: dict[str, list[Incident]],
) -> None:
    [one] = classified["illegal memory access"]
    [two] = classified["bad GPU"]
    assert (one.verdict.step, two.verdict.step) == ("restart in place", "recycle the node")
    assert two.known_at == _naive(14_400.0)


def _naive(seconds: float) -> datetime:
    return START.replace(tzinfo=None) + timedelta(seconds=seconds)

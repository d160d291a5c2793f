"""A restart stops a job by its own handle and starts it when its pods are gone, or is refused."""

from typing import Any

import msgspec
import pytest

from actions.executors import choose_executor
from actions.recommend import list_restartable_kinds
from fallow.action_models import Intent
from fallow.errors import RefusedError
from tests.actions.places import Object, Place, bare, says
from tests.actions.reclaim.examples import EXAMPLES, POD, RUNNING, Example, decided, job, trained
from tests.actions.reclaim.test_refusals import make, workload

OLD = "2026-11-20T08:00:00Z"
STEADY = {"phase": "Running", "startTime": OLD}
JOBS = [next(e for e in EXAMPLES if e.kind == kind) for kind in sorted(list_restartable_kinds())]
PATCHED = [e for e in JOBS if e.kind != "VolcanoJob"]


def run(place: Place, example: Example, *, status: Any = None, **meta: Any) -> Object:
    """Make a job, and a pod of it that has run for four hours."""
    body = {"metadata": {"name": "x", **meta}, "spec": example.spec}
    made = place.make(example.stored, body, status=status or example.status)
    add_pod(place, made)
    return made


def add_pod(place: Place, owner: Object, name: str = "x-0", **status: Any) -> Object:
    reference = {
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True,
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
    }  # fmt: skip
    meta = {"name": name, "ownerReferences": [reference]}
    return place.make("Pod", {"metadata": meta, "spec": POD}, status={**STEADY, **status})


def restart(place: Place, kind: str, verb: str = "restart", **more: Any) -> Intent:
    decision = decided(kind, place.name, "x", verb, **more)
    return choose_executor(decision).writes(decision, place.door)


def refused(place: Place, kind: str, verb: str = "restart", **more: Any) -> str:
    with pytest.raises(RefusedError) as error:
        restart(place, kind, verb, **more)
    return error.value.message


@pytest.mark.parametrize("example", PATCHED, ids=lambda e: e.kind)
def test_a_restarted_job_is_as_before_but_for_the_count(place: Place, example: Example) -> None:
    before = run(place, example)
    intent = restart(place, example.kind)
    stop, start = intent.changes
    assert [p.pod for p in start.after] == ["x-0"]
    assert not stop.after
    place.send(stop)
    assert place.holds(stop)
    place.send(start)
    after = bare(place.get(example.stored, "x"))
    assert after is not None
    assert after["metadata"].pop("annotations") == {"fallow.dev/restarts": "1"}
    assert after == bare(before)
    assert "cannot be undone" in intent.lost


@pytest.mark.parametrize("example", PATCHED, ids=lambda e: e.kind)
def test_the_undo_of_a_stop_that_waits_resumes_the_job(place: Place, example: Example) -> None:
    run(place, example)
    intent = restart(place, example.kind)
    place.send(intent.changes[0])
    (undo,) = intent.undo
    assert not undo.after
    place.send(undo)
    assert says(place.door, intent.changes[0], intent.changes[0].was)


def test_a_volcano_job_is_aborted_and_resumed_when_it_is_aborted(place: Place) -> None:
    [example] = [e for e in JOBS if e.kind == "VolcanoJob"]
    run(place, example)
    intent = restart(place, "VolcanoJob")
    assert [c.body["action"] for c in intent.changes] == ["AbortJob", "ResumeJob"]
    assert intent.changes[1].when == {"/status/state/phase": "Aborted"}
    assert intent.changes[1].after
    assert [c.body["action"] for c in intent.undo] == ["ResumeJob"]


def test_under_kueue_the_workload_is_deactivated_and_activated(place: Place) -> None:
    made = make(place, "Job", job(), labels={"kueue.x-k8s.io/queue-name": "q"})
    add_pod(place, made)
    workload(place, made)
    stop, start = restart(place, "Job").changes
    assert stop.body == {
        "spec": {"active": False}, "metadata": {"annotations": {"fallow.dev/restarts": "1"}}
    }  # fmt: skip
    place.send(stop, start)
    stored = place.get("Workload", "w")
    assert stored is not None
    assert stored["spec"].get("active") is not False


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"startTime": "2026-11-20T11:51:00Z"}, "was started at"),
        ({"phase": "Pending"}, "does not run"),
        ({"startTime": None}, "does not run"),
        ({"containerStatuses": [
            {"name": "main", "ready": False, "restartCount": 3, "image": "a", "imageID": "",
             "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
        ]}, "CrashLoopBackOff"),
    ],
)  # fmt: skip
def test_a_job_whose_pods_do_not_run_steadily_is_left_to_its_controller(
    place: Place, status: dict[str, Any], why: str
) -> None:
    made = run(place, Example("Job", job()))
    assert restart(place, "Job").frees
    add_pod(place, made, "x-1", **status)
    assert why in refused(place, "Job")
    assert "left to its controller" in refused(place, "Job")


def test_a_pod_is_steady_from_ten_minutes_on(place: Place) -> None:
    made = run(place, Example("Job", job()))
    add_pod(place, made, "x-1", startTime="2026-11-20T11:50:00Z")
    assert restart(place, "Job").frees


def test_a_pod_that_has_ended_says_nothing(place: Place) -> None:
    made = run(place, Example("Job", job()))
    add_pod(place, made, "x-1", phase="Failed")
    assert restart(place, "Job").frees


@pytest.mark.parametrize(
    ("kind", "key", "spec", "status"),
    [
        ("PyTorchJob", "", trained("pytorchReplicaSpecs"),
         {"conditions": [{"type": "Restarting", "status": "True"}]}),
        ("RayJob", "", {"shutdownAfterJobFinishes": True}, {"jobDeploymentStatus": "Retrying"}),
        ("VolcanoJob", "Job.batch.volcano.sh", {}, {"state": {"phase": "Restarting"}}),
    ],
)  # fmt: skip
def test_a_job_that_its_controller_restarts_is_not_restarted(
    place: Place, kind: str, key: str, spec: Any, status: Any
) -> None:
    run(place, Example(kind, spec, key=key, status=status))
    assert "it restarts now" in refused(place, kind)


@pytest.mark.parametrize(
    ("note", "parameters", "why"),
    [
        ("1", {}, "was restarted 1 times, max_restarts is 1"),
        ("2", {"max_restarts": 2}, "was restarted 2 times, max_restarts is 2"),
        ("many", {}, "no number"),
        ("-1", {}, "no number"),
        ("0", {"max_restarts": 0}, "max_restarts is 0"),
        ("0", {"max_restarts": True}, "max_restarts is True"),
        ("0", {"max_restarts": "2"}, "max_restarts is '2'"),
    ],
)
def test_a_job_is_restarted_at_most_as_often_as_the_policy_allows(
    place: Place, note: str, parameters: dict[str, Any], why: str
) -> None:
    run(place, Example("Job", job()), annotations={"fallow.dev/restarts": note})
    assert why in refused(place, "Job", parameters=parameters)


def test_one_restart_less_than_allowed_is_counted(place: Place) -> None:
    run(place, Example("Job", job()), annotations={"fallow.dev/restarts": "1"})
    intent = restart(place, "Job", parameters={"max_restarts": 2})
    assert intent.changes[0].body["metadata"]["annotations"] == {"fallow.dev/restarts": "2"}


def test_a_volcano_job_counts_every_restart_of_its_own(place: Place) -> None:
    status = {**RUNNING, "retryCount": 1}
    run(place, Example("VolcanoJob", {}, key="Job.batch.volcano.sh", status=status))
    assert "was restarted 1 times" in refused(place, "VolcanoJob")


def test_a_job_without_pods_is_not_restarted(place: Place) -> None:
    make(place, "Job", job())
    assert "has no pods" in refused(place, "Job")


@pytest.mark.parametrize("example", PATCHED, ids=lambda e: e.kind)
def test_what_fallow_suspended_is_resumed_and_the_undo_suspends_it_again(
    place: Place, example: Example
) -> None:
    run(place, example, annotations={"fallow.dev/action": "a1"})
    stop = restart(place, example.kind, example.verb)
    place.send(*stop.changes)
    stopped = place.get(example.stored, "x")
    intent = restart(place, example.kind, "resume")
    place.send(*intent.changes)
    assert "is not suspended" in refused(place, example.kind, "resume")
    place.send(*intent.undo)
    assert bare(place.get(example.stored, "x")) == bare(stopped)


def test_a_job_that_somebody_else_suspended_is_left_alone(place: Place) -> None:
    make(place, "Job", {**job(), "suspend": True})
    assert "Fallow did not suspend it" in refused(place, "Job", "resume")


def test_a_workload_of_kueue_is_activated_again(place: Place) -> None:
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    made = make(place, "Job", job(), labels=labels, annotations={"fallow.dev/action": "a1"})
    workload(place, made, active=False)
    (change,) = restart(place, "Job", "resume").changes
    assert (change.path.endswith("/workloads/w"), change.body) == (True, {"spec": {"active": True}})


def test_a_volcano_job_that_was_aborted_is_resumed_by_its_command(place: Place) -> None:
    marks = {"annotations": {"fallow.dev/action": "a1"}}
    status = {"state": {"phase": "Aborted"}}
    make(place, "Job.batch.volcano.sh", {"tasks": []}, status=status, **marks)
    intent = restart(place, "VolcanoJob", "resume")
    assert [c.body["action"] for c in (*intent.changes, *intent.undo)] == ["ResumeJob", "AbortJob"]


def test_a_restart_is_of_the_job_in_the_evidence(place: Place) -> None:
    run(place, Example("Job", job()))
    assert "another object" in refused(place, "Job", uid="other")


def test_after_is_part_of_the_journals_document(place: Place) -> None:
    run(place, Example("Job", job()))
    intent = restart(place, "Job")
    assert msgspec.json.decode(msgspec.json.encode(intent), type=Intent) == intent

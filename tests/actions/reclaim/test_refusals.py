"""What an executor refuses, and says why; and the handle it takes where the plain one is wrong."""

from typing import Any

import msgspec
import pytest

from actions.executors import choose_executor
from fallow.action_models import Intent
from fallow.errors import RefusedError
from tests.actions.places import Object, Place, bare, says
from tests.actions.reclaim.examples import (
    CRON_WORKFLOW,
    EXAMPLES,
    NOW,
    POD,
    RUNNING,
    decided,
    job,
    replicated,
)

STOPPED = "serving.kserve.io/stop"


def intend(place: Place, kind: str, verb: str = "suspend", name: str = "x", **more: Any) -> Intent:
    decision = decided(kind, place.name, name, verb, **more)
    return choose_executor(decision).writes(decision, place.door)


def make(place: Place, key: str, spec: Any, *, status: Any = None, **meta: Any) -> Object:
    return place.make(key, {"metadata": {"name": "x", **meta}, "spec": spec}, status=status)


def workload(place: Place, owner: Object, name: str = "w", **spec: Any) -> Object:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    meta = {"name": name, "ownerReferences": [reference]}
    return place.make("Workload", {"metadata": meta, "spec": {"queueName": "q", **spec}})


@pytest.mark.parametrize(
    ("kind", "key", "spec", "status", "verb", "why"),
    [
        ("StatefulSet", "", {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}},
         None, "scale to zero", "deletes its volumes"),
        ("Deployment", "", {"replicas": 0}, None, "scale to zero", "no replicas already"),
        ("RayJob", "", {"shutdownAfterJobFinishes": False}, None, "suspend", "shutdownAfterJob"),
        ("RayJob", "", {}, None, "suspend", "shutdownAfterJob"),
        ("RayJob", "", {"clusterSelector": {"ray.io/cluster": "c"}}, None, "suspend",
         "somebody else's"),
        ("RayJob", "", {"shutdownAfterJobFinishes": True}, {"jobDeploymentStatus": "Complete"},
         "suspend", "is over: Complete"),
        ("Job", "", {}, {"conditions": [{"type": "Complete", "status": "True"}]}, "suspend",
         "is over: Complete"),
        ("TrainJob", "", {"managedBy": "kueue.x-k8s.io/multikueue"}, None, "suspend",
         "MultiKueue"),
        ("CronJob", "", {"suspend": True}, None, "suspend", "stopped already"),
        ("VolcanoJob", "Job.batch.volcano.sh", {}, {"state": {"phase": "Completed"}}, "abort",
         "is Completed"),
        ("VolcanoJob", "Job.batch.volcano.sh", {}, None, "abort", "in no known state"),
    ],
)  # fmt: skip
def test_what_must_not_be_stopped_is_refused_with_the_reason(  # noqa: PLR0917
    place: Place, kind: str, key: str, spec: Any, status: Any, verb: str, why: str
) -> None:
    """Regression 13 among them: a StatefulSet that deletes its volumes when scaled."""
    base = next(e for e in EXAMPLES if e.kind == kind).spec
    if status and kind == "Job" and place.server is None:
        pytest.skip("a real server wants a whole status")
    if kind == "RayJob":
        base = {}
    make(place, key or kind, {**base, **spec}, status=status)
    with pytest.raises(RefusedError, match=why) as refused:
        intend(place, kind, verb)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("retries", "limit", "stops"),
    [(0, None, True), (1, None, True), (2, None, False), (3, None, False), (2, 10, True),
     (9, 10, False), (0, 1, False)],
)  # fmt: skip
def test_a_volcano_job_one_short_of_its_retries_is_refused(
    place: Place, retries: int, limit: int | None, stops: bool
) -> None:
    """Regression 14: each resume uses up a retry; the last one fails the job for good."""
    spec = {"tasks": []} if limit is None else {"tasks": [], "maxRetry": limit}
    status = {**RUNNING, "retryCount": retries}
    make(place, "Job.batch.volcano.sh", spec, status=status)
    if stops:
        assert intend(place, "VolcanoJob", "abort").changes
        return
    with pytest.raises(RefusedError, match=f"has {retries} of {limit or 3} retries"):
        intend(place, "VolcanoJob", "abort")


def test_a_decision_about_another_object_is_refused(place: Place) -> None:
    make(place, "Job", job())
    for uid, why in (("somebody-else", "another object of that name"),):
        with pytest.raises(RefusedError, match=why):
            intend(place, "Job", uid=uid)
    with pytest.raises(RefusedError, match="is gone"):
        intend(place, "Job", name="y")


def test_a_decision_about_another_cluster_is_refused(place: Place) -> None:
    make(place, "Job", job())
    decision = decided("Job", place.name, "x", "suspend")
    decision = msgspec.structs.replace(decision, subject=("prod", *decision.subject[1:]))
    with pytest.raises(RefusedError, match="is in cluster prod, not sim"):
        choose_executor(decision).writes(decision, place.door)


@pytest.mark.parametrize(
    ("kind", "verb", "why"),
    [
        ("Workflow", "stop", "nothing acts on a Workflow"),
        ("Job", "scale to zero", "to a Job: .*suspend"),
        ("Pod", "suspend", "to a Pod: .*evict"),
        ("Deployment", "delete", "to a Deployment: .*scale to zero"),
    ],
)
def test_a_verb_that_nothing_carries_out_is_refused_with_the_legal_ones(
    kind: str, verb: str, why: str
) -> None:
    with pytest.raises(RefusedError, match=why):
        choose_executor(decided(kind, "a", "x", verb))


def test_a_policy_may_ask_for_a_capability_instead_of_a_verb() -> None:
    executor = choose_executor(decided("Notebook", "a", "x", "suspend"))
    assert type(executor).__name__ == "NotebookExecutor"


@pytest.mark.parametrize("mode", ["RawDeployment", "Serverless"])
def test_kserve_is_stopped_by_its_annotation_and_not_by_its_replicas(
    place: Place, mode: str
) -> None:
    """Regression 12: minReplicas 0 is raised to 1 in standard mode."""
    notes = {"serving.kserve.io/deploymentMode": mode}
    make(place, "InferenceService", {"predictor": {"minReplicas": 1}}, annotations=notes)
    (change,) = intend(place, "InferenceService", "stop").changes
    assert change.body == {"metadata": {"annotations": {STOPPED: "true"}}}


def test_a_notebook_that_its_controller_holds_is_left_alone(place: Place) -> None:
    lock = {"kubeflow-resource-stopped": "odh-notebook-controller-lock"}
    make(place, "Notebook", {"template": {"spec": POD}}, annotations=lock)
    with pytest.raises(RefusedError, match="locked by its controller"):
        intend(place, "Notebook", "stop")


QUEUED = {"labels": {"kueue.x-k8s.io/queue-name": "q"}}
UNDER_KUEUE = ("Job", "PyTorchJob", "MPIJob", "TrainJob", "JobSet", "RayJob", "RayCluster",
               "AppWrapper", "SparkApplication")  # fmt: skip


@pytest.mark.parametrize("kind", UNDER_KUEUE)
def test_what_kueue_manages_is_stopped_through_its_workload(place: Place, kind: str) -> None:
    """Regression 11: Kueue undoes the own switch of a job, so it is never written."""
    spec = next(e for e in EXAMPLES if e.kind == kind).spec
    obj = make(place, kind, spec, **QUEUED)
    before = workload(place, obj)
    intent = intend(place, kind)
    assert [c.target.kind for c in intent.changes] == ["Workload"]
    assert [c.body for c in intent.changes] == [{"spec": {"active": False}}]
    place.send(*intent.changes)
    assert place.get(kind, "x") == obj
    assert (place.get("Workload", "w") or {})["spec"]["active"] is False
    with pytest.raises(RefusedError, match="stopped already"):
        intend(place, kind)
    place.send(*intent.undo)
    assert bare(place.get("Workload", "w")) == bare(before), "absent stays absent"


def test_a_workload_without_a_queue_label_on_its_job_still_counts(place: Place) -> None:
    obj = make(place, "Job", job())
    workload(place, obj, active=True)
    (change,) = intend(place, "Job").changes
    assert change.target.kind == "Workload"
    assert change.was == {"/spec/active": True}


def test_every_slice_of_an_elastic_job_is_stopped_but_those_that_are_over(place: Place) -> None:
    obj = make(place, "Job", job(), **QUEUED)
    for name in ("a", "b", "c"):
        workload(place, obj, name)
    done = {"conditions": [{"type": "Finished", "status": "True"}]}
    place.patch("Workload", "b", {"status": done}, part="status")
    intent = intend(place, "Job")
    assert [c.target.name for c in intent.changes] == ["a", "c"]
    assert [c.target.name for c in intent.undo] == ["c", "a"]


def test_what_waits_for_its_workload_is_refused(place: Place) -> None:
    make(place, "Job", job(), **QUEUED)
    with pytest.raises(RefusedError, match="has no Workload yet"):
        intend(place, "Job")


@pytest.mark.parametrize(
    ("kind", "spec", "verb", "path"),
    [
        ("Deployment", replicated(), "scale to zero", "deployments/x/scale"),
        ("StatefulSet", {"serviceName": "x", **replicated()}, "scale to zero",
         "statefulsets/x/scale"),
        ("Notebook", {"template": {"spec": POD}}, "stop", "notebooks/x"),
    ],
)  # fmt: skip
def test_kinds_that_kueue_lets_scale_keep_their_own_handle(
    place: Place, kind: str, spec: Any, verb: str, path: str
) -> None:
    """A Deployment in a queue has one Workload per pod; a StatefulSet may go from N to 0."""
    make(place, kind, spec, **QUEUED)
    (change,) = intend(place, kind, verb).changes
    assert change.path.endswith(path)
    if kind == "StatefulSet":
        assert change.becomes == {"/spec/replicas": 0}


def test_a_cron_job_is_stopped_with_what_it_has_begun(place: Place) -> None:
    spec = {"schedule": "0 * * * *", "jobTemplate": {"spec": job()}}
    cron = make(place, "CronJob", spec)
    mine = [
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "name": "x",
            "uid": cron["metadata"]["uid"],
            "controller": True,
        }
    ]
    for name, more, refs in (
        ("run-1", {}, mine),
        ("run-2", {"suspend": True}, mine),
        ("other", {}, []),
    ):
        meta = {"name": name, "ownerReferences": refs}
        place.make("Job", {"metadata": meta, "spec": {**job(), **more}})
    intent = intend(place, "CronJob")
    assert [c.target.name for c in intent.changes] == ["x", "run-1"]
    assert [c.target.name for c in intent.undo] == ["run-1", "x"]
    before = [place.get("CronJob", "x"), place.get("Job", "run-1"), place.get("Job", "run-2")]
    place.send(*intent.changes)
    assert all(place.holds(c) for c in intent.changes)
    place.send(*intent.undo)
    after = [place.get("CronJob", "x"), place.get("Job", "run-1"), place.get("Job", "run-2")]
    assert [bare(o) for o in after] == [bare(o) for o in before]


def test_a_cron_workflow_frees_nothing_as_what_it_began_runs_on(place: Place) -> None:
    cron = make(place, "CronWorkflow", CRON_WORKFLOW)
    reference = {
        "apiVersion": cron["apiVersion"],
        "kind": "CronWorkflow",
        "name": "x",
        "uid": cron["metadata"]["uid"],
        "controller": True,
    }
    make(place, "Pod", POD, ownerReferences=[reference])
    intent = intend(place, "CronWorkflow")
    assert len(intent.changes) == 1
    assert intent.frees == ()


def test_two_namespaces_with_one_name_are_each_restored_to_their_own(place: Place) -> None:
    """Regression 16: the same name in two namespaces, other replicas."""
    other = Place(place.kube, place.server)
    counts = {place: 3, other: 5}
    intents = {}
    for where, count in counts.items():
        make(where, "Deployment", replicated(count))
        intents[where] = intend(where, "Deployment", "scale to zero")
    for where, intent in intents.items():
        where.send(*intent.changes)
    for where, intent in intents.items():
        assert (where.get("Deployment", "x") or {})["spec"]["replicas"] == 0
        where.send(*intent.undo)
    found = {w: (w.get("Deployment", "x") or {})["spec"]["replicas"] for w in counts}
    assert found == counts


def test_an_undo_no_longer_holds_when_somebody_scaled_meanwhile(place: Place) -> None:
    """Regression 17: what somebody else changed since is theirs."""
    make(place, "Deployment", replicated(3))
    intent = intend(place, "Deployment", "scale to zero")
    place.send(*intent.changes)
    place.patch("Deployment", "x", {"spec": {"replicas": 1}})
    (undo,) = intent.undo
    assert undo.was == {"/spec/replicas": 0}
    assert not says(place.door, undo, undo.was)


@pytest.mark.parametrize(
    ("pod", "space", "stops"),
    [
        (None, None, False),
        ("true", None, True),
        (None, "true", True),
        ("false", "true", False),
        ("yes", None, False),
    ],
)
def test_a_bare_pod_needs_an_opt_in(
    place: Place, pod: str | None, space: str | None, stops: bool
) -> None:
    notes = {"annotations": {"fallow.dev/evict": pod}} if pod else {}
    make(place, "Pod", POD, **notes)
    if space:
        body = {"metadata": {"annotations": {"fallow.dev/evict": space}}}
        path = f"/api/v1/namespaces/{place.name}"
        place.kube.ask("PATCH", path, body, media="application/merge-patch+json")
    if stops:
        assert intend(place, "Pod", "evict").changes
        return
    with pytest.raises(RefusedError, match="did not opt in"):
        intend(place, "Pod", "evict")


@pytest.mark.parametrize("parameters", [{}, {"restore": False}, {"restore": "yes"}])
def test_a_bare_pod_is_evicted_only_by_a_policy_that_asks_to_restore_it(
    place: Place, parameters: dict[str, Any]
) -> None:
    make(place, "Pod", POD, annotations={"fallow.dev/evict": "true"})
    with pytest.raises(RefusedError, match=r"with: \{restore: true\}.*fallow-restore-pods"):
        intend(place, "Pod", "evict", parameters=parameters)


def test_one_pod_of_a_group_is_not_evicted(place: Place) -> None:
    notes = {"annotations": {"fallow.dev/evict": "true"}}
    make(place, "Pod", POD, labels={"kueue.x-k8s.io/pod-group-name": "g"}, **notes)
    with pytest.raises(RefusedError, match="one of a group"):
        intend(place, "Pod", "evict")


def test_a_hubs_server_is_stopped_by_the_hub_and_never_by_its_pod(place: Place) -> None:
    notes = {"hub.jupyter.org/username": "ada@x.org", "hub.jupyter.org/servername": "big"}
    labels = {"component": "singleuser-server"}
    body = {"metadata": {"name": "jupyter-ada", "labels": labels, "annotations": notes}}
    made = place.make("Pod", {**body, "spec": {**POD, "nodeName": "n-1"}})
    intent = intend(place, "JupyterServer", "stop", "ada@x.org/big", uid=made["metadata"]["uid"])
    (change,), (undo,) = intent.changes, intent.undo
    assert (change.client, change.body) == ("jupyterhub", {"running": False})
    assert change.path == "/hub/api/users/ada%40x.org/servers/big"
    assert (undo.path, undo.body) == (change.path, {"running": True})
    assert [(h.pod, h.gpus) for h in intent.frees] == [("jupyter-ada", 2)]
    with pytest.raises(RefusedError, match="started anew"):
        intend(place, "JupyterServer", "stop", "ada@x.org/big", uid="another")
    with pytest.raises(RefusedError, match="has no running pod"):
        intend(place, "JupyterServer", "stop", "ada@x.org")


def test_a_hubs_server_is_protected_by_the_words_of_its_pod_and_namespace(place: Place) -> None:
    from actions.loop.runner import check_protections  # noqa: PLC0415

    notes = {"hub.jupyter.org/username": "ada", "fallow.dev/keep": "true"}
    body = {"name": "j", "labels": {"component": "singleuser-server"}, "annotations": notes}
    place.make("Pod", {"metadata": body, "spec": POD})
    intent = intend(place, "JupyterServer", "stop", "ada")
    user = {"name": "ada", "servers": {"": {"ready": True}}}
    (reason,) = check_protections(intent, user, place.door, NOW)
    assert "fallow.dev/keep=true on Pod" in reason.text
    place.patch("Pod", "j", {"metadata": {"annotations": {"fallow.dev/keep": None}}})
    assert check_protections(intent, user, place.door, NOW) == ()


@pytest.mark.parametrize(
    ("kind", "spec"),
    [("Notebook", {"template": {"spec": POD}}), ("InferenceService", {"predictor": {}})],
)
def test_an_undo_leaves_annotations_that_came_meanwhile(
    place: Place, kind: str, spec: Object
) -> None:
    make(place, kind, spec)
    intent = intend(place, kind, "stop")
    place.send(*intent.changes)
    place.patch(kind, "x", {"metadata": {"annotations": {"fallow.dev/action": "a1"}}})
    (undo,) = intent.undo
    assert says(place.door, undo, undo.was), "another's annotation is no change of ours"
    place.send(undo)
    left = (place.get(kind, "x") or {})["metadata"]["annotations"]
    assert left == {"fallow.dev/action": "a1"}

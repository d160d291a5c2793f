"""A restart elsewhere excludes nodes through the job's own template, or says that it cannot."""

import copy
from typing import Any

import pytest

from actions.executors import choose_executor
from actions.reclaim.elsewhere import (
    HOSTNAME,
    REQUIRED,
    RestartElsewhereExecutor,
    exclude_hosts,
)
from capacity.queue.exclusions import ENDED_EXCLUSION, EXCLUDED
from fallow.action_models import Intent
from fallow.errors import RefusedError
from tests.actions.places import Object, Place
from tests.actions.reclaim.examples import POD, Example, decided, job, trained
from tests.actions.reclaim.test_refusals import make, workload
from tests.actions.reclaim.test_restarts import add_pod, run

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
ZONE = {"key": "zone", "operator": "Exists"}
ZONES = [{"weight": 1, "preference": {"matchExpressions": [ZONE]}}]
HOST = {HOSTNAME: "host-1"}
AWAY = {"key": HOSTNAME, "operator": "NotIn", "values": ["host-1"]}
TERM = {"matchExpressions": [AWAY]}
EXCLUDING = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [TERM]}}}
RAY = {
    "shutdownAfterJobFinishes": True,
    "rayClusterSpec": {
        "headGroupSpec": {"template": {"spec": POD}},
        "workerGroupSpecs": [
            {"groupName": "a", "replicas": 2, "template": {"spec": POD}},
            {"groupName": "b", "template": {"spec": POD}},
        ],
    },
}
JOBS = [
    (Example("Job", job()), ["template"]),
    (Example("PyTorchJob", trained("pytorchReplicaSpecs")),
     ["pytorchReplicaSpecs/Worker/template"]),
    (Example("MPIJob", trained("mpiReplicaSpecs")), ["mpiReplicaSpecs/Worker/template"]),
    (Example("RayJob", RAY), ["rayClusterSpec/headGroupSpec/template",
                              "rayClusterSpec/workerGroupSpecs/0/template",
                              "rayClusterSpec/workerGroupSpecs/1/template"]),
]  # fmt: skip


def add_node(place: Place, **labels: str) -> str:
    """Make a node of this test's own; return its name."""
    name = f"{place.name}-n1"
    place.make("Node", {"metadata": {"name": name, "labels": labels}})
    return name


def restart(place: Place, kind: str, *nodes: str) -> Intent:
    decision = decided(
        kind, place.name, "x", "restart elsewhere", parameters={EXCLUDED: list(nodes)}
    )
    return choose_executor(decision).writes(decision, place.door)


def refuse(place: Place, kind: str, *nodes: str) -> str:
    with pytest.raises(RefusedError) as error:
        restart(place, kind, *nodes)
    return error.value.message


def walk(spec: Any, path: str) -> Any:
    for part in path.split("/"):
        spec = spec[int(part)] if isinstance(spec, list) else spec[part]
    return spec


@pytest.mark.parametrize(("example", "paths"), JOBS, ids=[e.kind for e, _ in JOBS])
def test_every_pod_of_it_keeps_away_from_the_node(
    place: Place, example: Example, paths: list[str]
) -> None:
    node = add_node(place, **HOST)
    before = copy.deepcopy(run(place, example)["spec"])
    intent = restart(place, example.kind, node)
    stop, start = intent.changes
    assert [p.pod for p in start.after] == ["x-0"]
    place.send(stop, start)
    assert place.holds(start)
    after = place.get(example.stored, "x")
    assert after is not None
    for path in paths:
        pod = walk(after["spec"], path)["spec"]
        assert pod.pop("affinity") == EXCLUDING, path
    assert walk(after["spec"], paths[0]) == walk(before, paths[0])
    assert after["metadata"]["annotations"]["fallow.dev/restarts"] == "1"
    assert "cannot be undone" in intent.lost
    assert "excludes host-1 until its owner changes it" in intent.lost


def resume(place: Place, example: Example, intent: Intent, *meanwhile: dict[str, Any]) -> Object:
    """Stop the job again and resume it with its exclusion ended; return it."""
    start = intent.changes[-1]
    pointers = [p for p in start.becomes if not p.endswith("suspend")]
    ended = {
        "was": {p: start.was[p] for p in pointers},
        "becomes": {p: start.becomes[p] for p in pointers},
    }
    stop = decided(example.kind, place.name, "x", "suspend")
    place.send(*choose_executor(stop).writes(stop, place.door).changes)
    for body in ({"metadata": {"annotations": {"fallow.dev/action": "a"}}}, *meanwhile):
        place.patch(example.stored, "x", body)
    decision = decided(example.kind, place.name, "x", "resume", parameters={ENDED_EXCLUSION: ended})
    place.send(*choose_executor(decision).writes(decision, place.door).changes)
    after = place.get(example.stored, "x")
    assert after is not None
    return after


@pytest.mark.parametrize(("example", "paths"), JOBS, ids=[e.kind for e, _ in JOBS])
def test_a_resume_gives_back_what_an_ended_exclusion_wrote(
    place: Place, example: Example, paths: list[str]
) -> None:
    node = add_node(place, **HOST)
    before = copy.deepcopy(run(place, example)["spec"])
    intent = restart(place, example.kind, node)
    place.send(*intent.changes)
    after = resume(place, example, intent)
    for path in paths:
        assert walk(after["spec"], path) == walk(before, path)


def test_a_resume_keeps_an_owners_own_affinity(place: Place) -> None:
    node = add_node(place, **HOST)
    spec = job()
    spec["template"] = copy.deepcopy(spec["template"])
    own = {"nodeAffinity": {PREFERRED: ZONES}}
    spec["template"]["spec"]["affinity"] = own
    example = Example("Job", spec)
    run(place, example)
    intent = restart(place, "Job", node)
    place.send(*intent.changes)
    assert resume(place, example, intent)["spec"]["template"]["spec"]["affinity"] == own


def test_a_resume_leaves_an_affinity_that_somebody_changed_since(place: Place) -> None:
    node = add_node(place, **HOST)
    example = Example("Job", job())
    run(place, example)
    intent = restart(place, "Job", node)
    place.send(*intent.changes)
    other = {"nodeAffinity": {PREFERRED: ZONES}}
    change = {"spec": {"template": {"spec": {"affinity": other}}}}
    after = resume(place, example, intent, change)["spec"]["template"]["spec"]["affinity"]
    assert after["nodeAffinity"][PREFERRED] == ZONES
    assert REQUIRED in after["nodeAffinity"]


def test_the_undo_while_its_pods_end_starts_it_as_it_was(place: Place) -> None:
    node = add_node(place, **HOST)
    before = run(place, Example("Job", job()))
    intent = restart(place, "Job", node)
    place.send(intent.changes[0], *intent.undo)
    after = place.get("Job", "x")
    assert after is not None
    assert after["spec"]["template"] == before["spec"]["template"]


@pytest.mark.parametrize(
    ("kind", "key", "spec", "status"),
    [
        ("JobSet", "JobSet", {"replicatedJobs": []}, None),
        ("VolcanoJob", "Job.batch.volcano.sh", {"tasks": []}, {"state": {"phase": "Running"}}),
    ],
)
def test_what_a_kind_cannot_do_is_said(
    place: Place, kind: str, key: str, spec: Object, status: Object | None
) -> None:
    node = add_node(place, **HOST)
    run(place, Example(kind, spec, key=key, status=status))
    assert f"restart elsewhere cannot be done for {kind}: its webhook" in refuse(place, kind, node)


def test_its_role_has_no_rights_for_what_it_refuses(place: Place) -> None:
    """Kinds whose template cannot change, and Kueue's Workloads, which it only reads."""
    rights = {(r.group, r.resource): set(r.verbs) for r in RestartElsewhereExecutor.rights}
    writable = {resource for (_, resource), verbs in rights.items() if verbs - {"get", "list"}}
    assert writable == {"jobs", "pytorchjobs", "mpijobs", "rayjobs"}
    assert ("batch.volcano.sh", "jobs") not in rights
    assert rights["kueue.x-k8s.io", "workloads"] == {"get", "list"}
    # Refused before it is read, so the API refuses no read of it.
    assert "cannot be done for JobSet" in refuse(place, "JobSet", "n")


def test_under_kueue_it_cannot_be_done(place: Place) -> None:
    node = add_node(place, **HOST)
    made = make(place, "Job", job(), labels={"kueue.x-k8s.io/queue-name": "q"})
    add_pod(place, made)
    workload(place, made)
    assert "cannot be done for Job under Kueue" in refuse(place, "Job", node)


def test_a_node_that_is_not_known_is_not_excluded(place: Place) -> None:
    node = add_node(place)
    run(place, Example("Job", job()))
    assert refuse(place, "Job") == "no incident names a node that it should leave"
    assert refuse(place, "Job", "gone") == "node gone is gone: a plain restart leaves it"
    assert refuse(place, "Job", node) == f"node {node} has no {HOSTNAME}"


def test_each_alternative_of_an_owners_affinity_excludes_the_hosts_once() -> None:
    zones = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [z]}]} for z in "ab"]
    apart: Object = {"podAntiAffinity": {"x": []}}
    before: Object = {**apart, "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": zones}}}
    kept = copy.deepcopy(before)
    after = exclude_hosts(before, ["host-1"])
    assert before == kept
    assert after["podAntiAffinity"] == {"x": []}
    terms = after["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert [t["matchExpressions"] for t in terms] == [
        [*zone["matchExpressions"], AWAY] for zone in zones
    ]
    assert exclude_hosts(after, ["host-1"]) == after

"""Jobs that wait before they have pods: Workloads of Kueue and PodGroups, as their APIs print them.

The objects are those of a kubectl dump; rows are what the collector makes of them.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.kube.conftest import Cluster, Look
from tests.kube.objects import Object, meta, node, pod, refs
from tests.kube.test_dumps import listed, read

GPU = "nvidia.com/gpu"
QUOTA = (
    "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in "
    "flavor h100, 8 more needed"
)
PENDING = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": QUOTA,
           "lastTransitionTime": "2026-11-20T11:00:00Z"}  # fmt: skip
JOB = ("batch/v1", "Job/train")


def template(gpus: int | str | None, **spec: Any) -> Object:
    """Return a pod template of one container."""
    limits = {} if gpus is None else {GPU: gpus}
    container = {"name": "main", "resources": {"limits": limits, "requests": {"cpu": "8"}}}
    return {"metadata": {"labels": {"app": "train"}}, "spec": {"containers": [container], **spec}}


def workload(
    *conditions: Object, name: str = "job-train", owner: tuple[str, str] | None = JOB,
    sets: list[Object] | None = None, status: Object | None = None, **spec: Any,
) -> Object:  # fmt: skip
    """Return a Kueue Workload of two pods of four GPUs, created at eleven."""
    job = meta(name, owner=owner)
    job["metadata"] |= {"uid": f"w-{name}", "creationTimestamp": "2026-11-20T11:00:00Z"}
    main = {"name": "main", "count": 2, "template": template("4")}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", **job,
        "spec": {"queueName": "gpus", "priority": 100, "podSets": sets or [main], **spec},
        "status": {"conditions": list(conditions), **(status or {})},
    }  # fmt: skip


def group(
    *, members: int | None = 4, totals: dict[str, Any] | None = None, phase: str = "Pending",
    api: str = "scheduling.volcano.sh/v1beta1", owner: tuple[str, str] | None = None, **status: Any,
) -> Object:  # fmt: skip
    """Return a PodGroup of four pods and 16 GPUs."""
    item = meta("pg", owner=owner)
    item["metadata"] |= {"uid": "pg", "creationTimestamp": "2026-11-20T11:30:00Z"}
    spec = {"minMember": members, "minResources": totals if totals is not None else {GPU: "16"}}
    return {
        "apiVersion": api, "kind": "PodGroup", **item,
        "spec": {**spec, "queue": "team", "priorityClassName": "high"},
        "status": {"phase": phase, **status},
    }  # fmt: skip


@pytest.fixture
def rows(tmp_path: Path, now: datetime) -> Any:
    """Return what makes rows of objects beside a node."""
    return lambda *items: read(tmp_path / "d.json", listed(node(), *items), now).get(
        "pending_workload", []
    )


def test_a_workload_without_quota_is_a_row_with_its_owner_and_pod_sets(rows: Any) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", **meta("train")}
    owner["metadata"]["uid"] = "job-train"
    (row,) = rows(workload(PENDING), owner)
    assert (row["kind"], row["workload_kind"], row["workload"]) == ("Workload", "Job", "train")
    assert (row["queue"], row["priority"], row["state"]) == ("gpus", 100, "pending")
    condition = json.loads(row["condition"])
    assert (condition["reason"], condition["message"]) == ("Pending", QUOTA)
    request = json.loads(row["request"])
    assert (request["gpus"], request["pods"], request["fault"]) == (8, 2, "")
    (shape,) = request["sets"]
    assert (shape["name"], shape["count"], shape["gpus"]) == ("main", 2, 4)
    assert (shape["gpu_resource"], shape["cpu_milli"]) == (GPU, 8000)
    assert f"{row['queued_at']:%H:%M}" == "11:00"


def admit(**more: Any) -> Object:
    return {"admission": {"clusterQueue": "q", "podSetAssignments": []}, **more}


def condition(kind: str, status: str = "True", at: str = "2026-11-20T11:40:00Z") -> Object:
    return {"type": kind, "status": status, "lastTransitionTime": at}


RESERVED, ADMITTED = condition("QuotaReserved"), condition("Admitted")


@pytest.mark.parametrize(
    ("item", "state", "words"),
    [
        (workload(PENDING, condition("Admitted", "False")), "pending", "8 more needed"),
        (workload(), "pending", None),
        (workload(RESERVED, ADMITTED, status=admit()), "started", None),
        (workload(RESERVED, ADMITTED), "contradictory",
         ("its conditions contradict: QuotaReserved is True, Admitted is True, and it has no "
         "admission")),
        (workload(PENDING, ADMITTED, status=admit()), "contradictory",
         ("its conditions contradict: QuotaReserved is False, Admitted is True, and it has an "
         "admission")),
        (workload(PENDING, status=admit()), "contradictory",
         "its conditions contradict: QuotaReserved is False, and it has an admission"),
        (workload(RESERVED, status=admit(admissionChecks=[
            {"name": "a", "state": "Ready"},
            {"name": "provision", "state": "Pending", "message": "no nodes"}])),
         "reserved", "admission check provision is Pending: no nodes"),
        (workload(PENDING, active=False), "inactive", None),
        (workload(condition("Finished")), "ended", None),
    ],
    ids=["quota", "new", "admitted", "no admission", "no quota", "half", "checks", "inactive",
         "ended"],
)  # fmt: skip
def test_conditions_say_whether_a_workload_waits(
    rows: Any, item: Object, state: str, words: str | None
) -> None:
    (row,) = rows(item)
    message = json.loads(row["condition"]).get("message")
    assert row["state"] == state
    assert message is None if words is None else words in message


@pytest.mark.parametrize(
    "item",
    [
        workload(PENDING, sets=[{"name": "main", "count": 2, "template": template(None)}]),
        workload(PENDING, owner=("v1", "Pod/p")),
        workload(condition("Finished", at="2026-11-20T10:59:00Z")),
        group(totals={"cpu": "4"}),
        group(phase="Completed"),
    ],
    ids=["no GPUs", "of a pod", "ended long ago", "group without GPUs", "group that ended"],
)
def test_what_requests_no_gpus_or_ended_long_ago_is_no_row(rows: Any, item: Object) -> None:
    assert rows(item) == []


@pytest.mark.parametrize(
    ("item", "gpus", "fault"),
    [
        (workload(PENDING, status={"resourceRequests": [
            {"name": "main", "resources": {GPU: "8"}}]}), 8, ""),
        (workload(PENDING, status={"resourceRequests": [
            {"name": "main", "resources": {GPU: "4"}}]}), None,
         "its pods request 8 of nvidia.com/gpu, the object's sum is 4"),
        (workload(PENDING, status={"reclaimablePods": [{"name": "main", "count": 1}]}), 4, ""),
        (workload(PENDING, sets=[{"name": "main", "template": template("4")}]), None,
         "how many pods its pod set main has is not known"),
        (workload(PENDING, sets=[{"name": "main", "count": 2, "template": {
            "spec": {"containers": "none"}}}]), None, "the pod template main is unreadable"),
        (group(), 16, ""),
        (group(members=None), None, "how many pods it needs (minMember) is not known"),
        (group(totals={}), None, "what its pods request is not known (minResources)"),
    ],
    ids=["sum agrees", "sum differs", "a pod is done", "no count", "unreadable", "group",
         "no members", "no amounts"],
)  # fmt: skip
def test_a_request_that_is_missing_or_contradicts_itself_has_a_fault(
    rows: Any, item: Object, gpus: float | None, fault: str
) -> None:
    (row,) = rows(item)
    request = json.loads(row["request"])
    assert request["gpus"] == gpus
    assert request["fault"].startswith(fault) if fault else request["fault"] == ""


@pytest.mark.parametrize(
    ("spec", "priority"),
    [
        ({}, 100),
        ({"priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass",
                               "name": "high"}}, 100),
        ({"priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass",
                               "name": "high"}}, 100),
        ({"priorityClassSource": "scheduling.k8s.io/priorityclass", "priorityClassName": "high"},
         100),
        ({"priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass",
          "priorityClassName": "high"}, 100),
    ],
)  # fmt: skip
def test_the_priority_is_the_workloads_own_and_says_of_what_it_is_a_number(
    rows: Any, spec: Object, priority: int | None
) -> None:
    (row,) = rows(workload(PENDING, **spec))
    own = any("kueue" in str(value) or "Workload" in str(value) for value in spec.values())
    assert json.loads(row["request"])["own_priority"] is own
    assert (row["priority"], row["priority_class"]) == (priority, "high" if spec else None)


def volcano_job(*tasks: tuple[str, int, str | None]) -> Object:
    spec = {"tasks": [{"name": n, "replicas": r, "template": template(g)} for n, r, g in tasks]}
    job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", **meta("v"), "spec": spec}
    job["metadata"]["uid"] = "job-v"
    return job


VOLCANO = ("batch.volcano.sh/v1alpha1", "Job/v")


@pytest.mark.parametrize(
    ("tasks", "members", "gpus", "shapes"),
    [
        ([("head", 1, None), ("worker", 3, "4")], 4, 12, [("worker", 3)]),
        ([("worker", 8, "4")], 4, 16, [("worker", 4)]),
        ([("a", 3, "4"), ("b", 3, "4")], 4, 16, []),
    ],
    ids=["all start", "one task, a part of it", "which of two tasks is not known"],
)
def test_the_shapes_of_a_volcano_jobs_pods_are_those_of_its_tasks(
    rows: Any, tasks: Any, members: int, gpus: int, shapes: list[tuple[str, int]]
) -> None:
    (row,) = rows(
        group(members=members, totals={GPU: str(gpus)}, owner=VOLCANO), volcano_job(*tasks)
    )
    assert (row["kind"], row["workload_kind"], row["workload"]) == (
        "PodGroup.volcano", "VolcanoJob", "v",
    )  # fmt: skip
    request = json.loads(row["request"])
    assert (request["gpus"], request["fault"]) == (gpus, "")
    assert [(s["name"], s["count"]) for s in request["sets"]] == shapes


@pytest.mark.parametrize(
    ("api", "names"),
    [
        ("scheduling.volcano.sh/v1beta1",
         {"annotations": {"scheduling.k8s.io/group-name": "pg"}}),
        ("scheduling.x-k8s.io/v1alpha1", {"labels": {"scheduling.x-k8s.io/pod-group": "pg"}}),
    ],
)  # fmt: skip
def test_a_group_with_pods_waits_by_them(rows: Any, api: str, names: Any) -> None:
    (row,) = rows(group(api=api))
    assert (row["state"], row["workload_kind"], row["workload"]) == ("pending", "PodGroup", "pg")
    (row,) = rows(group(api=api), pod(**names))
    assert row["state"] == "started"


def test_a_live_cluster_lists_them_and_volcanos_jobs_only_where_a_group_waits(
    cluster: Cluster, look: Look
) -> None:
    cluster.serve("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")
    cluster.serve("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
    cluster.serve("batch.volcano.sh", "v1alpha1", "jobs", "Job")
    cluster.put("Workload", workload(PENDING, owner=None))
    key = "PodGroup.scheduling.volcano.sh"
    cluster.put(key, group(members=3, totals={GPU: 12}, phase="Running", owner=VOLCANO))
    job = "Job.batch.volcano.sh"
    cluster.put(job, volcano_job(("worker", 3, "4")))
    rows = {row["name"]: row for row in look()["pending_workload"]}
    assert {name: row["state"] for name, row in rows.items()} == {
        "job-train": "pending", "pg": "started",
    }  # fmt: skip
    assert rows["job-train"]["workload_kind"] == "Workload"
    cluster.put(key, group(members=3, totals={GPU: 12}, owner=VOLCANO))
    (row,) = (r for r in look()["pending_workload"] if r["name"] == "pg")
    assert [s["count"] for s in json.loads(row["request"])["sets"]] == [3]
    assert refs(VOLCANO)[0]["controller"]

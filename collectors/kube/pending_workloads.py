"""Map jobs that wait before they have pods to rows of the `pending_workload` table.

Kueue lets a job's pods be created once its Workload is admitted, Volcano once its PodGroup is in
its queue. What such a job requests is in the object's pod sets, in the tasks of its Volcano job,
or, only as a sum, in `minResources`. What is missing or contradicts itself is said in `fault`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from collectors.inventory import build_each
from collectors.kube.conditions import ObjectState, judge_group, judge_workload
from collectors.kube.flavors import describe_flavors, read_assigned
from collectors.kube.owners import find_controller
from collectors.kube.pods import PodContext, build_pod_row
from collectors.kube.queues import find_queued
from collectors.kube.shapes import CustomObject, Meta, Pod
from fallow.kube.owner_chains import split_api_version
from fallow.kube.values import get_map, list_maps, parse_number
from fallow.models import UNRESOLVED
from fallow.rejections import Rejection

JobKind = Literal["Workload", "PodGroup.volcano", "PodGroup"]
VOLCANO_JOB = ("batch.volcano.sh", "Job")
GROUP_LABELS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
GROUP_ANNOTATIONS = ("scheduling.k8s.io/group-name",)
"""How a pod names its PodGroup: scheduler-plugins by a label, Volcano by an annotation."""
_POD_PRIORITY = "scheduling.k8s.io"
"""Group of the priority classes whose numbers pods have too; Kueue's own are of another measure."""


class JobObjects(msgspec.Struct, frozen=True):
    """The objects by which jobs wait in a cluster; `volcano_jobs` by namespace and name."""

    workloads: Sequence[CustomObject] = ()
    volcano_groups: Sequence[CustomObject] = ()
    groups: Sequence[CustomObject] = ()
    volcano_jobs: Mapping[tuple[str, str], CustomObject] = {}
    flavors: Sequence[CustomObject] = ()
    """The ResourceFlavors of Kueue."""


class JobPodSet(msgspec.Struct, frozen=True):
    """Pods of one shape that a job would create."""

    name: str
    count: int
    template: Mapping[str, Any]


class PodSetRequest(msgspec.Struct, frozen=True):
    """What a job requests: pods of known shapes, or only a sum (`totals`) over `pods` pods."""

    sets: tuple[JobPodSet, ...] = ()
    totals: Mapping[str, Any] = {}
    pods: int = 0
    fault: str = ""
    flavors: Mapping[str, Any] | None = None
    """Of a waiting Workload of Kueue (`describe_flavors`)."""


def list_pending_rows(
    objects: JobObjects,
    context: PodContext,
    started: frozenset[tuple[str, str]],
    rejections: list[Rejection],
) -> Iterator[dict[str, Any]]:
    """Yield a row for each job object that requests GPUs, also for those that do not wait now.

    `started`: namespace and name of the PodGroups that have pods. Workloads of single pods are left
    out: their pods exist, behind a scheduling gate.
    """
    flavors = describe_flavors(objects.flavors)

    def build_workload(workload: CustomObject) -> Iterator[dict[str, Any]]:
        if not _is_of_pods(workload.metadata):
            state = judge_workload(workload, context.now())
            request = _read_pod_sets(workload)
            if is_waiting(state):
                request = msgspec.structs.replace(request, flavors=flavors)
            yield from _build_rows("Workload", workload, state, request, context)

    def build_group(kind: str, group: CustomObject) -> Iterator[dict[str, Any]]:
        meta = group.metadata
        state = judge_group(group)
        if (meta.namespace, meta.name) in started and state is not None:
            state = ObjectState("started")
        request = _read_group(group, _find_job(meta, objects.volcano_jobs))
        yield from _build_rows(kind, group, state, request, context)

    table = "pending_workload"
    yield from build_each(table, objects.workloads, build_workload, rejections)
    for kind, groups in (
        ("PodGroup.volcano", objects.volcano_groups),
        ("PodGroup", objects.groups),
    ):
        yield from build_each(table, groups, partial(build_group, kind), rejections)


def find_group(meta: Meta) -> tuple[str, str] | None:
    """Return namespace and name of the PodGroup that a pod names; None = it names none."""
    labels, annotations = meta.labels or {}, meta.annotations or {}
    names = [labels.get(key) for key in GROUP_LABELS]
    names += [annotations.get(key) for key in GROUP_ANNOTATIONS]
    return next(((meta.namespace, name) for name in names if name), None)


def needs_volcano_jobs(groups: Iterable[CustomObject]) -> bool:
    """Return whether the shape of a waiting PodGroup is in its Volcano job."""
    return any(
        _get_owner(group.metadata) is not None and is_waiting(judge_group(group))
        for group in groups
    )


def is_waiting(state: ObjectState | None) -> bool:
    """Return whether an object in this state waits."""
    return state is not None and state.name in {"pending", "reserved", "contradictory"}


def _is_of_pods(meta: Meta) -> bool:
    return any(ref.kind == "Pod" for ref in meta.owner_references or ())


def _get_owner(meta: Meta) -> str | None:
    """Return the name of the Volcano job that controls a PodGroup; None = none does."""
    ref = find_controller(meta)
    if ref is None or (split_api_version(ref.api_version)[0], ref.kind) != VOLCANO_JOB:
        return None
    return ref.name


def _find_job(meta: Meta, jobs: Mapping[tuple[str, str], CustomObject]) -> CustomObject | None:
    name = _get_owner(meta)
    return None if name is None else jobs.get((meta.namespace, name))


def _read_pod_sets(workload: CustomObject) -> PodSetRequest:
    """Read the pod sets of a Kueue Workload, without pods that it needs no more."""
    spec, status = workload.spec or {}, workload.status or {}
    finished = {
        str(r.get("name")): r.get("count") for r in list_maps(status.get("reclaimablePods"))
    }
    sets = []
    for position, pod_set in enumerate(list_maps(spec.get("podSets"))):
        name, count = str(pod_set.get("name") or position), pod_set.get("count")
        less = finished.get(name) or 0
        if not isinstance(count, int) or not isinstance(less, int):
            return PodSetRequest(fault=f"how many pods its pod set {name} has is not known")
        sets.append(JobPodSet(name, max(0, count - less), get_map(pod_set.get("template"))))
    if not sets:
        return PodSetRequest(fault="it has no pod sets")
    totals: dict[str, float] = {}
    for assignment in list_maps(status.get("resourceRequests")):
        for resource, amount in get_map(assignment.get("resources")).items():
            totals[resource] = totals.get(resource, 0.0) + (parse_number(amount) or 0.0)
    return PodSetRequest(tuple(sets), totals, sum(s.count for s in sets))


def _read_group(group: CustomObject, job: CustomObject | None) -> PodSetRequest:
    """Read what a PodGroup needs to start; its pods' shapes are in its Volcano job, or unknown."""
    spec = group.spec or {}
    totals, members = get_map(spec.get("minResources")), spec.get("minMember")
    if not isinstance(members, int) or members < 1:
        return PodSetRequest(totals=totals, fault="how many pods it needs (minMember) is not known")
    sets = () if job is None else _list_tasks(job, get_map(spec.get("minTaskMember")))
    if len(sets) == 1:
        sets = (msgspec.structs.replace(sets[0], count=members),)
    if sets and sum(s.count for s in sets) == members:
        return PodSetRequest(sets, totals, members)
    if not totals:
        why = "what its pods request is not known (minResources)"
        return PodSetRequest(sets, pods=members, fault=why)
    if members == 1:
        return PodSetRequest(
            (JobPodSet("main", 1, _build_template(group.metadata, totals)),), totals, 1
        )
    return PodSetRequest(totals=totals, pods=members)


def _list_tasks(job: CustomObject, least: Mapping[str, Any]) -> tuple[JobPodSet, ...]:
    """Return the tasks of a Volcano job, each with the pods that it needs to start."""
    sets = []
    for task in list_maps((job.spec or {}).get("tasks")):
        name = str(task.get("name") or "")
        count = least.get(name, task.get("replicas", 1))
        if isinstance(count, int):
            sets.append(JobPodSet(name, count, get_map(task.get("template"))))
    return tuple(sets)


def _build_template(meta: Meta, totals: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod template of one container that requests these amounts."""
    requests = {name: value for name, value in totals.items() if isinstance(value, (str, int))}
    return {
        "metadata": {"labels": meta.labels},
        "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]},
    }


def _build_rows(
    kind: JobKind | str,
    item: CustomObject,
    state: ObjectState | None,
    request: PodSetRequest,
    context: PodContext,
) -> Iterator[dict[str, Any]]:
    """Yield the row of one object; nothing where it requests no GPUs or ended long ago."""
    if state is None:
        return
    rows, unreadable = _build_pod_rows(item.metadata, request, context)
    with_hosts = request.flavors is not None
    document, first = _describe_request(request, rows, unreadable, with_hosts=with_hosts)
    if document is None:
        return
    meta, spec = item.metadata, item.spec or {}
    name, priority = _read_priority(spec, first)
    plain = kind.partition(".")[0]
    document["own_priority"] = plain == "Workload" and _has_own_priority(spec)
    if request.flavors is not None:
        document["flavors"] = request.flavors
        admission = get_map((item.status or {}).get("admission"))
        for shape in document["sets"]:
            shape["assigned"] = read_assigned(admission, shape["name"])
    own = first["workload_kind"] == "Pod"
    yield {
        "cluster": context.cluster,
        "uid": meta.uid or f"{kind}/{meta.namespace}/{meta.name}",
        "kind": kind,
        "namespace": meta.namespace,
        "name": meta.name,
        "workload_kind": plain if own else first["workload_kind"] or UNRESOLVED,
        "workload": meta.name if own or not first["workload"] else first["workload"],
        "workload_uid": meta.uid if own else first["workload_uid"],
        "team": first["team"],
        "queue": spec.get("queueName") or spec.get("queue") or first["queue"],
        "priority_class": name,
        "priority": priority,
        "state": state.name,
        "condition": state.encode(),
        "request": msgspec.json.encode(document, order="sorted").decode(),
        "created_at": meta.creation_timestamp,
        "queued_at": find_queued(item),
        "first_seen": context.now(),
        "last_seen": context.now(),
    }


def _build_pod_rows(
    meta: Meta, request: PodSetRequest, context: PodContext
) -> tuple[list[tuple[JobPodSet, dict[str, Any]]], str]:
    """Return a row of `pod` per pod set, as its pods would have it, and what is unreadable."""
    sets = request.sets
    if not sets:
        sets = (JobPodSet("", 1, _build_template(meta, request.totals)),)
    rows = []
    for pod_set in sets:
        try:
            rows.append((pod_set, build_pod_row(_build_pod(meta, pod_set), context)))
        except msgspec.ValidationError as error:
            whole = JobPodSet(pod_set.name, pod_set.count, {})
            rows.append((whole, build_pod_row(_build_pod(meta, whole), context)))
            return rows, f"the pod template {pod_set.name} is unreadable: {error}"
    return rows, ""


def _build_pod(meta: Meta, pod_set: JobPodSet) -> Pod:
    """Return a pod of a set: the template's, controlled by what controls the job object."""
    template = msgspec.convert({"metadata": {}, "spec": {}} | dict(pod_set.template), Pod)
    metadata = msgspec.structs.replace(
        template.metadata,
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        owner_references=meta.owner_references,
        creation_timestamp=meta.creation_timestamp,
    )
    return msgspec.structs.replace(template, metadata=metadata)


def _describe_request(
    request: PodSetRequest,
    rows: Sequence[tuple[JobPodSet, dict[str, Any]]],
    unreadable: str,
    *,
    with_hosts: bool,
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the request as a document, None where it has no GPUs; and the row of its main pod.

    `with_hosts`: with the pod sets without GPUs, which Kueue lets in together with the others.
    """
    with_gpus = [(s, row) for s, row in rows if row.get("gpu_resource") and s.count]
    if not with_gpus and not _may_have_gpus(request, unreadable):
        return None, {}
    first = (with_gpus or rows)[0][1]
    fault = unreadable or request.fault or _compare_totals(request, with_gpus)
    listed = [(s, row) for s, row in rows if s.count] if with_hosts else with_gpus
    document = {
        "gpu_resource": first.get("gpu_resource") or "",
        "gpus": None if fault else _sum_gpus(with_gpus),
        "pods": sum(s.count for s, _ in with_gpus) if request.sets else request.pods,
        "fault": fault,
        "sets": [] if fault or not request.sets else [_describe_set(s, r) for s, r in listed],
    }
    return document, first


def _may_have_gpus(request: PodSetRequest, unreadable: str) -> bool:
    """Return whether it is not known that a request without GPUs has none."""
    return bool(unreadable or (request.fault and not request.sets and not request.totals))


def _sum_gpus(with_gpus: Sequence[tuple[JobPodSet, Mapping[str, Any]]]) -> float | None:
    """Return the GPUs of all pods; None = those of one are not known."""
    amounts = [s.count * r["gpu_request"] for s, r in with_gpus if r["gpu_request"] is not None]
    return sum(amounts) if len(amounts) == len(with_gpus) else None


def _describe_set(pod_set: JobPodSet, row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": pod_set.name,
        "count": pod_set.count,
        "gpu_resource": row.get("gpu_resource") or "",
        "gpus": row["gpu_request"] if row.get("gpu_resource") else 0.0,
        "cpu_milli": row["cpu_request_milli"],
        "memory_bytes": row["memory_request_bytes"],
        "labels": row["labels"],
        "annotations": row["annotations"],
        "constraints": row["constraints"],
    }


def _compare_totals(
    request: PodSetRequest, with_gpus: Sequence[tuple[JobPodSet, Mapping[str, Any]]]
) -> str:
    """Return how the object's own sum contradicts its pod sets; empty = it does not."""
    if not request.sets or not request.totals:
        return ""
    sums: dict[str, float] = {}
    for pod_set, row in with_gpus:
        resource = row["gpu_resource"]
        sums[resource] = sums.get(resource, 0.0) + pod_set.count * (row["gpu_request"] or 0.0)
    for resource, amount in sorted(sums.items()):
        total = parse_number(request.totals.get(resource))
        if "/mig-" not in resource and total is not None and total != amount:
            return f"its pods request {amount:g} of {resource}, the object's sum is {total:g}"
    return ""


def _read_priority(
    spec: Mapping[str, Any], first: Mapping[str, Any]
) -> tuple[str | None, int | None]:
    """Return the priority class and its number: the object's own before that of its pods."""
    ref = get_map(spec.get("priorityClassRef"))  # v1beta2; before, name and source
    name = ref.get("name") or spec.get("priorityClassName") or None
    number = spec.get("priority")
    if not isinstance(number, int):
        number = first.get("priority") if name is None else None
    return name or first.get("priority_class"), number


def _has_own_priority(spec: Mapping[str, Any]) -> bool:
    """Return whether the number is of a WorkloadPriorityClass, which orders Workloads only."""
    ref = get_map(spec.get("priorityClassRef"))
    name = ref.get("name") or spec.get("priorityClassName")
    source = str(ref.get("group") or spec.get("priorityClassSource") or "")
    return bool(name) and not source.startswith(_POD_PRIORITY)

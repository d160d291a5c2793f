"""Read jobs that wait before they have pods: Workloads of Kueue, PodGroups.

Where the shapes of their pods are known, they wait as those pods would: the same placement, reasons
and ways in. Where only a sum is known, no placement is made; what contradicts itself is unknown.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

import msgspec

from capacity.placement.fleet_state import FleetState, PodRecord, WorkloadKey, to_micros
from fallow.models import UNRESOLVED
from fallow.protocols import Views
from fallow.resources import read_text
from fallow.rows import Row, decode_rows
from fallow.stored_annotations import ASSIGNED_FLAVORS, FLAVORS, POD_SET

WORKLOAD = "Workload"
"""Kueue's object: what it says of a job precedes a PodGroup of the same job."""
PriorityMeasure = Literal["pods", "workload", "workload class"]
"""pods: the priority of pods. workload: of a Workload whose class is that of its pods. workload
class: of a WorkloadPriorityClass, which no pod has."""
_ENDED = frozenset({"Succeeded", "Failed"})


class WaitingPodShape(msgspec.Struct, frozen=True):
    """Pods of one shape that a job would create."""

    name: str
    count: int
    gpu_resource: str
    gpus: float | None
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    labels: str | None = None
    annotations: str | None = None
    constraints: str | None = None
    assigned: Mapping[str, str] = {}
    """The flavor of each resource, where Kueue has reserved its quota."""


class WaitingRequest(msgspec.Struct, frozen=True):
    """What a job requests; without `sets` the shapes of its pods are not known."""

    gpu_resource: str = ""
    gpus: float | None = None
    pods: int = 0
    sets: tuple[WaitingPodShape, ...] = ()
    fault: str = ""
    flavors: Mapping[str, Any] | None = None
    """Kueue's flavors by name; None = not of Kueue, or not collected."""
    own_priority: bool = False
    """Its priority is of a WorkloadPriorityClass, which orders Workloads only."""


class PendingJob(Row, frozen=True):
    """An object by which a job waits (`pending_jobs.sql`)."""

    cluster: str
    kind: str
    namespace: str
    name: str
    workload_kind: str
    workload: str
    workload_uid: str | None
    team: str | None
    queue: str | None
    priority_class: str | None
    priority: int | None
    state: str
    condition: str
    request: str
    begin_us: int
    ahead_us: int | None

    @property
    def key(self) -> WorkloadKey:
        """Return the workload that waits."""
        return (self.cluster, self.namespace, self.workload_kind, self.workload)

    @property
    def object_name(self) -> str:
        """Return the object as Kind/namespace/name."""
        return f"{self.kind.partition('.')[0]}/{self.namespace}/{self.name}"

    @property
    def condition_map(self) -> Mapping[str, Any]:
        """Return reason, message and time of the scheduler's condition."""
        document = msgspec.json.decode(self.condition)
        return document if isinstance(document, dict) else {}


class UnsizedJob(msgspec.Struct, frozen=True):
    """A job of which no placement can be made, and what is not known of it."""

    key: WorkloadKey
    jobs: Sequence[PendingJob]
    pods: int
    gpus: float | None
    unknown: str


class PendingJobs:
    """The jobs without pods at one time."""

    def __init__(self, views: Views, state: FleetState, now: datetime) -> None:
        self._views, self._state, self._now, self._at = views, state, now, to_micros(now)

    def list_objects(self, key: WorkloadKey) -> tuple[str, ...]:
        """Return the objects by which a workload waits, as Kind/namespace/name; none = by pods."""
        return tuple(sorted(job.object_name for job, _ in self._by_key.get(key, ())))

    def find_measure(self, key: WorkloadKey) -> PriorityMeasure:
        """Return of what the priority of a waiting job is a number."""
        for job, request in self._by_key.get(key, ()):
            if job.kind == WORKLOAD:
                return "workload class" if request.own_priority else "workload"
        return "pods"

    @cached_property
    def priorities(self) -> Mapping[WorkloadKey, int | None]:
        """Return the priorities of the Workloads that run."""
        sql = read_text("capacity.queue", "workload_priorities.sql")
        rows = self._views.query(sql, {"until": self._now}).to_pylist()
        return {
            (r["cluster"], r["namespace"], r["workload_kind"], r["workload"]): r["priority"]
            for r in rows
        }

    def list_pods(self) -> dict[WorkloadKey, list[PodRecord]]:
        """Return the pods that each job of known shapes would create, as pods that wait."""
        return {
            key: [pod for job, request in pairs for pod in _list_pods(job, request, self._at)]
            for key, pairs in self._by_key.items()
            if not self._explain_unknown(key, pairs)
        }

    def list_unsized(self) -> Iterator[UnsizedJob]:
        """Yield the jobs of which no placement can be made."""
        for key, pairs in self._by_key.items():
            unknown = self._explain_unknown(key, pairs)
            if unknown:
                amounts = [request.gpus for _, request in pairs]
                sums = sum(amount or 0.0 for amount in amounts)
                is_sized = unknown.startswith("ways") and None not in amounts
                yield UnsizedJob(
                    key,
                    [job for job, _ in pairs],
                    sum(request.pods for _, request in pairs),
                    sums if is_sized else None,
                    unknown,
                )

    def _explain_unknown(
        self, key: WorkloadKey, pairs: Sequence[tuple[PendingJob, WaitingRequest]]
    ) -> str:
        """Return what is not known of a job; empty = its pods can be placed."""
        for job, request in pairs:
            if job.state == "contradictory":
                return f"gpus: {job.condition_map.get('message') or 'its conditions contradict'}"
            if request.fault:
                return f"gpus: {request.fault}"
        placed = sum(bool(pod.node) for pod in self._pods.get(key, ()))
        if placed:
            kind = pairs[0][0].kind.partition(".")[0]
            return f"gpus: its {kind} waits, and {placed} of its pods have a node"
        shapes = [shape for _, request in pairs for shape in request.sets]
        if not shapes:
            pods = sum(request.pods for _, request in pairs)
            return f"ways: what each of its {pods} pods requests is not known, only their sum"
        unsized = [shape for shape in shapes if shape.gpus is None]
        if unsized:
            return f"gpus: how many of {unsized[0].gpu_resource} it requests is not known"
        return ""

    @cached_property
    def _by_key(self) -> dict[WorkloadKey, list[tuple[PendingJob, WaitingRequest]]]:
        """Return the objects of each job; without jobs whose pods wait themselves."""
        sql = read_text("capacity.queue", "pending_jobs.sql")
        rows = decode_rows(self._views.query(sql, {"until": self._now}), PendingJob)
        by_key: dict[WorkloadKey, list[PendingJob]] = {}
        for job in rows:
            by_key.setdefault(job.key, []).append(job)
        by_workload = {}
        for key, jobs in by_key.items():
            pods = self._pods.get(key, ())
            if pods and not any(pod.node for pod in pods):
                continue
            own = [job for job in jobs if job.kind == WORKLOAD] or jobs
            by_workload[key] = [
                (job, msgspec.json.decode(job.request, type=WaitingRequest)) for job in own
            ]
        return by_workload

    @cached_property
    def _pods(self) -> Mapping[WorkloadKey, list[PodRecord]]:
        """Return the pods that each workload has now."""
        pods: dict[WorkloadKey, list[PodRecord]] = {}
        for pod in self._state.all_pods:
            if pod.begin < self._at <= pod.end and pod.phase not in _ENDED:
                pods.setdefault(pod.key, []).append(pod)
        return pods


def _list_pods(job: PendingJob, request: WaitingRequest, at: int) -> Iterator[PodRecord]:
    for shape in request.sets:
        for number in range(shape.count):
            name = f"{job.name}-{shape.name}-{number}"
            yield PodRecord(
                key=job.key,
                uid=f"{job.kind}/{job.namespace}/{name}",
                pod=name,
                node=None,
                phase="Pending",
                resolved=job.workload_kind != UNRESOLVED,
                workload_uid=job.workload_uid,
                team=job.team,
                queue=job.queue,
                priority_class=job.priority_class,
                gpu_resource=shape.gpu_resource,
                gpus=shape.gpus or 0.0,
                cpu_milli=shape.cpu_milli,
                memory_bytes=shape.memory_bytes,
                labels=shape.labels,
                annotations=_add_flavors(shape, request),
                begin=job.begin_us,
                end=at,
                placed=None,
                ahead=job.ahead_us,
                priority=job.priority,
                unscheduled=job.condition,
                constraints=shape.constraints,
            )


def _add_flavors(shape: WaitingPodShape, request: WaitingRequest) -> str | None:
    """Return the annotations of a shape with the flavors that it may get."""
    if request.flavors is None:
        return shape.annotations
    marks = msgspec.json.decode(shape.annotations) if shape.annotations else {}
    marks |= {FLAVORS: request.flavors, POD_SET: shape.name}
    if shape.assigned:
        marks[ASSIGNED_FLAVORS] = shape.assigned
    return msgspec.json.encode(marks).decode()

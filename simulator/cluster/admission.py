"""Simulate Kueue: workloads are suspended until their queue admits them, and can be stopped again.

An admitted job runs, whoever suspended it: the Workload is the switch (`spec.active`), the job's
own `suspend` is not. Not simulated: pods, Deployments and StatefulSets as Kueue's own kinds, the
node labels of flavors, cohorts of cohorts.
"""

from collections.abc import Mapping
from typing import Any

from fallow.kube.objects import (
    find_controller,
    get_labels,
    get_namespace,
    get_path,
    get_uid,
    has_condition,
    has_ended,
    is_deleting,
    name,
)
from simulator.cluster.objects import (
    Object,
    build_owner_references,
    find_condition,
    get_kind,
    hash_template,
    is_live,
    set_conditions,
)
from simulator.cluster.pod_requests import count_units, sum_uses
from simulator.cluster.podsets import is_suspended, list_pod_sets, list_suspendable, suspend_patch
from simulator.cluster.quotas.claims import Admit, Preempt, QuotaClaim, Refuse
from simulator.cluster.quotas.cohort import ClusterQueue, Quota
from simulator.cluster.quotas.kueue import Cohorts
from simulator.cluster.store_writer import StoreWriter
from simulator.cluster.view import Key, View
from simulator.kube.server_metadata import format_time, parse_time

QUEUE = "kueue.x-k8s.io/queue-name"
JOB_UID = "kueue.x-k8s.io/job-uid"
KUEUE = "kueue"
FINISHED_CONDITIONS = ("Complete", "Completed", "Failed", "Succeeded")
RULES = {"ClusterQueue", "LocalQueue", "ResourceFlavor", "Cohort"}


class Admission:
    """All Workloads, and the claims that their queues hold."""

    def __init__(self, view: View, writer: StoreWriter) -> None:
        self._view, self._writer = view, writer
        self._cohorts = Cohorts([])
        self._dirty: dict[Key, None] = {}
        self._rules = self._stirred = False
        self._quota_held: set[str] = set()

    def notice(self, obj: Object, kind: str, *, deleted: bool) -> None:
        """Process changed objects."""
        if kind in RULES:
            self._rules = self._stirred = True
        elif (
            kind in list_suspendable() and find_controller(obj) is None and QUEUE in get_labels(obj)
        ):
            self._dirty[kind, get_namespace(obj), name(obj)] = None
        elif kind == "Workload":
            self._stirred = True
            if deleted:
                self._release(get_uid(obj))
            reference = find_controller(obj)
            if reference is not None:
                self._dirty[reference["kind"], get_namespace(obj), reference["name"]] = None
        elif kind == "Pod" and (deleted or has_ended(obj)) and self._quota_held:
            top = self._view.top(obj)
            if QUEUE in get_labels(top):
                self._dirty[get_kind(top), get_namespace(top), name(top)] = None

    def queued_s(self, owner: Object) -> float | None:
        """Return since when an object's workload has waited, or did wait; None = no queue."""
        for workload in self._view.children(get_uid(owner), "Workload"):
            again = find_condition(workload, "Requeued")
            born = workload["metadata"]["creationTimestamp"]
            return parse_time((again or {}).get("lastTransitionTime") or born)
        return None

    def waiting(self) -> list[tuple[Object, float]]:
        """Return the workloads that want admission and do not have it, and since when."""
        owners = []
        for workload in self._view.of("Workload"):
            if _is_requesting_quota(workload) and not has_condition(workload, "Admitted"):
                again = find_condition(workload, "Requeued")
                born = workload["metadata"]["creationTimestamp"]
                since = (again or {}).get("lastTransitionTime") or born
                owners.append((workload, parse_time(since)))
        return owners

    def run(self) -> None:
        """Synchronise each job and its workload, then admit what fits."""
        if self._rules:
            self._rules = False
            self._cohorts.configure(_queue(o) for o in self._view.of("ClusterQueue"))
        drained = set(self._cohorts.to_drain())
        if drained or self._stirred:
            self._drain(drained)
        dirty, self._dirty = self._dirty, {}
        for key in dirty:
            job = self._view.get(*key)
            if job is not None and key[0] in list_suspendable() and QUEUE in get_labels(job):
                self._keep(job)
        if self._stirred:
            self._stirred = False
            self._cycle()

    def _drain(self, drained: set[str]) -> None:
        for workload in self._view.of("Workload"):
            local = self._view.get(
                "LocalQueue",
                get_namespace(workload),
                get_path(workload, "spec", "queueName", default=""),
            )
            stop = get_path(local or {}, "spec", "stopPolicy", default="None")
            if has_condition(workload, "Admitted") and (
                get_uid(workload) in drained or stop == "HoldAndDrain"
            ):
                self._evict(workload, "ClusterQueueStopped", "The queue is stopped")

    def _keep(self, job: Object) -> None:
        """Synchronise one job and its workload."""
        workload = next(iter(self._view.children(get_uid(job), "Workload")), None)
        ended = any(has_condition(job, word) for word in FINISHED_CONDITIONS) or (
            get_path(job, "status", "jobStatus") in {"SUCCEEDED", "FAILED"}
        )
        if workload is None:
            if not ended and not is_deleting(job):
                self._writer.create(_build_workload(job), KUEUE, job)
                self._suspend(job, off=True)
            return
        if ended:
            if not has_condition(workload, "Finished"):
                self._say(workload, ("Finished", True, "JobFinished", "Job finished"))
            self._release(get_uid(workload))
            return
        if has_condition(workload, "Admitted"):
            if has_condition(workload, "Evicted"):
                self._suspend(job, off=True)
                self._leave(job, workload)
            elif not get_path(workload, "spec", "active", default=True):
                self._evict(workload, "Deactivated", "The workload is deactivated")
            else:
                self._suspend(job, off=False)
        else:
            self._suspend(job, off=True)

    def _suspend(self, job: Object, *, off: bool) -> None:
        if is_suspended(job) != off:
            self._writer.patch(job, suspend_patch(job, off=off), KUEUE)

    def _evict(self, workload: Object, reason: str, message: str) -> None:
        if has_condition(workload, "Evicted"):
            return
        changes = [("Evicted", True, reason, message)]
        if reason == "Preempted":
            changes.append(("Preempted", True, "InClusterQueue", message))
        self._cohorts.leaving(get_uid(workload))
        self._say(workload, *changes)
        kind = "EvictedDueToPreempted" if reason == "Preempted" else f"EvictedDueTo{reason}"
        self._writer.event(workload, kind, message, KUEUE)

    def _leave(self, job: Object, workload: Object) -> None:
        """Release the quota after the last pod is deleted."""
        if any(is_live(p) or is_deleting(p) for p in self._pods(job)):
            return
        self._release(get_uid(workload))
        why = find_condition(workload, "Evicted") or {"reason": "Pending", "message": ""}
        active = get_path(workload, "spec", "active", default=True)
        changes = [
            ("QuotaReserved", False, "Pending", why["message"]),
            ("Admitted", False, "NoReservation", "The workload has no reservation"),
        ]
        if active:
            changes.append(("Requeued", True, why["reason"], why["message"]))
        body: dict[str, Any] = {"admission": None}
        body["conditions"] = set_conditions(workload, self._writer.now_s, *changes)
        if active:  # it waits from now on, even if it was requeued before
            for change in body["conditions"]:
                if change["type"] == "Requeued":
                    change["lastTransitionTime"] = format_time(self._writer.now_s)
        self._writer.status(workload, body, KUEUE)
        self._stirred = True

    def _pods(self, obj: Object) -> list[Object]:
        pods = []
        for there in self._view.children(get_uid(obj)):
            pods += [there] if there["kind"] == "Pod" else self._pods(there)
        return pods

    def _release(self, workload: str) -> None:
        if workload in self._quota_held:
            self._quota_held.discard(workload)
            self._cohorts.release(workload)
            self._stirred = True

    def _say(self, workload: Object, *changes: tuple[str, bool, str, str]) -> None:
        all_conditions = set_conditions(workload, self._writer.now_s, *changes)
        self._writer.status(workload, {"conditions": all_conditions}, KUEUE)

    def _cycle(self) -> None:
        """Admit, refuse, or preempt for the pending workloads."""
        claims = {}
        for workload in self._view.of("Workload"):
            if _is_requesting_quota(workload) and not has_condition(workload, "Admitted"):
                claim = self._claim(workload)
                if claim is not None:
                    claims[claim.uid] = (claim, workload)
        by_uid = {get_uid(w): w for w in self._view.of("Workload")}
        for claim, verdict in self._cohorts.cycle([claim for claim, _ in claims.values()]):
            workload = claims[claim.uid][1]
            if isinstance(verdict, Admit):
                self._cohorts.hold(claim, verdict.flavors, self._writer.now_s)
                self._quota_held.add(claim.uid)
                self._admit(workload, claim, verdict.flavors)
            elif isinstance(verdict, Preempt):
                for victim in verdict.victims:
                    if victim in by_uid:
                        message = f"Preempted to accommodate a workload (UID: {claim.uid})"
                        self._evict(by_uid[victim], "Preempted", message)
            else:
                self._refuse(workload, verdict)

    def _refuse(self, workload: Object, verdict: Refuse) -> None:
        self._say(workload, ("QuotaReserved", False, "Pending", verdict.message))

    def _claim(self, workload: Object) -> QuotaClaim | None:
        local = self._view.get("LocalQueue", get_namespace(workload), workload["spec"]["queueName"])
        if local is None or get_path(local, "spec", "stopPolicy", default="None") != "None":
            why = "is inactive" if local else "doesn't exist"
            queue = workload["spec"]["queueName"]
            self._refuse(workload, Refuse(f"LocalQueue {queue} {why}"))
            return None
        requested: dict[str, int] = {}
        for pod_set in workload["spec"]["podSets"]:
            for resource, number in sum_uses(pod_set["template"]["spec"]).items():
                requested[resource] = requested.get(resource, 0) + number * int(pod_set["count"])
        since = parse_time(workload["metadata"]["creationTimestamp"])
        priority = int(workload["spec"].get("priority") or 0)
        return QuotaClaim(
            get_uid(workload), local["spec"]["clusterQueue"], requested, priority, since
        )

    def _admit(self, workload: Object, claim: QuotaClaim, flavors: Mapping[str, str]) -> None:
        assigned = [
            {"name": p["name"], "count": p["count"], "flavors": dict(flavors)}
            for p in workload["spec"]["podSets"]
        ]
        message = f"Quota reserved in ClusterQueue {claim.queue}"
        changes = [
            ("QuotaReserved", True, "QuotaReserved", message),
            ("Admitted", True, "Admitted", "The workload is admitted"),
        ]
        again = [c for c in ("Evicted", "Preempted") if has_condition(workload, c)]
        changes += [(c, False, "QuotaReserved", message) for c in again]
        body = {
            "admission": {"clusterQueue": claim.queue, "podSetAssignments": assigned},
            "conditions": set_conditions(workload, self._writer.now_s, *changes),
        }
        self._writer.status(workload, body, KUEUE)
        self._writer.event(workload, "Admitted", f"Admitted by ClusterQueue {claim.queue}", KUEUE)


def _is_requesting_quota(workload: Object) -> bool:
    active = get_path(workload, "spec", "active", default=True)
    return bool(active) and not has_condition(workload, "Finished") and not is_deleting(workload)


def _build_workload(job: Object) -> Object:
    kind, called_so = job["kind"], name(job)
    tail = hash_template([kind, called_so, get_uid(job)])[:5]
    sets = [
        {"name": s.name, "count": s.count, "template": {"spec": s.spec}} for s in list_pod_sets(job)
    ]
    priorities = [int(s["template"]["spec"].get("priority") or 0) for s in sets]  # type: ignore[index]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": f"{kind.lower()}-{called_so}-{tail}",
            "namespace": get_namespace(job),
            "labels": {JOB_UID: get_uid(job)},
            "ownerReferences": build_owner_references(job),
        },
        "spec": {
            "queueName": get_labels(job)[QUEUE],
            "priority": max(priorities, default=0),
            "active": True,
            "podSets": sets,
        },
    }


def _queue(obj: Object) -> ClusterQueue:
    """Read a ClusterQueue of either served version."""
    spec = obj["spec"]
    quotas: dict[str, dict[str, Quota]] = {}
    for group in spec.get("resourceGroups") or ():
        for flavor in group["flavors"]:
            for resource in flavor["resources"]:
                limits = [
                    None if resource.get(k) is None else count_units(resource["name"], resource[k])
                    for k in ("borrowingLimit", "lendingLimit")
                ]
                nominal = count_units(resource["name"], resource["nominalQuota"])
                quotas.setdefault(flavor["name"], {})[resource["name"]] = Quota(nominal, *limits)
    preemption = spec.get("preemption") or {}
    borrow = preemption.get("borrowWithinCohort") or {}
    return ClusterQueue(
        name(obj),
        quotas,
        spec.get("cohortName") or spec.get("cohort") or "",
        spec.get("queueingStrategy") or "BestEffortFIFO",
        preemption.get("withinClusterQueue") or "Never",
        preemption.get("reclaimWithinCohort") or "Never",
        borrow.get("policy") == "LowerPriority",
        borrow.get("maxPriorityThreshold"),
        spec.get("stopPolicy") or "None",
    )

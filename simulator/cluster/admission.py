"""Kueue: workloads wait suspended until their queue admits them, and stop when it says so.

What is admitted is let run, whoever suspended it: the Workload is the switch (`spec.active`), the
job's own `suspend` is not. Not done here: pods, Deployments and StatefulSets as Kueue's own kinds,
the node labels of flavors, cohorts of cohorts.
"""

from collections.abc import Mapping
from typing import Any

from simulator.cluster.asks import units, uses
from simulator.cluster.clerk import Clerk
from simulator.cluster.objects import (
    Object,
    called,
    condition,
    conditions,
    controller,
    deep,
    going,
    holds,
    live,
    moment,
    name,
    namespace,
    over,
    owned_by,
    stamp,
    template_hash,
    uid,
    words,
)
from simulator.cluster.podsets import pod_sets, suspendable, suspended, switch
from simulator.cluster.quotas.claims import Admit, Claim, Preempt, Refuse
from simulator.cluster.quotas.cohort import ClusterQueue, Quota
from simulator.cluster.quotas.kueue import Cohorts
from simulator.cluster.view import Key, View

QUEUE = "kueue.x-k8s.io/queue-name"
JOB_UID = "kueue.x-k8s.io/job-uid"
KUEUE = "kueue"
DONE = ("Complete", "Completed", "Failed", "Succeeded")
RULES = {"ClusterQueue", "LocalQueue", "ResourceFlavor", "Cohort"}


class Admission:
    """All Workloads, and what their queues hold."""

    def __init__(self, view: View, clerk: Clerk) -> None:
        self._view, self._clerk = view, clerk
        self._cohorts = Cohorts([])
        self._dirty: dict[Key, None] = {}
        self._rules = self._stirred = False
        self._held: set[str] = set()

    def notice(self, obj: Object, kind: str, *, gone: bool) -> None:
        """See what changed."""
        if kind in RULES:
            self._rules = self._stirred = True
        elif kind in suspendable() and controller(obj) is None and QUEUE in words(obj, "labels"):
            self._dirty[kind, namespace(obj), name(obj)] = None
        elif kind == "Workload":
            self._stirred = True
            if gone:
                self._release(uid(obj))
            reference = controller(obj)
            if reference is not None:
                self._dirty[reference["kind"], namespace(obj), reference["name"]] = None
        elif kind == "Pod" and (gone or over(obj)) and self._held:
            top = self._view.top(obj)
            if QUEUE in words(top, "labels"):
                self._dirty[called(top), namespace(top), name(top)] = None

    def queued_s(self, owner: Object) -> float | None:
        """Return since when an object's workload has been waiting, or waited; None = no queue."""
        for workload in self._view.children(uid(owner), "Workload"):
            again = condition(workload, "Requeued")
            born = workload["metadata"]["creationTimestamp"]
            return moment((again or {}).get("lastTransitionTime") or born)
        return None

    def waiting(self) -> list[tuple[Object, float]]:
        """Return the workloads that are not admitted but want to be, and since when."""
        found = []
        for workload in self._view.of("Workload"):
            if _wants(workload) and not holds(workload, "Admitted"):
                again = condition(workload, "Requeued")
                born = workload["metadata"]["creationTimestamp"]
                since = (again or {}).get("lastTransitionTime") or born
                found.append((workload, moment(since)))
        return found

    def run(self) -> None:
        """Keep each job and its workload as the other says, then admit what fits."""
        if self._rules:
            self._rules = False
            self._cohorts.configure(_queue(o) for o in self._view.of("ClusterQueue"))
        drained = set(self._cohorts.to_drain())
        if drained or self._stirred:
            self._drain(drained)
        dirty, self._dirty = self._dirty, {}
        for key in dirty:
            job = self._view.get(*key)
            if job is not None and key[0] in suspendable() and QUEUE in words(job, "labels"):
                self._keep(job)
        if self._stirred:
            self._stirred = False
            self._cycle()

    def _drain(self, drained: set[str]) -> None:
        for workload in self._view.of("Workload"):
            local = self._view.get(
                "LocalQueue", namespace(workload), deep(workload, "spec", "queueName", default="")
            )
            stop = deep(local or {}, "spec", "stopPolicy", default="None")
            if holds(workload, "Admitted") and (uid(workload) in drained or stop == "HoldAndDrain"):
                self._evict(workload, "ClusterQueueStopped", "The queue is stopped")

    def _keep(self, job: Object) -> None:
        """Bring one job and its workload together."""
        workload = next(iter(self._view.children(uid(job), "Workload")), None)
        ended = any(holds(job, word) for word in DONE) or (
            deep(job, "status", "jobStatus") in {"SUCCEEDED", "FAILED"}
        )
        if workload is None:
            if not ended and not going(job):
                self._clerk.create(_workload(job), KUEUE, job)
                self._suspend(job, off=True)
            return
        if ended:
            if not holds(workload, "Finished"):
                self._say(workload, ("Finished", True, "JobFinished", "Job finished"))
            self._release(uid(workload))
            return
        if holds(workload, "Admitted"):
            if holds(workload, "Evicted"):
                self._suspend(job, off=True)
                self._leave(job, workload)
            elif not deep(workload, "spec", "active", default=True):
                self._evict(workload, "Deactivated", "The workload is deactivated")
            else:
                self._suspend(job, off=False)
        else:
            self._suspend(job, off=True)

    def _suspend(self, job: Object, *, off: bool) -> None:
        if suspended(job) != off:
            self._clerk.patch(job, switch(job, off=off), KUEUE)

    def _evict(self, workload: Object, reason: str, message: str) -> None:
        if holds(workload, "Evicted"):
            return
        changes = [("Evicted", True, reason, message)]
        if reason == "Preempted":
            changes.append(("Preempted", True, "InClusterQueue", message))
        self._cohorts.leaving(uid(workload))
        self._say(workload, *changes)
        kind = "EvictedDueToPreempted" if reason == "Preempted" else f"EvictedDueTo{reason}"
        self._clerk.event(workload, kind, message, KUEUE)

    def _leave(self, job: Object, workload: Object) -> None:
        """Give the quota back once the last pod is gone."""
        if any(live(p) or going(p) for p in self._pods(job)):
            return
        self._release(uid(workload))
        why = condition(workload, "Evicted") or {"reason": "Pending", "message": ""}
        active = deep(workload, "spec", "active", default=True)
        changes = [
            ("QuotaReserved", False, "Pending", why["message"]),
            ("Admitted", False, "NoReservation", "The workload has no reservation"),
        ]
        if active:
            changes.append(("Requeued", True, why["reason"], why["message"]))
        body: dict[str, Any] = {"admission": None}
        body["conditions"] = conditions(workload, self._clerk.now_s, *changes)
        if active:  # it waits from now, even if it had been requeued before
            for said in body["conditions"]:
                if said["type"] == "Requeued":
                    said["lastTransitionTime"] = stamp(self._clerk.now_s)
        self._clerk.status(workload, body, KUEUE)
        self._stirred = True

    def _pods(self, obj: Object) -> list[Object]:
        found = []
        for there in self._view.children(uid(obj)):
            found += [there] if there["kind"] == "Pod" else self._pods(there)
        return found

    def _release(self, workload: str) -> None:
        if workload in self._held:
            self._held.discard(workload)
            self._cohorts.release(workload)
            self._stirred = True

    def _say(self, workload: Object, *changes: tuple[str, bool, str, str]) -> None:
        every = conditions(workload, self._clerk.now_s, *changes)
        self._clerk.status(workload, {"conditions": every}, KUEUE)

    def _cycle(self) -> None:
        """Admit, refuse or make room for what waits."""
        claims = {}
        for workload in self._view.of("Workload"):
            if _wants(workload) and not holds(workload, "Admitted"):
                claim = self._claim(workload)
                if claim is not None:
                    claims[claim.uid] = (claim, workload)
        by_uid = {uid(w): w for w in self._view.of("Workload")}
        for claim, verdict in self._cohorts.cycle([claim for claim, _ in claims.values()]):
            workload = claims[claim.uid][1]
            if isinstance(verdict, Admit):
                self._cohorts.hold(claim, verdict.flavors, self._clerk.now_s)
                self._held.add(claim.uid)
                self._admit(workload, claim, verdict.flavors)
            elif isinstance(verdict, Preempt):
                for victim in verdict.victims:
                    if victim in by_uid:
                        said = f"Preempted to accommodate a workload (UID: {claim.uid})"
                        self._evict(by_uid[victim], "Preempted", said)
            else:
                self._refuse(workload, verdict)

    def _refuse(self, workload: Object, verdict: Refuse) -> None:
        self._say(workload, ("QuotaReserved", False, "Pending", verdict.message))

    def _claim(self, workload: Object) -> Claim | None:
        local = self._view.get("LocalQueue", namespace(workload), workload["spec"]["queueName"])
        if local is None or deep(local, "spec", "stopPolicy", default="None") != "None":
            why = "is inactive" if local else "doesn't exist"
            queue = workload["spec"]["queueName"]
            self._refuse(workload, Refuse(f"LocalQueue {queue} {why}"))
            return None
        asked: dict[str, int] = {}
        for pod_set in workload["spec"]["podSets"]:
            for resource, number in uses(pod_set["template"]["spec"]).items():
                asked[resource] = asked.get(resource, 0) + number * int(pod_set["count"])
        since = moment(workload["metadata"]["creationTimestamp"])
        priority = int(workload["spec"].get("priority") or 0)
        return Claim(uid(workload), local["spec"]["clusterQueue"], asked, priority, since)

    def _admit(self, workload: Object, claim: Claim, flavors: Mapping[str, str]) -> None:
        assigned = [
            {"name": p["name"], "count": p["count"], "flavors": dict(flavors)}
            for p in workload["spec"]["podSets"]
        ]
        said = f"Quota reserved in ClusterQueue {claim.queue}"
        changes = [
            ("QuotaReserved", True, "QuotaReserved", said),
            ("Admitted", True, "Admitted", "The workload is admitted"),
        ]
        again = [c for c in ("Evicted", "Preempted") if holds(workload, c)]
        changes += [(c, False, "QuotaReserved", said) for c in again]
        body = {
            "admission": {"clusterQueue": claim.queue, "podSetAssignments": assigned},
            "conditions": conditions(workload, self._clerk.now_s, *changes),
        }
        self._clerk.status(workload, body, KUEUE)
        self._clerk.event(workload, "Admitted", f"Admitted by ClusterQueue {claim.queue}", KUEUE)


def _wants(workload: Object) -> bool:
    active = deep(workload, "spec", "active", default=True)
    return bool(active) and not holds(workload, "Finished") and not going(workload)


def _workload(job: Object) -> Object:
    kind, called_so = job["kind"], name(job)
    tail = template_hash([kind, called_so, uid(job)])[:5]
    sets = [{"name": s.name, "count": s.count, "template": {"spec": s.spec}} for s in pod_sets(job)]
    priorities = [int(s["template"]["spec"].get("priority") or 0) for s in sets]  # type: ignore[index]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": f"{kind.lower()}-{called_so}-{tail}",
            "namespace": namespace(job),
            "labels": {JOB_UID: uid(job)},
            "ownerReferences": owned_by(job),
        },
        "spec": {
            "queueName": words(job, "labels")[QUEUE],
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
                    None if resource.get(k) is None else units(resource["name"], resource[k])
                    for k in ("borrowingLimit", "lendingLimit")
                ]
                nominal = units(resource["name"], resource["nominalQuota"])
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

"""Write the status of quota objects, as Kueue's and the ElasticQuota's controllers do.

A ClusterQueue counts what is reserved and used by flavor, and its workloads; an ElasticQuota
counts its namespace's pods that have a node. Both from the API's objects, as the controllers do.
"""

from collections import Counter
from fractions import Fraction

from fallow.kube.objects import get_namespace, get_path, get_uid, has_condition, name
from fallow.kube.quantities import require_quantity
from simulator.cluster.objects import Object, is_live
from simulator.cluster.pod_requests import sum_uses
from simulator.cluster.store_writer import StoreWriter
from simulator.cluster.view import View
from simulator.kube.quota import format_amount

ELASTIC = "ElasticQuota.scheduling.x-k8s.io"
QUEUE = "ClusterQueue"
UsedByFlavor = Counter[tuple[str, str]]
"""Amounts by flavor and resource."""


class QuotaStatus:
    """Write the status of quotas whose workloads or pods changed."""

    def __init__(self, view: View, writer: StoreWriter) -> None:
        self._view, self._writer = view, writer
        self._written: dict[str, int] = {}
        self._queue_of: dict[str, str] = {}
        self._workloads: dict[str, dict[str, Object]] = {}
        self._queues: dict[str, None] = {}
        self._spaces: dict[str, None] = {}

    def notice(self, obj: Object, kind: str, *, deleted: bool) -> bool:
        """Process changes; return whether they were only our own writes."""
        if kind in {ELASTIC, QUEUE}:
            generation = int(obj["metadata"].get("generation", 0))
            ours = not deleted and self._written.get(get_uid(obj)) == generation
            self._written[get_uid(obj)] = generation
            if not ours and kind == QUEUE:
                self._queues[name(obj)] = None
            elif not ours:
                self._spaces[get_namespace(obj)] = None
            return ours
        if kind == "Workload":
            self._keep(obj, deleted=deleted)
        elif kind == "Pod":
            self._spaces[get_namespace(obj)] = None
        return False

    def run(self) -> None:
        """Write the status that is not written yet."""
        queues, self._queues = self._queues, {}
        for queue in queues:
            obj = self._view.get(QUEUE, "", queue)
            if obj is not None:
                self._writer.status(obj, self._of_queue(obj), "kueue")
        spaces, self._spaces = self._spaces, {}
        for space in spaces if self._view.count(ELASTIC) else ():
            for obj in self._view.of(ELASTIC, space):
                self._writer.status(obj, self._of_space(obj), "scheduler-plugins")

    def _keep(self, workload: Object, *, deleted: bool) -> None:
        """Count a workload where it is admitted, else where its queue leads."""
        before = self._queue_of.pop(get_uid(workload), "")
        if before:
            self._workloads[before].pop(get_uid(workload), None)
            self._queues[before] = None
        local = self._view.get("LocalQueue", get_namespace(workload), workload["spec"]["queueName"])
        queue = get_path(workload, "status", "admission", "clusterQueue") or get_path(
            local or {}, "spec", "clusterQueue", default=""
        )
        if queue and not deleted and not has_condition(workload, "Finished"):
            self._queue_of[get_uid(workload)] = queue
            self._workloads.setdefault(queue, {})[get_uid(workload)] = workload
            self._queues[queue] = None

    def _of_queue(self, queue: Object) -> Object:
        usage: UsedByFlavor = Counter()
        reserving = admitted = waiting = 0
        for workload in self._workloads.get(name(queue), {}).values():
            admission = get_path(workload, "status", "admission")
            if admission is None:
                waiting += bool(get_path(workload, "spec", "active", default=True))
                continue
            reserving += 1
            admitted += has_condition(workload, "Admitted")
            usage.update(_sum_usage(workload, admission))
        flavors = _list_flavors(queue, usage)
        return {
            "flavorsReservation": flavors,
            "flavorsUsage": flavors,
            "pendingWorkloads": waiting,
            "reservingWorkloads": reserving,
            "admittedWorkloads": admitted,
        }

    def _of_space(self, quota: Object) -> Object:
        used: Counter[str] = Counter()
        for pod in self._view.of("Pod", get_namespace(quota)):
            if is_live(pod) and pod["spec"].get("nodeName"):
                used.update(sum_uses(pod["spec"]))
        spec = quota["spec"]
        names = {**(spec.get("min") or {}), **(spec.get("max") or {})}
        return {"used": {resource: _format_amount(resource, used[resource]) for resource in names}}


def _sum_usage(workload: Object, admission: Object) -> UsedByFlavor:
    sets = {s["name"]: s for s in workload["spec"]["podSets"]}
    usage: UsedByFlavor = Counter()
    for assigned in admission["podSetAssignments"]:
        requested = sum_uses(sets[assigned["name"]]["template"]["spec"])
        for resource, flavor in assigned["flavors"].items():
            usage[flavor, resource] += requested.get(resource, 0) * int(assigned["count"])
    return usage


def _list_flavors(queue: Object, usage: UsedByFlavor) -> list[Object]:
    flavors = []
    for group in get_path(queue, "spec", "resourceGroups", default=()):
        for flavor in group["flavors"]:
            resources = []
            for quota in flavor["resources"]:
                total = usage[flavor["name"], quota["name"]]
                nominal = require_quantity(quota["nominalQuota"]) * (
                    1000 if quota["name"] == "cpu" else 1
                )
                borrowed = max(0, total - int(nominal))
                amounts = {"total": total, "borrowed": borrowed}
                texts = {k: _format_amount(quota["name"], v) for k, v in amounts.items()}
                resources.append({"name": quota["name"], **texts})
            flavors.append({"name": flavor["name"], "resources": resources})
    return flavors


def _format_amount(resource: str, units: int) -> str:
    return format_amount(Fraction(units, 1000 if resource == "cpu" else 1))

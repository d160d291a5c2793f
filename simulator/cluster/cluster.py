"""Simulate a cluster: nodes and devices, and all controllers that act on the store's objects.

`settle` lets all of them act at one time until nothing changes any more. `next_event` returns when
one of them will act by itself. Between the two, only callers write.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from fallow.errors import FallowError, UsageError
from fallow.kube.objects import get_labels, get_namespace, get_uid, name
from simulator.cluster.admission import Admission
from simulator.cluster.controllers.autoscalers import GITOPS_DELAY_S, Autoscalers
from simulator.cluster.controllers.loop import Loop
from simulator.cluster.failures import Failures
from simulator.cluster.hardware import Hardware
from simulator.cluster.kubelet import Kubelet
from simulator.cluster.nodes import SimulatedNode, build_node_object
from simulator.cluster.objects import Object, get_kind, is_live
from simulator.cluster.pod_requests import count_gpus
from simulator.cluster.quota_status import QuotaStatus
from simulator.cluster.scheduler.requests import POLICIES, Policy
from simulator.cluster.scheduling import Scheduling
from simulator.cluster.store_writer import StoreWriter
from simulator.cluster.timers import Timers
from simulator.cluster.view import View
from simulator.kube.history import StoreChange
from simulator.kube.server_metadata import parse_time
from simulator.kube.store import ObjectStore
from simulator.models import DeviceAllocation, Holder, Outage, SimulatedDevice

ROUNDS = 2_000
"""More turns at one time than this mean that two controllers undo each other without end."""


class GpuWait(msgspec.Struct, frozen=True):
    """How long a pod waited for GPUs, or a Kueue workload without pods."""

    uid: str
    owner: str
    """Kind/namespace/name of the topmost owner."""
    gpus: float
    queued_s: float
    bound_s: float | None = None
    """None = it still waits, or was deleted while it waited."""
    ended_s: float | None = None
    """When it ended or was deleted."""


class SimulatedCluster:
    """A cluster on a store, with these nodes.

    Raises:
        UsageError: no such placement policy, or two nodes of one name.
    """

    def __init__(
        self,
        store: ObjectStore,
        nodes: Sequence[SimulatedNode],
        *,
        placement: Policy = "best-fit",
        seed: int = 0,
        now_s: float | None = None,
    ) -> None:
        if placement not in POLICIES:
            raise UsageError(
                f"no placement policy {placement!r}", hint=f"legal: {', '.join(POLICIES)}"
            )
        self._view, self._writer, self._alarms = View(store), StoreWriter(store), Timers()
        self._writer.now_s = store.now() if now_s is None else now_s
        self._hardware = Hardware(nodes, seed)
        self._loop = Loop(self._view, self._writer, self._alarms)
        self._rivals = Autoscalers(self._view, self._writer, self._alarms)
        self._kubelet = Kubelet(
            self._view, self._writer, self._alarms, self._hardware, self._remember, seed=seed
        )
        self._failures = Failures(
            self._view, self._writer, self._alarms, self._hardware, self._kubelet
        )
        self._scheduling = Scheduling(
            self._view, self._writer, self._hardware, placement, self._remember
        )
        self._admission = Admission(self._view, self._writer)
        self._quota_status = QuotaStatus(self._view, self._writer)
        self._holders: dict[str, Holder] = {}
        self._waits: dict[str, GpuWait] = {}
        for spec in nodes:
            self._writer.create(build_node_object(spec, self._writer.now_s), "kubelet")

    @property
    def devices(self) -> tuple[SimulatedDevice, ...]:
        """Every GPU and MIG instance; allocations and outages refer to them by index."""
        return self._hardware.devices

    @property
    def allocations(self) -> list[DeviceAllocation]:
        """Which pod held which devices when, oldest first; the end is infinite while it lasts."""
        return self._hardware.allocations

    @property
    def outages(self) -> list[Outage]:
        """Devices that could not be allocated; the end is infinite while it lasts."""
        return self._hardware.outages

    @property
    def waits(self) -> list[GpuWait]:
        """How long each pod waited for its GPUs, and workloads without pods."""
        waits = list(self._waits.values())
        for workload, since in self._admission.waiting():
            requested = sum(
                count_gpus(s["template"]["spec"]) * s["count"] for s in workload["spec"]["podSets"]
            )
            if requested:
                owner = _build_workload_key(self._view.top(workload))
                waits.append(GpuWait(get_uid(workload), owner, requested, since))
        return waits

    def settle(self, now_s: float) -> None:
        """Let every controller act that is due now, until nothing changes any more.

        Raises:
            FallowError: the changes do not end; the message names the objects that keep changing.
        """
        self._writer.now_s = now_s
        self._writer.forget()
        self._rest()
        while self._alarms.next() <= now_s:
            for act in self._alarms.due(now_s):
                act()
            self._rest()

    def _rest(self) -> None:
        changes: list[StoreChange] = []
        for _ in range(ROUNDS):
            changes = self._view.refresh()
            for change in changes:
                self._notice(change)
            before = self._writer.store.version
            for turn in (
                self._admission.run,
                self._loop.run,
                self._scheduling.run,
                self._quota_status.run,
            ):
                turn()
                if self._writer.store.version != before:
                    break  # the next controller must see the changes of this one
            else:
                if not self._loop.busy:
                    return
        names = sorted({f"{c.kind} {c.key}" for c in changes})[:3]
        raise FallowError(
            f"the cluster does not come to rest: {', '.join(names)} keep changing",
            hint="two controllers undo each other at one time",
        )

    def next_event(self) -> float:
        """Return when the cluster must act next by itself; infinite for never."""
        return self._alarms.next()

    def finish(self, pod_uid: str, now_s: float, *, ok: bool = True, reason: str = "") -> None:
        """Let a pod's containers exit; a pod that is deleted or has ended does not change.

        `reason` is why they failed, such as OOMKilled; none = Error.
        """
        self._writer.now_s = now_s
        self._view.take_in(self._notice)
        pod = self._view.pods.get(pod_uid)
        if pod is not None and is_live(pod):
            self._kubelet.finish(pod, ok=ok, reason=reason)

    def lose(
        self, node: str, now_s: float, why: str, until_s: float, *, index: int | None = None
    ) -> None:
        """Let a node, or with `index` one of its GPUs, fail from now until a time.

        `why` is node-lost, spot, xid (of a GPU) or cordoned.

        Raises:
            UsageError: no such node, cause or GPU.
        """
        self._writer.now_s = now_s
        self._view.take_in(self._notice)
        self._failures.lose(node, why, until_s, index)

    def track(
        self,
        kind: str,
        namespace: str,
        name: str,
        body: dict[str, Any],
        *,
        manager: str = "argocd-controller",
        delay_s: float = GITOPS_DELAY_S,
    ) -> None:
        """Let GitOps keep these fields of an object as in `body`, from now on."""
        self._rivals.track(kind, namespace, name, body, manager=manager, delay_s=delay_s)

    def hold_resizes(self) -> None:
        """Let kubelets leave the resources of running containers as they are, despite requests."""
        self._kubelet.resizes = False

    def holder(self, pod_uid: str) -> Holder:
        """Return the names of a pod that holds devices, or has held them.

        Raises:
            KeyError: the pod has never held any.
        """
        return self._holders[pod_uid]

    def _notice(self, change: StoreChange) -> None:
        obj, deleted = change.object, change.type == "DELETED"
        kind = get_kind(obj)
        if kind == "Event" or self._quota_status.notice(obj, kind, deleted=deleted):
            return
        self._loop.notice(change)
        self._rivals.notice(obj)
        self._admission.notice(obj, kind, deleted=deleted)
        self._scheduling.notice(obj, kind, deleted=deleted)
        if kind == "Pod":
            self._count(obj, deleted=deleted)
            self._kubelet.notice(obj, deleted=deleted)
        elif kind == "Node":
            self._failures.notice(obj, deleted=deleted)
            self._scheduling.stir()

    def _remember(self, pod: Object) -> Holder:
        """Store the names of a pod and its topmost owner, and the end of its wait."""
        top = self._view.top(pod)
        team = get_labels(pod).get("team") or get_labels(top).get("team", "")
        first = pod["spec"]["containers"][0]["name"]
        holder = Holder(
            get_uid(pod), get_namespace(pod), name(pod), first, top["kind"], name(top), team
        )
        self._holders[get_uid(pod)] = holder
        wait = self._waits.get(get_uid(pod))
        if wait is not None:
            self._waits[get_uid(pod)] = msgspec.structs.replace(wait, bound_s=self._writer.now_s)
        return holder

    def _count(self, pod: Object, *, deleted: bool) -> None:
        """Update the record of a pod's wait."""
        wait = self._waits.get(get_uid(pod))
        if wait is None and is_live(pod) and not deleted:
            requested = count_gpus(pod["spec"])
            if requested:
                top = self._view.top(pod)
                born = parse_time(pod["metadata"]["creationTimestamp"])
                since = self._admission.queued_s(top)
                since = born if since is None else since
                self._waits[get_uid(pod)] = GpuWait(
                    get_uid(pod), _build_workload_key(top), requested, since
                )
        elif wait is not None and wait.ended_s is None and (deleted or not is_live(pod)):
            self._waits[get_uid(pod)] = msgspec.structs.replace(wait, ended_s=self._writer.now_s)


def _build_workload_key(obj: Object) -> str:
    return f"{obj['kind']}/{get_namespace(obj)}/{name(obj)}"

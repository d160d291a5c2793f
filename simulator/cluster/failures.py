"""Simulate nodes and devices that fail, are reclaimed or are cordoned, and that return."""

from typing import Literal

from fallow.errors import UsageError
from fallow.kube.objects import get_path, get_uid, is_deleting, name
from simulator.cluster.hardware import Hardware
from simulator.cluster.kubelet import Kubelet
from simulator.cluster.nodes import build_node_object
from simulator.cluster.objects import Object, is_live, set_conditions
from simulator.cluster.pod_requests import taint
from simulator.cluster.store_writer import StoreWriter
from simulator.cluster.timers import Timers
from simulator.cluster.view import View

Why = Literal["node-lost", "spot", "xid", "cordoned"]
CAUSES: tuple[Why, ...] = ("node-lost", "spot", "xid", "cordoned")
SPOT_NOTICE_S = 120.0
"""AWS gives two minutes, GCP and Azure thirty seconds (telemetry-and-waste.md#spot)."""
NOT_READY_AFTER_S, TOLERATED_S = 40.0, 300.0
"""node-monitor-grace-period, and the toleration of unreachable nodes that pods have by default."""
UNREACHABLE = "node.kubernetes.io/unreachable"
SPOT_TAINT = "aws-node-termination-handler/spot-itn"
CORDON_TAINT = "node.kubernetes.io/unschedulable"


class Failures:
    """The faults of nodes, and the cluster's reactions."""

    def __init__(
        self, view: View, writer: StoreWriter, alarms: Timers, hardware: Hardware, kubelet: Kubelet
    ) -> None:
        self._view, self._writer, self._alarms = view, writer, alarms
        self._hardware, self._kubelet = hardware, kubelet
        self._shut: set[str] = set()
        self._sick: dict[str, set[int]] = {}

    def lose(self, node: str, why: str, until_s: float, index: int | None) -> None:
        """Let a node or one of its GPUs fail from now until a time.

        Raises:
            UsageError: no such node, cause or GPU.
        """
        if node not in self._hardware.specs:
            raise UsageError(f"no node {node!r}", hint="nodes are called pool-number, like h100-0")
        if why not in CAUSES:
            raise UsageError(f"no cause {why!r}", hint=f"legal: {', '.join(CAUSES)}")
        pool = self._hardware.specs[node].pool
        if why == "xid":
            if index is None or not 0 <= index < pool.gpu_count:
                raise UsageError(
                    f"no GPU {index} on node {node!r}", hint=f"0 to {pool.gpu_count - 1}"
                )
            self._break(node, index, until_s)
        elif why == "spot":
            self._reclaim(node, until_s)
        elif why == "cordoned":
            self._cordon(node, on=True)
            self._alarms.set(until_s, ("back", node), lambda: self._cordon(node, on=False))
        else:
            self._drop(node, until_s)

    def notice(self, node: Object, *, deleted: bool) -> None:
        """Process a node that was cordoned, tainted or labelled."""
        if deleted:
            self._hardware.fleet.close(name(node))
            return
        if name(node) not in self._hardware.specs:
            return  # a node that was created through the API has no simulated devices
        spec = node.get("spec") or {}
        labels = node["metadata"].get("labels") or {}
        taints = tuple(taint(t) for t in spec.get("taints") or () if t["key"] != CORDON_TAINT)
        fleet = self._hardware.fleet
        node_free = fleet.nodes[fleet.place_of[name(node)]]
        if (node_free.labels, node_free.taints) != (labels, taints):
            fleet.relabel(name(node), labels, taints)
        shut = bool(spec.get("unschedulable"))
        ready = any(
            c["type"] == "Ready" and c["status"] == "True"
            for c in get_path(node, "status", "conditions", default=())
        )
        if ready and not shut and name(node) not in self._kubelet.away:
            fleet.reopen(name(node))
        else:
            fleet.close(name(node))
        if shut != (name(node) in self._shut):
            self._shut ^= {name(node)}
            self._outage(name(node), "cordoned" if shut else "")

    def _outage(self, node: str, why: str) -> None:
        """Begin or end an outage of all devices of a node, except those of its broken GPUs."""
        sick = self._sick.get(node, set())
        for place in self._hardware.on_node[node]:
            if self._hardware.devices[place].index in sick:
                continue
            if why:
                self._hardware.stop(place, why, self._writer.now_s)
            else:
                self._hardware.resume(place, self._writer.now_s)

    def _cordon(self, node: str, *, on: bool) -> None:
        current = self._view.get("Node", "", node)
        if current is not None:
            body: Object = {"spec": {"unschedulable": True if on else None}}
            self._writer.patch(current, body, "kubectl-cordon")
            self._writer.event(
                current, "NodeNotSchedulable" if on else "NodeSchedulable", "cordon", "kubelet"
            )

    def _break(self, node: str, index: int, until_s: float) -> None:
        """Break a GPU: its pods fail, and the device plugin offers one less."""
        self._sick.setdefault(node, set()).add(index)
        self._hardware.fleet.lose_device(node, index)
        for pod in self._on(node):
            running = self._hardware.fleet.running.get(get_uid(pod))
            if running is not None and index in running.placement.devices and is_live(pod):
                self._kubelet.close(
                    pod, ok=False, reason="Error", message=f"GPU {index} has fallen off the bus"
                )
                self._hardware.release(get_uid(pod), self._writer.now_s)
        self._each_of(node, index, "xid")
        self._offer(node)
        self._alarms.set(until_s, ("mend", node, index), lambda: self._mend(node, index))

    def _mend(self, node: str, index: int) -> None:
        self._sick[node].discard(index)
        self._hardware.fleet.regain_device(node, index)
        self._each_of(node, index, "cordoned" if node in self._shut else "")
        self._offer(node)

    def _each_of(self, node: str, index: int, why: str) -> None:
        for place in self._hardware.on_node[node]:
            if self._hardware.devices[place].index != index:
                continue
            self._hardware.resume(place, self._writer.now_s)
            if why:
                self._hardware.stop(place, why, self._writer.now_s)

    def _offer(self, node: str) -> None:
        """Write which of a node's healthy devices the device plugin offers."""
        current = self._view.get("Node", "", node)
        if current is None:
            return
        single = self._hardware.specs[node].pool.mig_strategy == "single"
        sick: list[str] = []
        for place in self._hardware.on_node[node]:
            device = self._hardware.devices[place]
            if device.index in self._sick.get(node, ()):
                plain = device.profile is None or single
                many = self._hardware.specs[node].pool.replicas
                sick += ["nvidia.com/gpu" if plain else f"nvidia.com/mig-{device.profile}"] * many
        body = build_node_object(self._hardware.specs[node], self._writer.now_s, sick)
        offered = {k: v for k, v in body["status"]["allocatable"].items() if "/" in k}
        self._writer.status(current, {"allocatable": offered}, "")

    def _on(self, node: str) -> list[Object]:
        """Return the pods with a placement on a node."""
        running = self._hardware.fleet.running.items()
        pod_uids = [u for u, r in running if r.placement.node == node]
        return [self._view.pods[u] for u in pod_uids if u in self._view.pods]

    def _drop(self, node: str, until_s: float) -> None:
        """Cut a node's connection: its work is lost at once, its pods are deleted after a while."""
        now = self._writer.now_s
        self._kubelet.away.add(node)
        self._hardware.fleet.close(node)
        for pod in self._on(node):
            self._hardware.end(get_uid(pod), now)
        self._outage(node, "node-lost")
        self._alarms.set(
            now + NOT_READY_AFTER_S, ("no heartbeat", node), lambda: self._mark_not_ready(node)
        )
        self._alarms.set(
            now + NOT_READY_AFTER_S + TOLERATED_S, ("given up", node), lambda: self._give_up(node)
        )
        self._alarms.set(until_s, ("back", node), lambda: self._return(node))

    def _mark_not_ready(self, node: str) -> None:
        current = self._view.get("Node", "", node)
        if current is None:
            return
        now = self._writer.now_s
        condition = ("Ready", False, "NodeStatusUnknown", "Kubelet stopped posting node status.")
        all_conditions = set_conditions(current, now, condition)
        for kept_condition in all_conditions:
            if kept_condition["type"] == "Ready":
                kept_condition["status"] = "Unknown"
        self._writer.status(current, {"conditions": all_conditions}, "")
        self._taint(current, UNREACHABLE, "NoExecute")
        said_so = f"Node {node} status is now: NodeNotReady"
        self._writer.event(current, "NodeNotReady", said_so, "node-controller")
        for pod in self._on(node):
            false = ("Ready", False, "NodeStatusUnknown", "")
            self._writer.status(pod, {"conditions": set_conditions(pod, now, false)}, "")

    def _give_up(self, node: str) -> None:
        """Delete the pods, as the pod collector does after the cloud has deleted the node."""
        for pod in self._on(node):
            self._hardware.release(get_uid(pod), self._writer.now_s)
            self._writer.event(
                pod, "TaintManagerEviction", "Marking for deletion", "taint-eviction"
            )
            self._writer.remove(pod)

    def _reclaim(self, node: str, until_s: float) -> None:
        """Reclaim a spot node: notice, drain, and deletion two minutes later."""
        current = self._view.get("Node", "", node)
        if current is None:
            return
        self._taint(current, SPOT_TAINT, "NoSchedule")
        self._writer.event(current, "SpotInterruption", "Spot interruption notice", "node-handler")
        for pod in self._on(node):
            if not is_deleting(pod):
                self._writer.delete(pod, grace_s=_draw_within_notice(pod))
        gone_s = self._writer.now_s + SPOT_NOTICE_S
        self._alarms.set(gone_s, ("reclaimed", node), lambda: self._remove(node, until_s))

    def _remove(self, node: str, until_s: float) -> None:
        for pod in self._on(node):
            self._hardware.release(get_uid(pod), self._writer.now_s)
            self._writer.remove(pod)
        self._kubelet.away.add(node)
        self._outage(node, "spot")
        current = self._view.get("Node", "", node)
        if current is not None:
            self._writer.delete(current)
        self._alarms.set(until_s, ("back", node), lambda: self._return(node))

    def _return(self, node: str) -> None:
        """Return a node: the same machine, or another one under its name."""
        now = self._writer.now_s
        self._alarms.clear(("no heartbeat", node))
        self._alarms.clear(("given up", node))
        self._kubelet.away.discard(node)
        self._outage(node, "cordoned" if node in self._shut else "")
        current = self._view.get("Node", "", node)
        if current is None:
            self._shut.discard(node)
            self._outage(node, "")
            body = build_node_object(self._hardware.specs[node], now)
            created = self._writer.create(body, "kubelet")
            if created is not None:
                self._ready(created)
            return
        self._untaint(current, UNREACHABLE)
        up = set_conditions(current, now, ("Ready", True, "KubeletReady", ""))
        self._writer.status(current, {"conditions": up}, "")
        self._ready(current)
        if node not in self._shut:
            self._hardware.fleet.reopen(node)
        for pod in self._on(node):
            self._resume(pod, now)

    def _ready(self, node: Object) -> None:
        self._writer.event(
            node, "NodeReady", f"Node {name(node)} status is now: NodeReady", "kubelet"
        )

    def _resume(self, pod: Object, now: float) -> None:
        """Restart a pod that waited for its node, on its former devices."""
        placement = self._hardware.fleet.running[get_uid(pod)].placement
        if is_deleting(pod):
            self._hardware.release(get_uid(pod), now)
            self._writer.remove(pod)
            return
        self._kubelet.begin_again(pod, self._hardware.places(placement), placement.share)

    def _taint(self, node: Object, key: str, effect: str) -> None:
        remaining = [t for t in get_path(node, "spec", "taints", default=()) if t["key"] != key]
        self._writer.patch(
            node, {"spec": {"taints": [*remaining, {"key": key, "effect": effect}]}}, ""
        )

    def _untaint(self, node: Object, key: str) -> None:
        remaining = [t for t in get_path(node, "spec", "taints", default=()) if t["key"] != key]
        self._writer.patch(node, {"spec": {"taints": remaining or None}}, "")


def _draw_within_notice(pod: Object) -> float:
    own = float(pod["spec"].get("terminationGracePeriodSeconds", 30))
    return min(own, SPOT_NOTICE_S)

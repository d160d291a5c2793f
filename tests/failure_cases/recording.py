"""Play a failure case: what its devices, pods, nodes and events show until some hours later.

    case ─► scripts, outages, effects ─► compute_signals ─► Block   (what exporters show)
         └► pods, nodes, events as the Kubernetes API shows them, and the pods' progress

What follows from a fault is physics of `simulator.work`: a GPU off the bus shows XID 79 and does no
work, a hot one has a lower clock, a lost node shows nothing. The truth (`FailureCase`) is not part
of the recording.
"""

import zlib
from datetime import UTC, datetime
from math import inf
from typing import Any

import msgspec
import numpy as np

from fallow.errors import UsageError
from simulator.kube.server_metadata import format_time
from simulator.models import (
    TICK_S,
    Block,
    DeviceAllocation,
    Holder,
    Outage,
    SimulatedDevice,
)
from simulator.work.behaviours import Script, build_script
from simulator.work.effects import Effect
from simulator.work.levels import count_steps
from simulator.work.plans import WorkPlan
from simulator.work.signals import compute_signals
from tests.failure_cases.cases import CaseFault, FailureCase

Object = dict[str, Any]
LENGTH_S = 5 * 3600.0
GPUS, NODES = 4, 2
"""Of each case: GPUs per node, and nodes."""
NOT_READY_S, EVICTED_S = 40.0, 340.0
"""After a node went away: its condition, and the deletion of its pods (Kubernetes' defaults)."""
POLL_S, HOST_S = 60.0, 300.0
DEAD_S = 20.0
"""A process that cannot work ends after this."""
OOM_GAP_S = 600.0
TRAINING = {"input_share": 0.0, "pull_s": 60.0, "load_s": 60.0}


class CasePod(msgspec.Struct):
    """A pod of a case, and how it ends."""

    name: str
    workload: str
    node: str
    device: int
    script: Script
    start_s: float
    end_s: float = inf
    """When its process, or its node, is gone."""
    listed_until_s: float = inf
    """When the API server deletes it."""
    failed: tuple[int, str, str] | None = None
    """Exit code, reason, message of a pod that has ended."""
    restarts: int = 0
    last: tuple[int, str, str] | None = None
    """The same of a container that was restarted."""
    last_s: float = 0.0
    last_ran_s: float = 0.0
    runs: bool = True
    """Whether a process of it ever worked."""


class FailureRecording(msgspec.Struct, frozen=True):
    """What a case shows: the exporters' block, objects of the API, progress and host traffic."""

    case: str
    block: Block
    hidden: dict[int, float]
    """Devices whose series end, and when (epoch s)."""
    pods: list[tuple[Object, str, datetime]]
    """Each pod, its workload, and when it was last listed."""
    nodes: list[str]
    events: list[Object]
    progress: list[tuple[str, float, float]]
    """Pod, time (epoch s), steps."""
    hosts: list[tuple[str, float, float, float, float]]
    """Pod, time, cores, bytes received and sent per second."""


class CasePlayer:
    """Plays one case from a start.

    Raises:
        UsageError: a fault that does not exist, or on nothing.
    """

    def __init__(self, case: FailureCase, start_s: float) -> None:
        self.case, self.start_s = case, start_s
        self._seed = zlib.crc32(case.name.encode()) % 10_000
        self._nodes = [f"n-{n}" for n in range(NODES)]
        self._devices = [
            SimulatedDevice(f"GPU-{case.name}-{node}-{n}", node, n, "H100")
            for node in self._nodes
            for n in range(GPUS)
        ]
        self._pods = self._place()
        self._effects: list[Effect] = []
        self._outages: list[Outage] = []
        self._hidden: dict[int, float] = {}
        self._events: list[Object] = []
        self._blank = False
        self._skew: dict[str, float] = {}

    def play(self) -> FailureRecording:
        """Return what the case shows."""
        for fault in self.case.faults:
            act = getattr(self, f"_do_{fault.fault}", None)
            if act is None:
                raise UsageError(f"no fault {fault.fault!r}", hint="see faults.csv")
            act(fault, self.start_s + fault.at_s)
        ticks = self.start_s + TICK_S * np.arange(1, round(LENGTH_S / TICK_S), dtype=float)
        allocations = [
            DeviceAllocation(_name_holder(p), (p.device,), p.start_s, p.end_s)
            for p in self._pods
            if p.runs
        ]
        scripts = {_name_holder(p).uid: p.script for p in self._pods}
        block, _ = compute_signals(
            self._devices, allocations, scripts, self._outages, ticks, None, self._effects
        )
        if self._blank:
            self._events = [_drop_uid(event) for event in self._events]
        return FailureRecording(
            case=self.case.name,
            block=block,
            hidden=self._hidden,
            pods=[self._show_pod(p) for p in self._pods],
            nodes=self._nodes,
            events=self._events,
            progress=[row for p in self._pods for row in self._list_progress(p)],
            hosts=[row for p in self._pods for row in self._list_hosts(p)],
        )

    def _place(self) -> list[CasePod]:
        """Place ranks on nodes: half of a job on each, a pair of ranks on the first alone."""
        case, pods = self.case, []
        later = any(f.fault == "exit" and f.on == "job 0" for f in case.faults)
        for job in range(case.jobs):
            start_s = self.start_s + (12_600.0 if later and job else 0.0)
            hang = {} if case.hang_s is None else {"hang_after_s": case.hang_s}
            for rank in range(case.ranks):
                side = case.ranks // 2 if case.ranks > NODES else case.ranks
                node, index = divmod(rank, side)
                shift = 0 if later or case.ranks > NODES else job * NODES
                plan = WorkPlan(
                    case.behaviour, self._seed + job, ranks=case.ranks,
                    params={**TRAINING, "checkpoint_every_s": 1800.0, **hang},
                    first_rank=rank, pod_ranks=1,
                )  # fmt: skip
                pods.append(
                    CasePod(
                        f"job{job}-{rank}", f"job{job}", self._nodes[node],
                        node * GPUS + index + shift, build_script(plan, start_s), start_s,
                    )
                )  # fmt: skip
        return pods

    # faults

    def _select(self, on: str) -> list[CasePod]:
        word, _, number = on.partition(" ")
        if word == "all":
            return self._pods
        if word == "rank":
            return [self._pods[int(number)]]
        if word == "others":
            return [p for p in self._pods[1:] if p.workload == "job0"]
        if word == "job":
            return [p for p in self._pods if p.workload == f"job{number}"]
        if word == "node":
            return [p for p in self._pods if p.node == self._nodes[int(number)]]
        raise UsageError(f"nothing is called {on!r}", hint="all, others, rank N, job N, node N")

    def _do_xid(self, fault: CaseFault, at_s: float) -> None:
        for pod in self._select(fault.on):
            self._effects.append(Effect(pod.device, at_s, at_s, "xid", int(fault.value)))

    def _do_heat(self, fault: CaseFault, at_s: float) -> None:
        for pod in self._select(fault.on):
            end_s = at_s + float(fault.value)
            self._effects.append(Effect(pod.device, at_s, end_s, "thermal"))

    def _do_fall(self, fault: CaseFault, at_s: float) -> None:
        """Let a GPU fall off the bus: XID 79, no work, and no series a minute later."""
        for pod in self._select(fault.on):
            self._outages.append(Outage(pod.device, at_s, inf, "xid"))
            self._hidden[pod.device] = at_s + 2 * TICK_S

    def _do_hide(self, fault: CaseFault, at_s: float) -> None:
        for pod in self._select(fault.on):
            self._hidden[pod.device] = at_s

    def _do_exit(self, fault: CaseFault, at_s: float) -> None:
        """End processes; their pods are never restarted and fail."""
        for pod in self._select(fault.on):
            pod.failed, pod.end_s = _parse_exit(fault.value), at_s

    def _do_restart(self, fault: CaseFault, at_s: float) -> None:
        """End a process several times; its container starts again at once."""
        count, _, ending = fault.value.partition("|")
        for pod in self._select(fault.on):
            pod.restarts, pod.last = int(count), _parse_exit(ending)
            pod.last_s = at_s + OOM_GAP_S * (int(count) - 1)
            pod.last_ran_s = OOM_GAP_S

    def _do_die(self, fault: CaseFault, at_s: float) -> None:
        """Let every start of a process end at once: its GPU never works."""
        for pod in self._select(fault.on):
            pod.start_s, pod.runs = at_s, False
            pod.restarts, pod.last = 1, _parse_exit(fault.value)
            pod.last_s, pod.last_ran_s = at_s + 2 * DEAD_S, DEAD_S

    def _do_evict(self, fault: CaseFault, at_s: float) -> None:
        for pod in self._select(fault.on):
            pod.failed, pod.end_s = (-1, "Evicted", fault.value), at_s
            self._tell(at_s, "Pod", pod.name, "Evicted", fault.value)

    def _do_delete(self, fault: CaseFault, at_s: float) -> None:
        for pod in self._select(fault.on):
            pod.end_s = pod.listed_until_s = at_s

    def _do_image(self, fault: CaseFault, at_s: float) -> None:
        """Let the kubelet fail to pull an image: no process starts."""
        for pod in self._select(fault.on):
            pod.start_s, pod.runs = at_s, False
            self._tell(at_s + 5, "Pod", pod.name, "Failed", fault.value)

    def _do_event(self, fault: CaseFault, at_s: float) -> None:
        reason, _, message = fault.value.partition("|")
        if fault.on.startswith("node"):
            node = self._nodes[int(fault.on.split()[1])]
            self._tell(at_s, "Node", node, reason, message)
        else:
            for pod in self._select(fault.on):
                self._tell(at_s, "Pod", pod.name, reason, message)

    def _do_silence(self, fault: CaseFault, at_s: float) -> None:
        """Let a kubelet be silent for a time; nothing else happens."""
        node = self._nodes[int(fault.on.split()[1])]
        self._tell(at_s + NOT_READY_S, "Node", node, "NodeNotReady", "NodeNotReady")
        self._tell(at_s + float(fault.value), "Node", node, "NodeReady", "NodeReady")

    def _do_drop(self, fault: CaseFault, at_s: float) -> None:
        """Let a node go away: its work is lost at once, its pods are deleted after a while."""
        node = self._nodes[int(fault.on.split()[1])]
        until_s = at_s + float(fault.value)
        for place, device in enumerate(self._devices):
            if device.node == node:
                self._outages.append(Outage(place, at_s, until_s, "node-lost"))
        self._tell(at_s + NOT_READY_S, "Node", node, "NodeNotReady", "NodeNotReady")
        for pod in self._select(fault.on):
            pod.end_s, pod.listed_until_s = at_s, at_s + EVICTED_S
            self._tell(at_s + EVICTED_S, "Pod", pod.name, "TaintManagerEviction", "Deleting")
        self._tell(until_s, "Node", node, "NodeReady", "NodeReady")

    def _do_blank(self, _fault: CaseFault, _at_s: float) -> None:
        self._blank = True

    def _do_skew(self, fault: CaseFault, _at_s: float) -> None:
        self._skew[self._nodes[int(fault.on.split()[1])]] = float(fault.value)

    # what the API shows

    def _tell(self, at_s: float, kind: str, name: str, reason: str, message: str) -> None:
        space = "ml" if kind == "Pod" else "default"
        uid = f"event-{self.case.name}-{len(self._events)}"
        self._events.append(
            {
                "metadata": {"name": uid, "namespace": space, "uid": uid},
                "involvedObject": {"kind": kind, "name": name, "namespace": space},
                "reason": reason, "message": message, "count": 1,
                "firstTimestamp": format_time(at_s), "lastTimestamp": format_time(at_s),
            }
        )  # fmt: skip

    def _show_pod(self, pod: CasePod) -> tuple[Object, str, datetime]:
        ahead = self._skew.get(pod.node, 0.0)
        listed = min(pod.listed_until_s, self.start_s + LENGTH_S)
        if ahead:
            listed = pod.last_s + POLL_S
        status: Object = {
            "phase": "Pending" if not pod.runs and pod.last is None else "Running",
            "startTime": format_time(pod.start_s),
        }
        container: Object = {"name": "main", "restartCount": pod.restarts}
        if pod.failed is not None and pod.failed[0] >= 0:
            ended = _describe_exit(pod.failed, pod.start_s + ahead, pod.end_s + ahead)
            container["state"], status["phase"] = {"terminated": ended}, "Failed"
        elif pod.failed is not None:
            _, status["reason"], status["message"] = pod.failed
            status["phase"] = "Failed"
            status["conditions"] = [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "TerminationByKubelet",
                    "lastTransitionTime": format_time(pod.end_s + ahead),
                }
            ]
        elif pod.last is not None:
            begun_s = pod.last_s - pod.last_ran_s
            ended = _describe_exit(pod.last, begun_s + ahead, pod.last_s + ahead)
            container["lastState"] = {"terminated": ended}
        status["containerStatuses"] = [container]
        body: Object = {
            "metadata": {
                "name": pod.name, "namespace": "ml", "uid": f"{self.case.name}-{pod.name}",
                "creationTimestamp": format_time(pod.start_s),
            },
            "spec": {
                "nodeName": pod.node,
                "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
            },
            "status": status,
        }  # fmt: skip
        return body, pod.workload, datetime.fromtimestamp(listed, UTC)

    def _list_progress(self, pod: CasePod) -> list[tuple[str, float, float]]:
        """Return the steps that the first rank exports, and only while its process runs."""
        if not pod.runs or not pod.name.endswith("-0"):
            return []
        end_s = min(pod.end_s, self.start_s + LENGTH_S)
        times = np.arange(pod.start_s + POLL_S, end_s, POLL_S)
        steps = count_steps(pod.script, times)
        # A job without all of its ranks makes no steps.
        stops = min(p.end_s for p in self._pods if p.workload == pod.workload)
        last = steps[times <= stops].max(initial=0.0)
        steps = np.where(times > stops, last, steps)
        return [(pod.name, float(t), float(v)) for t, v in zip(times, steps, strict=True)]

    def _list_hosts(self, pod: CasePod) -> list[tuple[str, float, float, float, float]]:
        if not pod.runs:
            return []
        rows = []
        end_s = min(pod.end_s, self.start_s + LENGTH_S)
        for at_s in np.arange(pod.start_s, end_s - HOST_S, HOST_S):
            ticks = at_s + TICK_S * np.arange(1, HOST_S / TICK_S)
            received, sent = pod.script.net(ticks)
            cores = float(pod.script.cpu_cores(ticks).mean())
            rows.append((pod.name, float(at_s), cores, float(received.mean()), float(sent.max())))
        return rows


def _name_holder(pod: CasePod) -> Holder:
    return Holder(pod.name, "ml", pod.name, "main", "PyTorchJob", pod.workload, "research")


def _parse_exit(text: str) -> tuple[int, str, str]:
    code, reason, message = text.split("|", 2)
    return int(code), reason, message


def _describe_exit(ending: tuple[int, str, str], begun_s: float, ended_s: float) -> Object:
    code, reason, message = ending
    return {
        "exitCode": code, "reason": reason, "message": message,
        "startedAt": format_time(begun_s), "finishedAt": format_time(ended_s),
    }  # fmt: skip


def _drop_uid(event: Object) -> Object:
    named = {k: v for k, v in event["metadata"].items() if k != "uid"}
    return {**event, "metadata": named}

"""Simulate all kubelets: bound pods start, run, restart, end, and release their devices."""

import hashlib
from collections.abc import Callable
from typing import Any

from fallow.kube.objects import get_annotations, get_path, get_uid, has_ended, is_deleting
from simulator.cluster.hardware import Hardware
from simulator.cluster.objects import Object, is_live, set_conditions
from simulator.cluster.store_writer import StoreWriter
from simulator.cluster.timers import Timers
from simulator.cluster.view import View
from simulator.kube.server_metadata import format_time, parse_time
from simulator.models import Holder

STOP = "simulator.fallow/stop-seconds"
"""Annotation: how long its containers take to end after SIGTERM. Without it they take their whole
grace period, like a process that runs as PID 1 without a handler."""
PULL_S, START_S = (45.0, 240.0), (2.0, 8.0)
"""Seconds until a container runs: the image is pulled on a node for the first time, or is already
there. A choice of this world."""
OOM_KILLED, OOM_EXIT = "OOMKilled", 137
"""Reason and exit code of a container that the kernel killed at its memory limit."""
BACKOFF_S, BACKOFF_MOST_S = 10.0, 300.0
"""The kubelet's back-off before a failed container is started again; doubled each time."""


class Kubelet:
    """The life of pods on their nodes."""

    def __init__(
        self,
        view: View,
        writer: StoreWriter,
        alarms: Timers,
        hardware: Hardware,
        holder: Callable[[Object], Holder],
        *,
        seed: int,
    ) -> None:
        self._view, self._writer, self._alarms = view, writer, alarms
        self._hardware, self._holder, self._seed = hardware, holder, seed
        self._pulled: set[tuple[str, str]] = set()
        self._starting: set[str] = set()
        self.away: set[str] = set()
        """Nodes without a connection: nothing happens to their pods."""
        self.resizes = True
        """False: running containers keep their resources, despite requests."""

    def notice(self, pod: Object, *, deleted: bool) -> None:
        """Process the changes of a pod."""
        if deleted or has_ended(pod):
            self._alarms.clear(("start", get_uid(pod)))
            self._starting.discard(get_uid(pod))
            self._hardware.release(get_uid(pod), self._writer.now_s)
            return
        node = pod["spec"].get("nodeName")
        if node and is_deleting(pod):
            self._end_later(pod)
        elif node and get_path(pod, "status", "phase") == "Running":
            self._resize(pod)
        elif (
            node
            and get_path(pod, "status", "phase") == "Pending"
            and get_uid(pod) not in self._starting
        ):
            self._starting.add(get_uid(pod))
            after = self._delay(pod, node)
            self._alarms.set(
                self._writer.now_s + after,
                ("start", get_uid(pod)),
                lambda: self._start(get_uid(pod)),
            )

    def _resize(self, pod: Object) -> None:
        """Give running containers their requested resources; report it as `pods/resize` does."""
        if not self.resizes or pod["spec"]["nodeName"] in self.away:
            return
        allocated = {c["name"]: _allocate_resources(c) for c in pod["spec"]["containers"]}
        states = get_path(pod, "status", "containerStatuses", default=())
        if all((s.get("resources") or {}) == allocated.get(s["name"], {}) for s in states):
            return
        updated = [{**s, "resources": allocated.get(s["name"], {})} for s in states]
        self._writer.status(pod, {"containerStatuses": updated}, "")

    def _delay(self, pod: Object, node: str) -> float:
        image = str(pod["spec"]["containers"][0].get("image", ""))
        first = (node, image) not in self._pulled
        self._pulled.add((node, image))
        minimum, maximum = PULL_S if first else START_S
        key = f"{self._seed}/{node}/{image}" if first else f"{self._seed}/{get_uid(pod)}"
        draw = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=4).digest(), "big")
        return float(round(minimum + (maximum - minimum) * draw / 2**32))

    def _start(self, pod_uid: str) -> None:
        self._starting.discard(pod_uid)
        pod = self._view.pods.get(pod_uid)
        if pod is None or not is_live(pod) or pod["spec"]["nodeName"] in self.away:
            return
        now = self._writer.now_s
        running = [
            _find_container(c, {"running": {"startedAt": format_time(now)}}, restarts=0)
            for c in pod["spec"]["containers"]
        ]
        self._writer.status(
            pod,
            {
                "phase": "Running",
                "startTime": format_time(now),
                "hostIP": _address(pod["spec"]["nodeName"], "10.0"),
                "podIP": _address(pod_uid, "10.128"),
                "conditions": set_conditions(
                    pod,
                    now,
                    ("Initialized", True, "", ""),
                    ("ContainersReady", True, "", ""),
                    ("Ready", True, "", ""),
                ),
                "containerStatuses": running,
            },
            "",
        )
        first = pod["spec"]["containers"][0]["name"]
        self._writer.event(pod, "Started", f"Started container {first}", "kubelet")

    def _end_later(self, pod: Object) -> None:
        meta = pod["metadata"]
        grace = float(meta.get("deletionGracePeriodSeconds") or 0)
        began = parse_time(meta["deletionTimestamp"]) - grace
        if get_path(pod, "status", "phase") == "Running":
            key = ("killing", get_uid(pod))
            self._alarms.set(self._writer.now_s, key, lambda: self._killing(get_uid(pod)))
            takes = min(grace, float(get_annotations(pod).get(STOP, grace)))
        else:
            takes = 0.0
        at_s = max(began + takes, self._writer.now_s)
        self._alarms.set(at_s, ("end", get_uid(pod)), lambda: self._end(get_uid(pod)))

    def _killing(self, pod_uid: str) -> None:
        pod = self._view.pods.get(pod_uid)
        if pod is not None:
            first = pod["spec"]["containers"][0]["name"]
            self._writer.event(pod, "Killing", f"Stopping container {first}", "kubelet")

    def _end(self, pod_uid: str) -> None:
        pod = self._view.pods.get(pod_uid)
        if pod is not None and pod["spec"]["nodeName"] not in self.away:
            self._hardware.release(pod_uid, self._writer.now_s)
            self._writer.remove(pod)

    def finish(self, pod: Object, *, ok: bool, reason: str = "") -> None:
        """Let a pod's containers exit; they restart if the restart policy requires it.

        `reason` is why they failed, such as OOMKilled; none = Error.
        """
        policy = pod["spec"].get("restartPolicy", "Always")
        if policy == "Always" or (policy == "OnFailure" and not ok):
            self._restart(pod, ok=ok, reason=reason)
        else:
            self.close(pod, ok=ok)

    def close(self, pod: Object, *, ok: bool, reason: str = "", message: str = "") -> None:
        """End a pod finally: Succeeded or Failed."""
        now = self._writer.now_s
        phase = "Succeeded" if ok else "Failed"
        began = get_path(pod, "status", "startTime", default=format_time(now))
        ended = {
            "startedAt": began,
            "finishedAt": format_time(now),
            "exitCode": 0 if ok else 1,
            "reason": "Completed" if ok else (reason or "Error"),
        }
        why = "PodCompleted" if ok else "PodFailed"
        more = {"reason": reason, "message": message} if reason else {}
        terminated = [
            _find_container(c, {"terminated": ended}, restarts=_count_restarts(pod))
            for c in pod["spec"]["containers"]
        ]
        self._writer.status(
            pod,
            {
                "phase": phase,
                "conditions": set_conditions(
                    pod, now, ("Ready", False, why, ""), ("ContainersReady", False, why, "")
                ),
                "containerStatuses": terminated,
                **more,
            },
            "",
        )

    def _restart(self, pod: Object, *, ok: bool, reason: str) -> None:
        times, now = _count_restarts(pod) + 1, self._writer.now_s
        ended = {
            "startedAt": get_path(pod, "status", "startTime", default=format_time(now)),
            "finishedAt": format_time(now),
            "exitCode": 0 if ok else OOM_EXIT if reason == OOM_KILLED else 1,
            "reason": "Completed" if ok else (reason or "Error"),
        }
        after = 0.0 if ok else min(BACKOFF_S * 2 ** (times - 1), BACKOFF_MOST_S)
        wait = {"waiting": {"reason": "Completed" if ok else "CrashLoopBackOff"}}
        self._tell(pod, wait, times, up=False, last={"terminated": ended})
        self._alarms.set(
            now + after, ("start", get_uid(pod)), lambda: self._again(get_uid(pod), times)
        )

    def _again(self, pod_uid: str, times: int) -> None:
        pod = self._view.pods.get(pod_uid)
        if pod is not None and is_live(pod) and pod["spec"]["nodeName"] not in self.away:
            running = {"running": {"startedAt": format_time(self._writer.now_s)}}
            self._tell(pod, running, times, up=True)

    def _tell(
        self, pod: Object, state: Object, times: int, *, up: bool, last: Object | None = None
    ) -> None:
        now = self._writer.now_s
        before = {
            s["name"]: s.get("lastState")
            for s in get_path(pod, "status", "containerStatuses", default=())
        }
        why = "" if up else "ContainersNotReady"
        self._writer.status(
            pod,
            {
                "conditions": set_conditions(
                    pod, now, ("Ready", up, why, ""), ("ContainersReady", up, why, "")
                ),
                "containerStatuses": [
                    _find_container(c, state, restarts=times, last=last or before.get(c["name"]))
                    for c in pod["spec"]["containers"]
                ],
            },
            "",
        )

    def begin_again(self, pod: Object, devices: tuple[int, ...], share: float) -> None:
        """Start a pod again after its node's absence, on its former devices."""
        now = self._writer.now_s
        if devices:
            self._hardware.begin(get_uid(pod), self._holder(pod), devices, share, now)
        if get_path(pod, "status", "phase") == "Running":
            self._tell(
                pod, {"running": {"startedAt": format_time(now)}}, _count_restarts(pod) + 1, up=True
            )
        else:
            self._starting.discard(get_uid(pod))
            self.notice(pod, deleted=False)


def _count_restarts(pod: Object) -> int:
    statuses = get_path(pod, "status", "containerStatuses", default=())
    return max((int(c.get("restartCount", 0)) for c in statuses), default=0)


def _find_container(
    spec: Any, state: Object, *, restarts: int, last: Object | None = None
) -> Object:
    up = "running" in state
    return {
        "name": spec["name"],
        "image": spec.get("image", ""),
        "ready": up,
        "started": up,
        "restartCount": restarts,
        "state": state,
        **({"lastState": last} if last else {}),
        **({"resources": resources} if (resources := _allocate_resources(spec)) else {}),
    }


def _allocate_resources(spec: Any) -> Object:
    """Return a container's allocated resources: here its whole request, immediately."""
    resources = spec.get("resources") or {}
    return {side: dict(resources[side]) for side in ("limits", "requests") if resources.get(side)}


def _address(key: str, head: str) -> str:
    low, high = hashlib.blake2b(key.encode(), digest_size=2).digest()
    return f"{head}.{low}.{high}"

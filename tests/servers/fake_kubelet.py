"""A kubelet without containers: what is bound runs, what is being deleted is gone.

A resize in place takes two writes, as a kubelet's does: the condition PodResizeInProgress, then the
amounts in `containerStatuses[].resources`. A pod annotated `RESIZE: Infeasible` (or `Deferred`)
gets the condition PodResizePending with that reason instead, and keeps its amounts.

with running(url, token, ca):
    ...
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import urllib3

Object = dict[str, Any]
STRATEGIC = "application/strategic-merge-patch+json"
RUNNING = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
WATCH_S = 5
RESIZE = "fallow.test/resize"
PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"


class Kubelet:
    """Watches all pods and plays the kubelet of every node."""

    def __init__(self, url: str, token: str, ca: str) -> None:
        self.url, self.stopped = url, threading.Event()
        self._headers = {"Authorization": f"Bearer {token}"}
        self._pool = urllib3.PoolManager(ca_certs=ca, retries=False, maxsize=4)

    def run(self) -> None:
        """Follow the pods until it is stopped; a watch that ends is begun anew."""
        while not self.stopped.is_set():
            query = f"watch=true&timeoutSeconds={WATCH_S}"
            try:
                answer = self._send("GET", f"/api/v1/pods?{query}", stream=True)
                rest = b""
                for chunk in answer.stream():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        self._play(json.loads(line)["object"])
                    if self.stopped.is_set():
                        return
            except urllib3.exceptions.HTTPError:
                self.stopped.wait(0.1)

    def _play(self, pod: Object) -> None:
        meta, status = pod.get("metadata") or {}, pod.get("status") or {}
        if not (pod.get("spec") or {}).get("nodeName"):
            return
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        if meta.get("deletionTimestamp"):
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
            self._send("DELETE", path, options)
        elif status.get("phase") == "Pending":
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            state = {"ready": True, "started": True, "restartCount": 0, "image": "", "imageID": ""}
            running = {**state, "state": {"running": {"startedAt": now}}}
            answer = {
                "phase": "Running",
                "startTime": now,
                "conditions": [
                    {"type": t, "status": "True", "lastTransitionTime": now} for t in RUNNING
                ],
                "containerStatuses": [{**_has(c), **running} for c in pod["spec"]["containers"]],
            }
            self._send("PATCH", f"{path}/status", {"status": answer}, media=STRATEGIC)
        elif status.get("phase") == "Running" and (resized := _resized(pod)) is not None:
            self._send("PATCH", f"{path}/status", {"status": resized}, media=STRATEGIC)

    def _send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        media: str = "application/json",
        stream: bool = False,
    ) -> urllib3.BaseHTTPResponse:
        headers = {**self._headers, "Content-Type": media}
        data = None if body is None else json.dumps(body)
        return self._pool.request(
            method, self.url + path, body=data, headers=headers, preload_content=not stream
        )


def _has(container: Object) -> Object:
    """Return what a container has once its spec is applied, as its status says it."""
    amounts = container.get("resources") or {}
    cpu_and_memory = {
        side: {n: a for n, a in (amounts.get(side) or {}).items() if n in {"cpu", "memory"}}
        for side in ("requests", "limits")
    }
    allocated = {"allocatedResources": amounts["requests"]} if amounts.get("requests") else {}
    return {"name": container["name"], "resources": cpu_and_memory, **allocated}


def _resized(pod: Object) -> Object | None:
    """Return the next status of a running pod whose spec was resized; None = it is as it should."""
    wanted = [_has(c) for c in pod["spec"]["containers"]]
    shown = {s["name"]: s.get("resources") for s in pod["status"].get("containerStatuses") or ()}
    conditions = {c["type"]: c.get("reason") for c in pod["status"].get("conditions") or ()}
    gone = [{"$patch": "delete", "type": t} for t in (PENDING, IN_PROGRESS) if t in conditions]
    if all(shown.get(one["name"]) == one["resources"] for one in wanted):
        return {"conditions": gone} if gone else None
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    answer = {"status": "True", "lastTransitionTime": now, "lastProbeTime": None}
    refused = (pod["metadata"].get("annotations") or {}).get(RESIZE)
    if refused:
        if conditions.get(PENDING) == refused:
            return None
        message = "the node has no room for it"
        return {"conditions": [{**answer, "type": PENDING, "reason": refused, "message": message}]}
    if IN_PROGRESS not in conditions:
        return {"conditions": [{**answer, "type": IN_PROGRESS}]}
    return {"containerStatuses": wanted, "conditions": gone}


@contextmanager
def running(url: str, token: str, ca: str) -> Iterator[Kubelet]:
    """Play the kubelets of a server until the block ends."""
    kubelet = Kubelet(url, token, ca)
    thread = threading.Thread(target=kubelet.run, name="fake-kubelet", daemon=True)
    thread.start()
    try:
        yield kubelet
    finally:
        kubelet.stopped.set()
        thread.join(WATCH_S + 5)

"""The fleet's API server: what `kubectl get -A -o json` would print of nodes, pods and owners."""

import zlib
from datetime import datetime, timedelta
from typing import Any

from fallow.window import Window
from runtime.fleet.plan import Device, Fleet, Pod, template_hash

AGE = timedelta(days=30)
"""How long before the window the nodes and the pods without a beginning were made."""
ZONE = "us-east-1a"


def kubectl(fleet: Fleet, window: Window) -> dict[str, Any]:
    """Return the list of nodes, pods and their owners as it stands at the window's end."""
    items: list[dict[str, Any]] = [
        _node(name, [d for d in fleet.devices if d.node == name], window) for name in fleet.nodes
    ]
    items += [_pod(pod, window) for pod in fleet.pods]
    items += {(i["kind"], i["metadata"]["uid"]): i for p in fleet.pods for i in _owners(p)}.values()
    return {"apiVersion": "v1", "kind": "List", "items": items}


def span(pod: Pod, window: Window) -> tuple[datetime, datetime | None]:
    """Return when a pod started and ended; None = it still runs."""
    length = timedelta(seconds=window.seconds)
    begin = window.start + pod.begin * length if pod.begin > 0 else window.start - AGE
    return begin, window.start + pod.end * length if pod.end < 1 else None


def _node(name: str, devices: list[Device], window: Window) -> dict[str, Any]:
    model = devices[0].model
    whole = {d.uuid for d in devices}
    resources = {"cpu": "192", "memory": "2097152Mi"}
    instances = [d for d in devices if d.instance is not None]
    plain = len(whole) - len({d.uuid for d in instances})
    resources["nvidia.com/gpu"] = str(plain)
    for device in instances:
        key = f"nvidia.com/mig-{device.profile}"
        resources[key] = str(int(resources.get(key, "0")) + 1)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"node-{name}",
            "creationTimestamp": _moment(window.start - AGE),
            "labels": {
                "kubernetes.io/hostname": name,
                "node.kubernetes.io/instance-type": model.instance_type,
                "topology.kubernetes.io/region": ZONE[:-1],
                "topology.kubernetes.io/zone": ZONE,
                "karpenter.sh/capacity-type": "on-demand",
                "karpenter.sh/nodepool": model.instance_type.partition(".")[0],
                "nvidia.com/gpu.product": model.label,
                "nvidia.com/gpu.count": str(len(whole)),
                **({"nvidia.com/mig.strategy": "mixed"} if instances else {}),
            },
        },
        "spec": {"providerID": f"aws:///{ZONE}/i-{zlib.crc32(name.encode()):017x}"},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _pod(pod: Pod, window: Window) -> dict[str, Any]:
    begin, end = span(pod, window)
    state: dict[str, Any] = {"running": {"startedAt": _moment(begin)}}
    if end is not None:
        ended = {"startedAt": _moment(begin), "finishedAt": _moment(end), "exitCode": 0}
        state = {"terminated": {**ended, "reason": "Completed"}}
    request = {"cpu": "8", "memory": "64Gi", pod.request: str(pod.count)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "creationTimestamp": _moment(begin),
            "labels": {"team": pod.team, **_labels(pod)},
            "ownerReferences": [_owner(pod)],
        },
        "spec": {
            "nodeName": pod.node,
            "containers": [{"name": "main", "resources": {"requests": request, "limits": request}}],
        },
        "status": {
            "phase": "Running" if end is None else "Succeeded",
            "qosClass": "Burstable",
            "startTime": _moment(begin),
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": _moment(begin)}
            ],
            "containerStatuses": [{"name": "main", "ready": end is None, "state": state}],
        },
    }


def _labels(pod: Pod) -> dict[str, str]:
    """Return the labels that the kind's controller puts on its pods."""
    if pod.kind == "Notebook":
        return {"notebook-name": pod.workload, "statefulset": pod.workload}
    if pod.kind == "Deployment":
        return {"app": pod.workload, "pod-template-hash": template_hash(pod.workload)}
    if pod.kind == "PyTorchJob":
        return {"training.kubeflow.org/job-name": pod.workload}
    if pod.kind == "RayCluster":
        return {"ray.io/cluster": pod.workload}
    return {"batch.kubernetes.io/job-name": pod.workload}


VERSIONS = {
    "Notebook": "kubeflow.org/v1",
    "StatefulSet": "apps/v1",
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "PyTorchJob": "kubeflow.org/v1",
    "RayCluster": "ray.io/v1",
    "Job": "batch/v1",
}
BETWEEN = {"Notebook": "StatefulSet", "Deployment": "ReplicaSet"}
"""Kinds whose pods belong to another object first."""


def _chain(pod: Pod) -> list[tuple[str, str]]:
    """Return kind and name of each owner, from the pod upwards."""
    top = (pod.kind, pod.workload)
    if pod.kind not in BETWEEN:
        return [top]
    suffix = f"-{template_hash(pod.workload)}" if pod.kind == "Deployment" else ""
    return [(BETWEEN[pod.kind], pod.workload + suffix), top]


def _reference(namespace: str, kind: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": VERSIONS[kind],
        "kind": kind,
        "name": name,
        "uid": f"{kind}-{namespace}-{name}".lower(),
        "controller": True,
    }


def _owner(pod: Pod) -> dict[str, Any]:
    return _reference(pod.namespace, *_chain(pod)[0])


def _owners(pod: Pod) -> list[dict[str, Any]]:
    """Return the objects above a pod."""
    chain = _chain(pod)
    made = []
    for (kind, name), above in zip(chain, [*chain[1:], None], strict=True):
        metadata: dict[str, Any] = {
            "name": name,
            "namespace": pod.namespace,
            "uid": _reference(pod.namespace, kind, name)["uid"],
            "labels": {"team": pod.team},
        }
        if above is not None:
            metadata["ownerReferences"] = [_reference(pod.namespace, *above)]
        made.append({"apiVersion": VERSIONS[kind], "kind": kind, "metadata": metadata})
    return made


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

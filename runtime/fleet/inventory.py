"""The fleet's API server: what `kubectl get nodes,pods -A -o json` would print."""

import zlib
from datetime import datetime, timedelta
from typing import Any

from fallow.window import Window
from runtime.fleet.plan import Device, Fleet, Pod, template_hash

AGE = timedelta(days=30)
"""How long before the window the nodes and the pods without a beginning were made."""
ZONE = "us-east-1a"


def kubectl(fleet: Fleet, window: Window) -> dict[str, Any]:
    """Return the list of nodes and pods as it stands at the window's end."""
    items: list[dict[str, Any]] = [
        _node(name, [d for d in fleet.devices if d.node == name], window) for name in fleet.nodes
    ]
    items += [_pod(pod, window) for pod in fleet.pods]
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


def _owner(pod: Pod) -> dict[str, Any]:
    kinds = {
        "Notebook": ("apps/v1", "StatefulSet", pod.workload),
        "Deployment": (
            "apps/v1", "ReplicaSet", f"{pod.workload}-{template_hash(pod.workload)}"
        ),
        "PyTorchJob": ("kubeflow.org/v1", "PyTorchJob", pod.workload),
        "RayCluster": ("ray.io/v1", "RayCluster", pod.workload),
        "Job": ("batch/v1", "Job", pod.workload),
    }  # fmt: skip
    version, kind, name = kinds[pod.kind]
    return {
        "apiVersion": version,
        "kind": kind,
        "name": name,
        "uid": f"owner-{pod.namespace}-{name}",
        "controller": True,
    }


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

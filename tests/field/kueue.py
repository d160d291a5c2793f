"""Objects of Kueue for a case: queues with quotas, cohorts, and workloads that wait for quota."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tests.field.site import (
    BUSY,
    END,
    FREE,
    HOUR,
    ago,
    build_node,
    build_pod,
    label_instance,
    list_lines,
    write_time,
)
from tests.field.situation import Situation

API = "kueue.x-k8s.io/v1beta1"
GPU = "nvidia.com/gpu"
LABELS = label_instance("p5.48xlarge", product="NVIDIA-H100-80GB-HBM3")
LACKS = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu"
Held = Mapping[str, Mapping[str, int]]


def build_cluster_queue(
    name: str,
    nominal: int,
    cohort: str = "",
    *,
    used: int = 0,
    borrowing: int | None = None,
    lending: int | None = None,
    stop: str = "None",
    active: str = "",
    flavor: str = "h100",
) -> dict[str, Any]:
    """Return a queue with a quota of GPUs; `active`: why it is not."""
    since = write_time(ago(24))
    ready = {"type": "Active", "status": "False" if active else "True", "lastTransitionTime": since}
    return {
        "apiVersion": API,
        "kind": "ClusterQueue",
        "metadata": {"name": name, "uid": f"queue-{name}", "creationTimestamp": since},
        "spec": {
            **({"cohort": cohort} if cohort else {}),
            "namespaceSelector": {},
            "stopPolicy": stop,
            "preemption": {"withinClusterQueue": "Never", "reclaimWithinCohort": "Never"},
            "resourceGroups": _build_groups(flavor, nominal, borrowing, lending),
        },
        "status": {
            "conditions": [{**ready, "reason": active or "Ready", "message": active or "ready"}],
            "flavorsUsage": [
                {
                    "name": flavor,
                    "resources": [{"name": GPU, "total": used, "borrowed": max(0, used - nominal)}],
                }
            ],
        },
    }


def build_cohort(
    name: str, parent: str = "", nominal: int | None = None, *, borrowing: int | None = None,
    lending: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return a cohort, with a quota of its own where `nominal` is one."""
    groups = [] if nominal is None else _build_groups("h100", nominal, borrowing, lending)
    return {
        "apiVersion": API,
        "kind": "Cohort",
        "metadata": {"name": name, "uid": f"cohort-{name}"},
        "spec": {**({"parentName": parent} if parent else {}), "resourceGroups": groups},
    }


def build_flavor(name: str = "h100", **labels: str) -> dict[str, Any]:
    """Return a flavor of nodes with labels."""
    return {
        "apiVersion": API,
        "kind": "ResourceFlavor",
        "metadata": {"name": name, "uid": f"flavor-{name}"},
        "spec": {"nodeLabels": labels} if labels else {},
    }


def build_local_queue(name: str, queue: str, namespace: str = "ml") -> dict[str, Any]:
    """Return the queue of a namespace."""
    return {
        "apiVersion": API,
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace, "uid": f"local-{name}"},
        "spec": {"clusterQueue": queue},
    }


def build_workload(name: str, gpus: int, pods: int = 1, *, message: str = LACKS) -> dict[str, Any]:
    """Return a workload of queue `lq` that waits since an hour: pods of so many GPUs each."""
    since = write_time(ago(1))
    limits = {GPU: str(gpus)}
    container = {
        "name": "c",
        "image": "x",
        "resources": {"requests": {"cpu": "4", "memory": "16Gi", **limits}, "limits": limits},
    }
    return {
        "apiVersion": API,
        "kind": "Workload",
        "metadata": {
            "name": f"job-{name}",
            "namespace": "ml",
            "uid": f"workload-{name}",
            "creationTimestamp": since,
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"job-{name}",
                    "controller": True,
                }
            ],
        },
        "spec": {
            "queueName": "lq",
            "priority": 0,
            "podSets": [
                {"name": "main", "count": pods, "template": {"spec": {"containers": [container]}}}
            ],
        },
        "status": {
            "conditions": [
                {
                    "type": "QuotaReserved",
                    "status": "False",
                    "reason": "Pending",
                    "message": message,
                    "lastTransitionTime": since,
                }
            ]
        },
    }  # fmt: skip


def _build_groups(
    flavor: str, nominal: int, borrowing: int | None, lending: int | None
) -> list[dict[str, Any]]:
    limits = {"borrowingLimit": borrowing, "lendingLimit": lending}
    quota = {
        "name": GPU,
        "nominalQuota": nominal,
        **{name: amount for name, amount in limits.items() if amount is not None},
    }
    return [{"coveredResources": [GPU], "flavors": [{"name": flavor, "resources": [quota]}]}]


def build_waiting(
    held: Held,
    *objects: dict[str, Any],
    waits: Mapping[str, Mapping[str, str]],
    says: tuple[str, ...] = (),
) -> Situation:
    """Return a cluster of eight-GPU nodes, held by pods of so many GPUs, and what waits in it.

    `held`: GPUs by node and pod. Queue `lq` of namespace `ml` is of ClusterQueue `a`.
    """
    lines = []
    until = -(datetime.now(UTC) - END) / HOUR
    for node, pods in held.items():
        names = [pod for pod, gpus in pods.items() for _ in range(gpus)]
        for gpu in range(8):
            uuid = f"GPU-{node}-{gpu}"
            if gpu < len(names):
                pod = names[gpu]
                lines += list_lines(
                    uuid, node, gpu=gpu, values=BUSY, until=until,
                    pod=pod, namespace="ml", container="c",
                )  # fmt: skip
            else:
                lines += list_lines(uuid, node, gpu=gpu, values=FREE, until=until)
    dump = [
        *(build_node(node, 8, labels=LABELS) for node in held),
        *(
            build_pod(pod, node, gpus=gpus, owner=("Job", pod))
            for node, pods in held.items()
            for pod, gpus in pods.items()
        ),
        build_flavor(),
        build_local_queue("lq", "a"),
        *objects,
    ]
    return Situation(kind="Q", dumps=[dump], lines=lines, waits=waits, says=says)

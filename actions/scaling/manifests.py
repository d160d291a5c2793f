"""The manifests of a warm pool: placeholders, their priority, and their scaler.

A placeholder requests GPUs and does nothing. Its priority is below that of every other pod and it
never preempts, so it only ever holds free GPUs. A real pod preempts it with a grace period of zero
seconds; the placeholder is then pending, and the autoscaler adds a node for it. So the pool's own
minimum can be zero.

    by the hour       KEDA's cron triggers, from the head-room by hour of the day
    by a metric       KEDA's Prometheus trigger, or an HPA on an external metric, on any metric
                      of Fallow's that is in GPUs
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import yaml

from fallow.errors import UsageError

Object = dict[str, Any]

GPU = "nvidia.com/gpu"
PRIORITY_CLASS = "fallow-placeholder"
PRIORITY = -10
"""Below 0, the priority of pods without a class; the cluster autoscaler ignores pods below -10."""
POOL_LABEL = "fallow.dev/warm-pool"
HOURS_PER_DAY = 24
_METRIC = re.compile(r"fallow_[a-z0-9_]+")


class WarmPool(msgspec.Struct, frozen=True):
    """GPUs to keep ready."""

    name: str
    namespace: str
    image: str
    """An image that does nothing, from a registry of the site."""
    by_hour: tuple[float, ...]
    """GPUs for each hour of the day, UTC."""
    gpus_per_pod: int = 1
    most_gpus: float | None = None
    node_selector: Mapping[str, str] = {}
    resource: str = GPU
    metric: str = ""
    """One of Fallow's metrics of the GPUs to keep ready; empty = the hours decide."""
    prometheus: str = ""
    """URL of the Prometheus that has it."""

    def __post_init__(self) -> None:
        if self.metric and not (_METRIC.fullmatch(self.metric) and self.prometheus):
            raise UsageError(
                f"a warm pool cannot follow {self.metric!r}",
                hint="legal: metric: fallow_NAME, together with prometheus: URL",
            )

    def replicas(self, hour: int) -> int:
        """Return how many placeholders an hour of the day needs."""
        gpus = self.by_hour[hour % HOURS_PER_DAY]
        if self.most_gpus is not None:
            gpus = min(gpus, self.most_gpus)
        return math.ceil(max(0.0, gpus) / self.gpus_per_pod - 1e-9)

    @property
    def most(self) -> int:
        """Return the placeholders of the busiest hour."""
        return max(self.replicas(hour) for hour in range(HOURS_PER_DAY))


def build_priority_class() -> Object:
    """Return the priority class of placeholders: the lowest, and never preempting."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": PRIORITY_CLASS},
        "value": PRIORITY,
        "preemptionPolicy": "Never",
        "globalDefault": False,
        "description": "GPUs that Fallow keeps ready: any other pod drives these out",
    }


def build_placeholders(pool: WarmPool, replicas: int) -> Object:
    """Return the Deployment of placeholders."""
    labels = {POOL_LABEL: pool.name}
    amounts = {pool.resource: str(pool.gpus_per_pod), "cpu": "10m", "memory": "16Mi"}
    container = {
        "name": "placeholder",
        "image": pool.image,
        "resources": {"requests": amounts, "limits": {pool.resource: amounts[pool.resource]}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    spec = {
        "priorityClassName": PRIORITY_CLASS,
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
        "tolerations": [{"key": pool.resource, "operator": "Exists", "effect": "NoSchedule"}],
        **({"nodeSelector": dict(pool.node_selector)} if pool.node_selector else {}),
    }
    # Placeholders hold free GPUs: they must not be judged idle and stopped.
    keep = {"fallow.dev/protect": "placeholders of a warm pool"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**_build_metadata(pool), "annotations": keep},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "strategy": {"type": "Recreate"},
            "template": {"metadata": {"labels": labels, "annotations": keep}, "spec": spec},
        },
    }


def list_stretches(pool: WarmPool) -> list[tuple[int, int, int]]:
    """Return begin, end (hours of the day, UTC) and placeholders; hours without any are left out.

    A stretch over midnight is one stretch.
    """
    hours = [pool.replicas(hour) for hour in range(HOURS_PER_DAY)]
    edges = [h for h in range(HOURS_PER_DAY) if hours[h] != hours[h - 1]]
    if not edges:
        return [(0, HOURS_PER_DAY, hours[0])] if hours[0] else []
    ends = [*edges[1:], edges[0]]
    return [(a, b, hours[a]) for a, b in zip(edges, ends, strict=True) if hours[a]]


def build_by_schedule(pool: WarmPool) -> Object:
    """Return KEDA's ScaledObject that follows the hours of the day."""
    hour_ranges = list_stretches(pool)
    is_constant = len(hour_ranges) == 1 and hour_ranges[0][:2] == (0, HOURS_PER_DAY)
    triggers = [
        {
            "type": "cron",
            "metadata": {
                "timezone": "Etc/UTC",
                "start": f"0 {begin} * * *",
                "end": "59 23 * * *" if is_constant else f"0 {end % HOURS_PER_DAY} * * *",
                "desiredReplicas": str(replicas),
            },
        }
        for begin, end, replicas in hour_ranges
    ]
    minimum = hour_ranges[0][2] if is_constant else 0
    return _build_scaled_object(pool, minimum, triggers)


def build_scaler(pool: WarmPool) -> Object:
    """Return KEDA's ScaledObject: by the metric if one is set, else by the hour."""
    return build_by_metric(pool) if pool.metric else build_by_schedule(pool)


def build_by_metric(pool: WarmPool) -> Object:
    """Return KEDA's ScaledObject that follows a metric of Fallow's in a Prometheus."""
    metadata = {
        "serverAddress": pool.prometheus,
        "query": f"max({pool.metric})",
        "threshold": str(pool.gpus_per_pod),
        "ignoreNullValues": "false",
    }
    return _build_scaled_object(pool, 0, [{"type": "prometheus", "metadata": metadata}])


def build_hpa(pool: WarmPool) -> Object:
    """Return an HPA on the same metric, where an adapter serves it as an external one.

    An HPA without the alpha gate for zero keeps one placeholder at least.
    """
    metric = {
        "type": "External",
        "external": {
            "metric": {"name": pool.metric},
            "target": {"type": "AverageValue", "averageValue": str(pool.gpus_per_pod)},
        },
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": _build_metadata(pool),
        "spec": {
            "scaleTargetRef": _build_reference(pool),
            "minReplicas": 1,
            "maxReplicas": max(1, pool.most),
            "metrics": [metric],
        },
    }


def to_yaml(objects: Sequence[Object]) -> str:
    """Return manifests as YAML, for people to review and apply."""
    return yaml.safe_dump_all(objects, sort_keys=False)


def _build_scaled_object(pool: WarmPool, minimum: int, triggers: Sequence[Object]) -> Object:
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": _build_metadata(pool),
        "spec": {
            "scaleTargetRef": _build_reference(pool),
            "minReplicaCount": minimum,
            "maxReplicaCount": max(1, pool.most),
            "cooldownPeriod": 300,
            "triggers": list(triggers),
        },
    }


def _build_metadata(pool: WarmPool) -> Object:
    labels = {POOL_LABEL: pool.name, "app.kubernetes.io/managed-by": "fallow"}
    return {"name": pool.name, "namespace": pool.namespace, "labels": labels}


def _build_reference(pool: WarmPool) -> Object:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": pool.name}

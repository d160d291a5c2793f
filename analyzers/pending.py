"""Pods that request GPUs and have no node: their requests, and the nodes they may run on."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from analyzers.rows import PendingRequest, read_pending_requests
from fallow.node_requirements import BlockingTaint, NodeRequirements
from fallow.protocols import Views

WHOLE = 1000


class MeasureTimes(msgspec.Struct, frozen=True):
    """When each cluster is measured, one entry per cluster and time; `nths` count from 1."""

    clusters: list[str]
    nths: list[int]
    times: list[datetime]
    stills: list[bool]
    """True: the cluster has an imported inventory and no telemetry: it is measured once."""

    @classmethod
    def at(cls, clusters: Sequence[str], time: datetime) -> "MeasureTimes":
        """Return the same time for some clusters."""
        count = len(clusters)
        return cls(list(clusters), [1] * count, [time] * count, [False] * count)


class NodeTotals(msgspec.Struct, frozen=True):
    """The total capacity of a node; None = unknown in its inventory."""

    model: str
    gpus: int
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    labels: Mapping[str, str] | None = None
    taints: frozenset[BlockingTaint] = frozenset()


class PendingPod(msgspec.Struct, frozen=True):
    """The request of one pod without a node; pods with the same request are equal."""

    gpus: int
    gpu_milli: int
    """Share of each GPU, 1000 = whole."""
    cpu_milli: int = 0
    memory_bytes: int = 0
    profile: str = ""
    """A MIG profile; empty = GPUs or shares of them."""
    requirements: NodeRequirements = NodeRequirements()

    @property
    def amount(self) -> float:
        """Return the number of GPUs it requests, with shares as fractions."""
        return self.gpus * self.gpu_milli / WHOLE

    def may_run_on(self, host: NodeTotals) -> bool:
        """Return whether it could run on an empty node; unknown values are no obstacle."""
        return (
            self.gpus <= host.gpus
            and (host.cpu_milli is None or self.cpu_milli <= host.cpu_milli)
            and (host.memory_bytes is None or self.memory_bytes <= host.memory_bytes)
            and not self.requirements.explain_refusal(host.labels, host.taints, host.model)
        )


Pending = Mapping[PendingPod, int]
"""The number of pods with the same request."""


def read_pending(views: Views, times: MeasureTimes) -> dict[tuple[str, int], dict[PendingPod, int]]:
    """Return the pods that wait for GPUs by cluster and nth time; no entry = none waits."""
    pending: dict[tuple[str, int], dict[PendingPod, int]] = {}
    for row in read_pending_requests(views, msgspec.structs.asdict(times)):
        of = pending.setdefault((row.cluster, row.nth), {})
        pod = _build_pod(row)
        of[pod] = of.get(pod, 0) + row.pods
    return pending


def sum_gpus(pods: Pending) -> float:
    """Return the total of the GPUs that pods request."""
    return sum(pod.amount * count for pod, count in pods.items())


def keep_runnable(pods: Pending, hosts: Sequence[NodeTotals]) -> dict[PendingPod, int]:
    """Return the pods that may run on at least one of some nodes."""
    return {p: n for p, n in pods.items() if any(p.may_run_on(host) for host in hosts)}


def _build_pod(row: PendingRequest) -> PendingPod:
    return PendingPod(
        row.gpus,
        row.gpu_milli,
        row.cpu_milli,
        row.memory_bytes,
        row.profile or "",
        row.requirements,
    )

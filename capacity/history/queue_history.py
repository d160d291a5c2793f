"""Read the past of a queue as typed records: pods, nodes, quotas and rates of a window."""

from functools import cache

import msgspec

from fallow.protocols import Views
from fallow.rows import R, Row, decode_rows
from fallow.window import Window
from warehouse.steps import PAYING_TEAMS, POD_OWNERS, compose_query


class PastPod(Row, frozen=True):
    """A pod that requested GPUs (`past_pods.sql`); times in seconds since 1970, None = unknown."""

    cluster: str
    uid: str
    namespace: str
    pod: str
    node: str | None
    phase: str
    workload_kind: str
    workload: str
    workload_uid: str | None
    team: str
    queue: str
    """Kueue, Volcano or KAI queue; empty = none."""
    priority_class: str | None
    priority: int | None
    pod_group: str
    gpu_resource: str
    gpus: float
    cpu_milli: int
    memory_bytes: int
    annotations: str | None
    gpu_spec: str | None
    """GPU models that its label of this name asks for."""
    evicted: bool
    """Whether a scheduler reported that it preempted the pod."""
    queued_s: float
    """When its workload began to wait: the creation, or that of its Kueue workload."""
    queued_known: bool
    """Whether its Kueue workload was listed."""
    created_s: float
    placed_s: float | None
    """None = it was never placed."""
    ended_s: float | None
    """None = it had not ended when it was last listed."""


class PastNode(Row, frozen=True):
    """A node with GPUs (`past_nodes.sql`)."""

    cluster: str
    node: str
    gpu_model: str
    gpus: int | None
    cpu_milli: int | None
    memory_bytes: int | None
    sharing: str
    unschedulable: bool
    labels: str | None
    taints: str | None
    first_s: float | None
    last_s: float | None
    unseen: bool


class NodeOutage(Row, frozen=True):
    """When a node, or some of its GPUs, took no pods (`node_outages.sql`)."""

    cluster: str
    node: str
    start_s: float
    end_s: float
    gpus: int | None
    """Of a node that runs; None = the whole node."""


class PastQuota(Row, frozen=True):
    """A quota of GPUs, or a queue that leads to one (`past_quotas.sql`)."""

    cluster: str
    kind: str
    namespace: str
    name: str
    nominal: float | None
    limit: float | None
    lending: float | None
    parent: str
    versions: int


class GpuRate(Row, frozen=True):
    """What a GPU-hour of a model cost (`gpu_rates.sql`)."""

    gpu_model: str
    usd_h: float


class EvictionCount(Row, frozen=True):
    """How many evictions were reported (`eviction_count.sql`)."""

    evictions: int


class QueueHistory(msgspec.Struct, frozen=True):
    """The rows of one window."""

    window: Window
    pods: tuple[PastPod, ...]
    nodes: tuple[PastNode, ...]
    quotas: tuple[PastQuota, ...] = ()
    rates: tuple[GpuRate, ...] = ()
    evictions: int = 0
    outages: tuple[NodeOutage, ...] = ()


def read_history(views: Views, window: Window, cluster: str | None = None) -> QueueHistory:
    """Return the past of a window; `cluster` narrows it to one cluster."""

    def read(name: str, record: type[R], *steps: str) -> tuple[R, ...]:
        query = _compose(name, *steps)
        parameters = {**window.bounds(), "cluster": cluster}
        return tuple(decode_rows(views.query(query, parameters), record))

    return QueueHistory(
        window,
        read("past_pods", PastPod, POD_OWNERS, "inventory/last_lists", *PAYING_TEAMS),
        read("past_nodes", PastNode),
        read("past_quotas", PastQuota),
        read("gpu_rates", GpuRate),
        read("eviction_count", EvictionCount)[0].evictions,
        read("node_outages", NodeOutage),
    )


@cache
def _compose(name: str, *steps: str) -> str:
    return compose_query([*steps, f"capacity:history/{name}"])

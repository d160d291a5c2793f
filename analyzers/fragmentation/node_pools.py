"""Group a cluster's nodes into pools, and find each pool's next pods.

The next pods are the pending ones, or the request mix if none is pending.
"""

from collections import defaultdict

import msgspec

from analyzers.fragmentation.cluster_state import ClusterState
from analyzers.pending import PendingPod
from fallow.fragmentation import PodType


class ModelPool(msgspec.Struct, frozen=True):
    """Nodes of one pool and model; `pool` is empty where nodes name none."""

    pool: str
    model: str
    rows: list[int]

    @property
    def name(self) -> str:
        """Return the name for people."""
        return "/".join(word for word in (self.pool, self.model) if word) or "unnamed"


def group_pools(state: ClusterState) -> list[ModelPool]:
    """Return the cluster's nodes by pool and model, by name."""
    pools: dict[tuple[str, str], list[int]] = defaultdict(list)
    for n, node in enumerate(state.nodes):
        pools[node.pool, node.model].append(n)
    return [ModelPool(*key, rows) for key, rows in sorted(pools.items())]


class NextPods:
    """The pods that a pool's free GPUs are for: if pods are pending, only those."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._mix = state.demand.of_gpus()
        self._may: dict[tuple[str, str, PendingPod], bool] = {}

    def waiting(self, pool: ModelPool, nth: int = -1) -> dict[PendingPod, int]:
        """Return the pods that were pending at the nth time and may run on a node of the pool.

        Pods that request MIG instances wait for GPUs with that layout, not for free GPUs.
        """
        pods = self._state.pending[nth]
        return {pod: n for pod, n in pods.items() if not pod.profile and self._runs(pod, pool)}

    def types(self, pool: ModelPool, nth: int = -1) -> tuple[PodType, ...]:
        """Return the types of the next pods.

        They are the types of the pending pods, or those that usually request GPUs.
        """
        waiting = self.waiting(pool, nth)
        if not waiting:
            return self._mix
        total = sum(waiting.values())
        return tuple(
            PodType(pod.cpu_milli, pod.gpus, pod.gpu_milli, pod.requirements.models, count / total)
            for pod, count in sorted(waiting.items(), key=lambda item: (-item[1], item[0].gpus))
        )

    def _runs(self, pod: PendingPod, pool: ModelPool) -> bool:
        key = pool.pool, pool.model, pod
        if key not in self._may:
            nodes = self._state.nodes
            self._may[key] = any(pod.may_run_on(nodes[n].host()) for n in pool.rows)
        return self._may[key]

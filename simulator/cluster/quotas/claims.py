"""Define the request to a quota and its verdict."""

from collections.abc import Mapping

import msgspec


class QuotaClaim(msgspec.Struct, frozen=True):
    """A workload (Kueue) or a pod or gang (ElasticQuota) that wants quota."""

    uid: str
    queue: str
    """ClusterQueue, or the namespace of the ElasticQuota."""
    uses: Mapping[str, int]
    """By resource name as in the pod (`nvidia.com/gpu`, `cpu` in milli, `memory` in bytes)."""
    priority: int = 0
    created_s: float = 0.0
    flavors: tuple[str, ...] = ()
    """Kueue: flavors its pods can run on, by node affinity; empty = all of the queue's."""


class Admit(msgspec.Struct, frozen=True):
    """Run it; `Quotas.hold(claim, verdict.flavors)` counts it."""

    flavors: Mapping[str, str] = {}
    """Kueue: flavor by resource."""
    borrows: bool = False


class Refuse(msgspec.Struct, frozen=True):
    """Not now, with the reason in the words of the real controller's condition."""

    message: str


class Preempt(msgspec.Struct, frozen=True):
    """Evict these, then request again."""

    victims: tuple[str, ...]
    """Claims' uids, in the order of eviction."""
    flavors: Mapping[str, str] = {}


Verdict = Admit | Refuse | Preempt

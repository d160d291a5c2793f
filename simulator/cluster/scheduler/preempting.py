"""Who must yield so that a pod of higher priority can run."""

from collections.abc import Callable

from simulator.cluster.scheduler.fleet import Fleet
from simulator.cluster.scheduler.requests import Gang, Policy, Running


def victims(
    gang: Gang,
    fleet: Fleet,
    policy: Policy = "first-fit",
    may: Callable[[Running], bool] | None = None,
) -> tuple[Running, ...] | None:
    """Return the pods to evict so that the gang fits: fewest, then lowest, then youngest.

    A gang is evicted whole. None: no eviction would help, or the gang may not preempt. `may`
    says which pods yield at all; by default those of lower priority (a quota asks for others).
    """
    raise NotImplementedError

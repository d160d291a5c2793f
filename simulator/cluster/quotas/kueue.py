"""Kueue: ClusterQueues with nominal quota, grouped in cohorts that lend to each other."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from simulator.cluster.quotas.claims import Claim, Verdict

Within = Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"]
Reclaim = Literal["Never", "LowerPriority", "Any"]
Stop = Literal["None", "Hold", "HoldAndDrain"]


class Quota(msgspec.Struct, frozen=True):
    """Quota of one resource in one flavor; limits None = no limit."""

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


class ClusterQueue(msgspec.Struct, frozen=True):
    """A queue of a cohort; an empty cohort = it stands alone."""

    name: str
    quotas: Mapping[str, Mapping[str, Quota]]
    """Flavor, in the order of trying -> resource -> quota."""
    cohort: str = ""
    strategy: Literal["StrictFIFO", "BestEffortFIFO"] = "BestEffortFIFO"
    within_queue: Within = "Never"
    reclaim: Reclaim = "Never"
    borrow_preempts: bool = False
    """`borrowWithinCohort: LowerPriority`."""
    borrow_max_priority: int | None = None
    """`maxPriorityThreshold`: borrowers preempt only at or below it."""
    stop: Stop = "None"


class Cohorts:
    """All ClusterQueues and what is held of them."""

    def __init__(self, queues: Iterable[ClusterQueue]) -> None:
        self.queues = {queue.name: queue for queue in queues}

    def configure(self, queues: Iterable[ClusterQueue]) -> None:
        """Replace the queues; what is held stays held (lowering a quota evicts nothing)."""
        raise NotImplementedError

    def hold(self, claim: Claim, flavors: Mapping[str, str], since_s: float = 0.0) -> None:
        """Count an admitted claim."""
        raise NotImplementedError

    def release(self, uid: str) -> None:
        """Stop counting a claim: it is finished or evicted."""
        raise NotImplementedError

    def admit(self, claim: Claim) -> Verdict:
        """Judge one claim; holds nothing."""
        raise NotImplementedError

    def cycle(self, pending: Sequence[Claim]) -> list[tuple[Claim, Verdict]]:
        """Judge all pending claims as Kueue's cycles would, one head per queue at a time.

        Admitted claims are held (with since_s 0: call `hold` again to date them).
        """
        raise NotImplementedError

    def used(self, queue: str) -> dict[tuple[str, str], int]:
        """Return what a queue holds by (flavor, resource)."""
        raise NotImplementedError

"""Compute a cohort: the use of each queue's quota, and what it may still take.

A queue keeps its nominal quota less what it lends (`lendingLimit`; no limit = it lends all) to
itself; the rest of all queues is one pool. A queue may take from the pool its own part and, up to
`borrowingLimit`, others'. So of one resource in one flavor
    unlendable = max(0, nominal - lending limit), 0 without a limit
    pool       = sum over queues of nominal - unlendable, less max(0, used - unlendable)
    available  = max(0, unlendable - used)
                 + min(pool, nominal + borrowing limit - max(used, unlendable))
Source: Kueue's documentation of cohorts, `borrowingLimit` and `lendingLimit`. Cohorts of cohorts
(`Cohort.spec.parentName`) are not modelled.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

from simulator.cluster.quotas.claims import QuotaClaim

Within = Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"]
Reclaim = Literal["Never", "LowerPriority", "Any"]
Stop = Literal["None", "Hold", "HoldAndDrain"]
Part = tuple[str, str]
"""A flavor and a resource."""


class Quota(msgspec.Struct, frozen=True):
    """Quota of one resource in one flavor; limits None = no limit."""

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None

    @property
    def unlendable(self) -> int:
        """The part of the quota that no other queue may borrow."""
        return 0 if self.lending_limit is None else max(0, self.nominal - self.lending_limit)


class ClusterQueue(msgspec.Struct, frozen=True):
    """A queue of a cohort; an empty cohort = it has none."""

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

    def quota(self, part: Part) -> Quota:
        """Return the quota of a part; none = 0."""
        return self.quotas.get(part[0], {}).get(part[1], Quota(0))


class AdmittedClaim(msgspec.Struct, frozen=True):
    """An admitted claim."""

    claim: QuotaClaim
    flavors: Mapping[str, str]
    since_s: float
    leaving: bool = False
    """Whether it is being evicted; it still counts."""

    def parts(self) -> dict[Part, int]:
        """Return what it uses by flavor and resource."""
        return sum_parts(self.claim, self.flavors)


class Ledger:
    """The admitted claims of every queue; trials run on a copy."""

    def __init__(
        self, queues: Mapping[str, ClusterQueue], admitted: Iterable[AdmittedClaim] = ()
    ) -> None:
        self.queues = queues
        self.admitted: dict[str, AdmittedClaim] = {}
        self._by_queue: dict[str, dict[str, AdmittedClaim]] = {}
        self._mates: dict[str, list[ClusterQueue]] = {}
        for queue in queues.values():
            self._mates.setdefault(queue.cohort, []).append(queue)
        self._used: dict[str, Counter[Part]] = {}
        for claim in admitted:
            self.add(claim)

    def copy(self) -> "Ledger":
        """Return a separate copy."""
        twin = Ledger(self.queues)
        twin.admitted = dict(self.admitted)
        twin._by_queue = {queue: dict(claims) for queue, claims in self._by_queue.items()}
        twin._used = {queue: used.copy() for queue, used in self._used.items()}
        return twin

    def add(self, admitted: AdmittedClaim) -> None:
        """Count a claim."""
        self.drop(admitted.claim.uid)
        self.admitted[admitted.claim.uid] = admitted
        self._by_queue.setdefault(admitted.claim.queue, {})[admitted.claim.uid] = admitted
        self._used.setdefault(admitted.claim.queue, Counter()).update(admitted.parts())

    def drop(self, uid: str) -> AdmittedClaim | None:
        """Stop counting a claim."""
        dropped = self.admitted.pop(uid, None)
        if dropped is not None:
            del self._by_queue[dropped.claim.queue][uid]
            self._used[dropped.claim.queue].subtract(dropped.parts())
        return dropped

    def used(self, queue: str, part: Part) -> int:
        """Return what a queue holds of a part."""
        used = self._used.get(queue)
        return 0 if used is None else used[part]

    def all_used(self, queue: str) -> dict[Part, int]:
        """Return all that a queue holds."""
        return {part: n for part, n in self._used.get(queue, Counter()).items() if n}

    def mates(self, queue: ClusterQueue) -> list[ClusterQueue]:
        """Return the queues that share quota with one, itself among them."""
        return self._mates[queue.cohort] if queue.cohort else [queue]

    def held_by(self, queue: str) -> list[AdmittedClaim]:
        """Return what one queue holds."""
        return list(self._by_queue.get(queue, {}).values())

    def borrowing(self, queue: str, part: Part) -> bool:
        """Return whether a queue holds more than its nominal quota."""
        return self.used(queue, part) > self.queues[queue].quota(part).nominal

    def available(self, queue: ClusterQueue, part: Part) -> int:
        """Return what a queue may take now; negative when quotas were lowered below use."""
        return self._open(queue, part, self.used)

    def greatest(self, queue: ClusterQueue, part: Part) -> int:
        """Return what a queue could hold if no other queue held anything."""
        return self._open(queue, part, lambda _queue, _part: 0)

    def _open(self, queue: ClusterQueue, part: Part, used: Callable[[str, Part], int]) -> int:
        quota, own = queue.quota(part), used(queue.name, part)
        if not queue.cohort:
            return quota.nominal - own
        pool = 0
        for other in self.mates(queue):
            theirs = other.quota(part)
            pool += theirs.nominal - theirs.unlendable
            pool -= max(0, used(other.name, part) - theirs.unlendable)
        if quota.borrowing_limit is not None:
            pool = min(pool, quota.nominal + quota.borrowing_limit - max(own, quota.unlendable))
        return max(0, quota.unlendable - own) + pool


def sum_parts(claim: QuotaClaim, flavors: Mapping[str, str]) -> dict[Part, int]:
    """Return what a claim uses by flavor and resource."""
    return {
        (flavors[resource], resource): amount
        for resource, amount in claim.uses.items()
        if resource in flavors and amount
    }

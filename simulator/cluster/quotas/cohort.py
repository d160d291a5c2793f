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
from collections.abc import Iterable, Mapping
from copy import copy
from functools import cached_property
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


class AdmittedClaim(msgspec.Struct, frozen=True, dict=True):
    """An admitted claim."""

    claim: QuotaClaim
    flavors: Mapping[str, str]
    since_s: float
    leaving: bool = False
    """Whether it is being evicted; it still counts."""

    @cached_property
    def parts(self) -> dict[Part, int]:
        """What it uses by flavor and resource."""
        return sum_parts(self.claim, self.flavors)


class QuotaUse:
    """What each queue holds, and what its cohort's queues hold of the pool; sums that are kept."""

    def __init__(self, queues: Mapping[str, ClusterQueue]) -> None:
        self._queues = queues
        self._used: dict[str, Counter[Part]] = {}
        self._pool_use: dict[str, Counter[Part]] = {}
        """By cohort: what its queues hold beyond what they do not lend."""
        self._lent: dict[tuple[str, Part], int] = {}
        """By cohort and part: what its queues put into the pool."""
        for queue in queues.values():
            for flavor, quotas in queue.quotas.items():
                for resource, quota in quotas.items():
                    key = queue.cohort, (flavor, resource)
                    self._lent[key] = self._lent.get(key, 0) + quota.nominal - quota.unlendable

    def copy(self) -> "QuotaUse":
        """Return a separate copy."""
        twin = copy(self)
        twin._used = {queue: used.copy() for queue, used in self._used.items()}  # noqa: SLF001
        twin._pool_use = {name: used.copy() for name, used in self._pool_use.items()}  # noqa: SLF001
        return twin

    def add(self, admitted: AdmittedClaim) -> None:
        """Count a claim."""
        for part, amount in admitted.parts.items():
            self._change(admitted.claim.queue, part, amount)

    def drop(self, admitted: AdmittedClaim) -> None:
        """Stop counting a claim that was counted."""
        for part, amount in admitted.parts.items():
            self._change(admitted.claim.queue, part, -amount)

    def _change(self, name: str, part: Part, amount: int) -> None:
        used = self._used.setdefault(name, Counter())
        before = used[part]
        used[part] = before + amount
        queue = self._queues.get(name)
        if queue is not None and queue.cohort:
            unlendable = queue.quota(part).unlendable
            pool_use = self._pool_use.setdefault(queue.cohort, Counter())
            pool_use[part] += max(0, before + amount - unlendable) - max(0, before - unlendable)

    def used(self, queue: str, part: Part) -> int:
        """Return what a queue holds of a part."""
        used = self._used.get(queue)
        return 0 if used is None else used[part]

    def all_used(self, queue: str) -> dict[Part, int]:
        """Return all that a queue holds."""
        return {part: n for part, n in self._used.get(queue, Counter()).items() if n}

    def borrowing(self, queue: str, part: Part) -> bool:
        """Return whether a queue holds more than its nominal quota."""
        return self.used(queue, part) > self._queues[queue].quota(part).nominal

    def available(self, queue: ClusterQueue, part: Part) -> int:
        """Return what a queue may take now; negative when quotas were lowered below use."""
        pool_use = self._pool_use.get(queue.cohort)
        pool = 0 if pool_use is None else pool_use[part]
        return self._open(queue, part, self.used(queue.name, part), pool)

    def greatest(self, queue: ClusterQueue, part: Part) -> int:
        """Return what a queue could hold if no other queue held anything."""
        return self._open(queue, part, 0, 0)

    def _open(self, queue: ClusterQueue, part: Part, own: int, pool_use: int) -> int:
        quota = queue.quota(part)
        if not queue.cohort:
            return quota.nominal - own
        unlendable, pool = quota.unlendable, self._lent.get((queue.cohort, part), 0) - pool_use
        if quota.borrowing_limit is not None:
            pool = min(pool, quota.nominal + quota.borrowing_limit - max(own, unlendable))
        return max(0, unlendable - own) + pool


class Ledger:
    """The admitted claims of every queue; trials run on a copy."""

    def __init__(
        self, queues: Mapping[str, ClusterQueue], admitted: Iterable[AdmittedClaim] = ()
    ) -> None:
        self.queues = queues
        self.use = QuotaUse(queues)
        self.admitted: dict[str, AdmittedClaim] = {}
        self._by_queue: dict[str, dict[str, AdmittedClaim]] = {}
        self._mates: dict[str, list[ClusterQueue]] = {}
        for queue in queues.values():
            self._mates.setdefault(queue.cohort, []).append(queue)
        for claim in admitted:
            self.add(claim)

    def copy(self) -> "Ledger":
        """Return a separate copy."""
        return Ledger(self.queues, self.admitted.values())

    def add(self, admitted: AdmittedClaim) -> None:
        """Count a claim."""
        self.drop(admitted.claim.uid)
        self.admitted[admitted.claim.uid] = admitted
        self._by_queue.setdefault(admitted.claim.queue, {})[admitted.claim.uid] = admitted
        self.use.add(admitted)

    def drop(self, uid: str) -> AdmittedClaim | None:
        """Stop counting a claim."""
        dropped = self.admitted.pop(uid, None)
        if dropped is not None:
            del self._by_queue[dropped.claim.queue][uid]
            self.use.drop(dropped)
        return dropped

    def mates(self, queue: ClusterQueue) -> list[ClusterQueue]:
        """Return the queues that share quota with one, itself among them."""
        return self._mates[queue.cohort] if queue.cohort else [queue]

    def held_by(self, queue: str) -> list[AdmittedClaim]:
        """Return what one queue holds."""
        return list(self._by_queue.get(queue, {}).values())


def sum_parts(claim: QuotaClaim, flavors: Mapping[str, str]) -> dict[Part, int]:
    """Return what a claim uses by flavor and resource."""
    return {
        (flavors[resource], resource): amount
        for resource, amount in claim.uses.items()
        if resource in flavors and amount
    }

"""Whom Kueue evicts so that a claim fits: the classical preemption of a cohort.

Candidates of other queues come before our own, the lowest priority first, then the latest
admitted. They are taken one by one until the claim fits; those not needed after all are put back.
Source: Kueue's documentation of preemption.
"""

from collections.abc import Iterable, Mapping

from simulator.cluster.quotas.claims import Claim
from simulator.cluster.quotas.cohort import ClusterQueue, Held, Ledger, Part, parts


def targets(claim: Claim, flavors: Mapping[str, str], ledger: Ledger) -> list[Held]:
    """Return the claims to evict, in order; empty when no allowed eviction would help."""
    queue, wanted = ledger.queues[claim.queue], parts(claim, flavors)
    short = {part for part, n in wanted.items() if n > ledger.available(queue, part)}
    own = _of_own(claim, queue, ledger, short)
    others = _of_others(queue, ledger, short)
    within = all(
        ledger.used(queue.name, part) + wanted[part] <= queue.quota(part).nominal for part in short
    )
    if within:
        reclaimed = [held for held in others if _reclaims(claim, queue, held)]
        found = _minimal(queue, wanted, [*reclaimed, *own], ledger, borrow=False)
        if found:
            return found
    if queue.borrow_preempts:
        lower = [held for held in others if _outbids(claim, queue, held)]
        found = _minimal(queue, wanted, [*lower, *own], ledger, borrow=True)
        if found:
            return found
    return _minimal(queue, wanted, own, ledger, borrow=True)


def _reclaims(claim: Claim, queue: ClusterQueue, held: Held) -> bool:
    if queue.reclaim == "LowerPriority":
        return held.claim.priority < claim.priority
    return queue.reclaim == "Any"


def _outbids(claim: Claim, queue: ClusterQueue, held: Held) -> bool:
    ceiling = queue.borrow_max_priority
    low = ceiling is None or held.claim.priority <= ceiling
    return low and held.claim.priority < claim.priority


def _of_own(claim: Claim, queue: ClusterQueue, ledger: Ledger, short: set[Part]) -> list[Held]:
    def yields(held: Held) -> bool:
        if held.claim.priority < claim.priority:
            return True
        newer = (held.claim.created_s, held.claim.uid) > (claim.created_s, claim.uid)
        return (
            queue.within_queue == "LowerOrNewerEqualPriority"
            and held.claim.priority == claim.priority
            and newer
        )

    if queue.within_queue == "Never":
        return []
    mine = ledger.held_by(queue.name)
    return _ordered(held for held in mine if yields(held) and short & held.parts().keys())


def _of_others(queue: ClusterQueue, ledger: Ledger, short: set[Part]) -> list[Held]:
    if queue.reclaim == "Never" and not queue.borrow_preempts:
        return []
    theirs = (
        held
        for mate in ledger.mates(queue)
        if mate is not queue and any(ledger.borrowing(mate.name, part) for part in short)
        for held in ledger.held_by(mate.name)
    )
    return _ordered(held for held in theirs if _borrows(ledger, held, short))


def _borrows(ledger: Ledger, held: Held, short: set[Part]) -> bool:
    return any(ledger.borrowing(held.claim.queue, part) for part in short & held.parts().keys())


def _ordered(held: Iterable[Held]) -> list[Held]:
    return sorted(held, key=lambda h: (not h.leaving, h.claim.priority, -h.since_s, h.claim.uid))


def _minimal(
    queue: ClusterQueue,
    wanted: Mapping[Part, int],
    candidates: list[Held],
    ledger: Ledger,
    *,
    borrow: bool,
) -> list[Held]:
    if not candidates:
        return []
    short = {part for part, n in wanted.items() if n > ledger.available(queue, part)}
    trial = ledger.copy()
    gone: list[Held] = []
    for held in sorted(candidates, key=lambda h: not h.leaving):
        if fits(queue, wanted, trial, borrow=borrow):
            break
        # A queue that lent back enough meanwhile is left in peace.
        if held.claim.queue == queue.name or _borrows(trial, held, short):
            trial.drop(held.claim.uid)
            gone.append(held)
    if not fits(queue, wanted, trial, borrow=borrow):
        return []
    needed = []
    for held in reversed(gone):
        trial.add(held)
        if not fits(queue, wanted, trial, borrow=borrow):
            trial.drop(held.claim.uid)
            needed.append(held)
    return needed[::-1]


def fits(
    queue: ClusterQueue, wanted: Mapping[Part, int], ledger: Ledger, *, borrow: bool = True
) -> bool:
    """Say whether a queue may take all that is wanted, within its nominal quota or beyond."""
    return all(
        n <= ledger.available(queue, part)
        and (borrow or ledger.used(queue.name, part) + n <= queue.quota(part).nominal)
        for part, n in wanted.items()
    )

"""Choose what Kueue evicts so that a claim fits: the classical preemption of a cohort.

Candidates of other queues come before the claim's own queue, the lowest priority first, then the
latest admitted. They are taken one by one until the claim fits; those that are not needed after
all are put back. Source: Kueue's documentation of preemption.
"""

from collections.abc import Iterable, Mapping

from simulator.cluster.quotas.claims import QuotaClaim
from simulator.cluster.quotas.cohort import (
    AdmittedClaim,
    ClusterQueue,
    Ledger,
    Part,
    QuotaUse,
    sum_parts,
)


def find_targets(
    claim: QuotaClaim, flavors: Mapping[str, str], ledger: Ledger
) -> list[AdmittedClaim]:
    """Return the claims to evict, in order; empty when no allowed eviction would help."""
    queue, wanted = ledger.queues[claim.queue], sum_parts(claim, flavors)
    use = ledger.use
    short = {part for part, n in wanted.items() if n > use.available(queue, part)}
    own_claims = _list_own(claim, queue, ledger, short)
    within = all(use.used(queue.name, part) < queue.quota(part).nominal for part in short)
    borrowers = _list_others(queue, ledger, short) if within or queue.borrow_preempts else []
    reclaimed = [admitted for admitted in borrowers if _is_reclaiming(claim, queue, admitted)]
    if within and reclaimed:
        victims = _find_minimal(queue, wanted, [*reclaimed, *own_claims], ledger, borrow=False)
        if victims:
            return victims
    if queue.borrow_preempts:
        lower = [admitted for admitted in borrowers if _is_outbid(claim, queue, admitted)]
        victims = _find_minimal(queue, wanted, [*lower, *own_claims], ledger, borrow=True)
        if victims:
            return victims
    return _find_minimal(queue, wanted, own_claims, ledger, borrow=True)


def _is_reclaiming(claim: QuotaClaim, queue: ClusterQueue, admitted: AdmittedClaim) -> bool:
    if queue.reclaim == "LowerPriority":
        return admitted.claim.priority < claim.priority
    return queue.reclaim == "Any"


def _is_outbid(claim: QuotaClaim, queue: ClusterQueue, admitted: AdmittedClaim) -> bool:
    ceiling = queue.borrow_max_priority
    low = ceiling is None or admitted.claim.priority <= ceiling
    return low and admitted.claim.priority < claim.priority


def _list_own(
    claim: QuotaClaim, queue: ClusterQueue, ledger: Ledger, short: set[Part]
) -> list[AdmittedClaim]:
    def yields(admitted: AdmittedClaim) -> bool:
        if admitted.claim.priority < claim.priority:
            return True
        newer = (admitted.claim.created_s, admitted.claim.uid) > (claim.created_s, claim.uid)
        return (
            queue.within_queue == "LowerOrNewerEqualPriority"
            and admitted.claim.priority == claim.priority
            and newer
        )

    if queue.within_queue == "Never":
        return []
    own = ledger.held_by(queue.name)
    return _sort_claims(
        admitted for admitted in own if yields(admitted) and short & admitted.parts.keys()
    )


def _list_others(queue: ClusterQueue, ledger: Ledger, short: set[Part]) -> list[AdmittedClaim]:
    if queue.reclaim == "Never" and not queue.borrow_preempts:
        return []
    claims: list[AdmittedClaim] = []
    for other in ledger.mates(queue):
        borrowed = {part for part in short if ledger.use.borrowing(other.name, part)}
        if other is not queue and borrowed:
            claims += (a for a in ledger.held_by(other.name) if borrowed & a.parts.keys())
    return _sort_claims(claims)


def _is_borrowing(use: QuotaUse, admitted: AdmittedClaim, short: set[Part]) -> bool:
    return any(use.borrowing(admitted.claim.queue, part) for part in short & admitted.parts.keys())


def _sort_claims(admitted: Iterable[AdmittedClaim]) -> list[AdmittedClaim]:
    return sorted(
        admitted, key=lambda a: (not a.leaving, a.claim.priority, -a.since_s, a.claim.uid)
    )


def _find_minimal(
    queue: ClusterQueue,
    wanted: Mapping[Part, int],
    candidates: list[AdmittedClaim],
    ledger: Ledger,
    *,
    borrow: bool,
) -> list[AdmittedClaim]:
    if not candidates:
        return []
    trial = ledger.use.copy()
    short = {part for part, n in wanted.items() if n > trial.available(queue, part)}
    evicted: list[AdmittedClaim] = []
    for admitted in sorted(candidates, key=lambda a: not a.leaving):
        if is_fitting(queue, wanted, trial, borrow=borrow):
            break
        # A queue that has returned enough meanwhile is left unchanged.
        if admitted.claim.queue == queue.name or _is_borrowing(trial, admitted, short):
            trial.drop(admitted)
            evicted.append(admitted)
    if not is_fitting(queue, wanted, trial, borrow=borrow):
        return []
    needed = []
    for admitted in reversed(evicted):
        trial.add(admitted)
        if not is_fitting(queue, wanted, trial, borrow=borrow):
            trial.drop(admitted)
            needed.append(admitted)
    return needed[::-1]


def is_fitting(
    queue: ClusterQueue, wanted: Mapping[Part, int], use: QuotaUse, *, borrow: bool = True
) -> bool:
    """Return whether a queue may take the whole claim, within its nominal quota or beyond."""
    return all(
        n <= use.available(queue, part)
        and (borrow or use.used(queue.name, part) + n <= queue.quota(part).nominal)
        for part, n in wanted.items()
    )

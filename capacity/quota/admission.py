"""Admit claims to queues as Kueue does: by the room of their quota, or by evicting others.

Candidates for eviction of other queues come before the claim's own queue. First those over which
the claim has an advantage: they use quota of a part of the tree in which the claim would fit. Then
the rest, which yield only while the claim's queue does not borrow. Each group from the lowest
priority and the latest admission on. They are taken one by one until the claim fits; those that are
not needed after all stay.

Source: Kueue's classical preemption (pkg/scheduler/preemption) with `reclaimWithinCohort: Any` and
`withinClusterQueue: LowerPriority`; `borrowWithinCohort` and fair sharing are not collected.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from capacity.quota.tree import QuotaNode, QuotaTree


class QueueClaim(msgspec.Struct, frozen=True):
    """A workload that wants quota of a queue."""

    name: str
    queue: str
    amount: int
    priority: int = 0


class AdmissionVerdict(msgspec.Struct, frozen=True):
    """Whether a claim is let in, perhaps after the eviction of others."""

    admits: bool
    borrows: bool = False
    victims: tuple[str, ...] = ()
    """Claims to evict before, by name."""


REFUSED = AdmissionVerdict(admits=False)


class _Candidate(msgspec.Struct, frozen=True):
    """A claim that may be evicted, and the lowest cohort that it shares with the new claim."""

    claim: QueueClaim
    cohort: str = ""
    yields_to_borrower: bool = True


class QuotaAdmission:
    """The queues of a tree, and the claims that they hold."""

    def __init__(self, nodes: Mapping[str, QuotaNode], *, preempts: bool = True) -> None:
        self._tree, self._preempts = QuotaTree(nodes), preempts
        self._claims: dict[str, dict[str, tuple[QueueClaim, float]]] = {name: {} for name in nodes}
        """By queue and name: a claim and when it was admitted."""
        self._queue_of: dict[str, str] = {}

    def hold(self, claim: QueueClaim, since_s: float = 0.0) -> None:
        """Count an admitted claim."""
        self._tree.use(claim.queue, claim.amount)
        self._claims[claim.queue][claim.name] = claim, since_s
        self._queue_of[claim.name] = claim.queue

    def release(self, name: str) -> None:
        """Stop counting a claim, if it is held."""
        if (queue := self._queue_of.pop(name, None)) is not None:
            claim, _ = self._claims[queue].pop(name)
            self._tree.use(queue, -claim.amount)

    def admit(self, claim: QueueClaim) -> AdmissionVerdict:
        """Judge a claim; it is not held by this."""
        if _is_fitting(claim, self._tree, borrow=True):
            borrows = not _is_fitting(claim, self._tree, borrow=False)
            return AdmissionVerdict(admits=True, borrows=borrows)
        victims = self._choose_victims(claim) if self._preempts else ()
        return AdmissionVerdict(admits=True, victims=victims) if victims else REFUSED

    def _choose_victims(self, claim: QueueClaim) -> tuple[str, ...]:
        others = list(self._list_others(claim))
        own = [_Candidate(c) for c in self._sort(claim.queue) if c.priority < claim.priority]
        tree = self._tree
        if not others or tree.used[claim.queue] >= tree.nodes[claim.queue].nominal:
            attempts = [True]
        else:
            attempts = [any(other.yields_to_borrower for other in others)]
            attempts.append(not attempts[0])
        for borrow in attempts:
            if victims := self._take(claim, [*others, *own], borrow=borrow):
                return victims
        return ()

    def _list_others(self, claim: QueueClaim) -> Iterator[_Candidate]:
        """Yield the claims of other queues that use more than their quota, in the order of yield.

        The claim has the advantage over those below a cohort in a part of which it would fit.
        """
        tree, inner, left = self._tree, claim.queue, claim.amount
        groups: dict[bool, list[tuple[str, str]]] = {True: [], False: []}
        has_advantage = False
        for cohort in tree.paths[claim.queue][1:]:
            has_advantage |= bool(tree.used[inner] + left <= tree.subtree[inner])
            left = max(0, left - max(0, int(tree.unlent[inner] - tree.used[inner])))
            groups[has_advantage] += ((q, cohort) for q in tree.list_exceeding(cohort, inner))
            inner = cohort
        for has_advantage, queues in groups.items():
            cohorts = dict(queues)
            for other in self._sort(*cohorts):
                yield _Candidate(other, cohorts[other.queue], has_advantage)

    def _sort(self, *queues: str) -> Iterable[QueueClaim]:
        """Return what queues hold: the lowest priority first, then what was admitted last."""
        entries = [entry for name in queues for entry in self._claims.get(name, {}).values()]
        entries.sort(key=lambda entry: (entry[0].priority, -entry[1], entry[0].name))
        return (claim for claim, _ in entries)

    def _take(
        self, claim: QueueClaim, candidates: Iterable[_Candidate], *, borrow: bool
    ) -> tuple[str, ...]:
        """Return the candidates that have to leave so that the claim fits; empty = it does not."""
        trial, evicted = self._tree.copy(), list[QueueClaim]()
        for candidate in candidates:
            other = candidate.claim
            if other.queue != claim.queue and (
                (borrow and not candidate.yields_to_borrower) or not _is_owing(candidate, trial)
            ):
                continue
            trial.use(other.queue, -other.amount)
            evicted.append(other)
            if _is_fitting(claim, trial, borrow=borrow):
                break
        else:
            return ()
        needed = [evicted[-1]]
        for other in reversed(evicted[:-1]):
            trial.use(other.queue, other.amount)
            if not _is_fitting(claim, trial, borrow=borrow):
                trial.use(other.queue, -other.amount)
                needed.append(other)
        return tuple(other.name for other in reversed(needed))


def _is_fitting(claim: QueueClaim, tree: QuotaTree, *, borrow: bool) -> bool:
    """Return whether a queue may take a claim, within its nominal quota or beyond."""
    within = tree.used[claim.queue] + claim.amount <= tree.nodes[claim.queue].nominal
    return bool((borrow or within) and claim.amount <= tree.room(claim.queue))


def _is_owing(candidate: _Candidate, tree: QuotaTree) -> bool:
    """Return whether a candidate's queue, and all below the shared cohort, still exceed quota."""
    path = tree.paths[candidate.claim.queue]
    return all(tree.exceeds(node) for node in path[: path.index(candidate.cohort)])

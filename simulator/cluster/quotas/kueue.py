"""Simulate Kueue: ClusterQueues with nominal quota, in cohorts that lend to each other."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from simulator.cluster.quotas.claims import Admit, Preempt, QuotaClaim, Refuse, Verdict
from simulator.cluster.quotas.cohort import AdmittedClaim, ClusterQueue, Ledger, Part, sum_parts
from simulator.cluster.quotas.reclaim import find_targets, is_fitting


class Cohorts:
    """All ClusterQueues and what is held of them."""

    def __init__(self, queues: Iterable[ClusterQueue]) -> None:
        self.queues = {queue.name: queue for queue in queues}
        self._ledger = Ledger(self.queues)

    def configure(self, queues: Iterable[ClusterQueue]) -> None:
        """Replace the queues; holdings stay (a lower quota evicts nothing)."""
        self.queues = {queue.name: queue for queue in queues}
        self._ledger = Ledger(self.queues, self._ledger.admitted.values())

    def hold(self, claim: QuotaClaim, flavors: Mapping[str, str], since_s: float = 0.0) -> None:
        """Count an admitted claim; again to date it anew."""
        self._ledger.add(AdmittedClaim(claim, flavors, since_s))

    def leaving(self, uid: str) -> None:
        """Record that a claim is being evicted: it counts until `release`, and is chosen first."""
        if uid in self._ledger.admitted:
            self._ledger.add(msgspec.structs.replace(self._ledger.admitted[uid], leaving=True))

    def release(self, uid: str) -> None:
        """Stop counting a claim: it is finished or evicted."""
        self._ledger.drop(uid)

    def admitted(self) -> Mapping[str, AdmittedClaim]:
        """Return the admitted claims by uid."""
        return self._ledger.admitted

    def to_drain(self) -> tuple[str, ...]:
        """Return the claims of queues whose `stopPolicy` is HoldAndDrain."""
        admitted = self._ledger.admitted.items()
        return tuple(
            uid
            for uid, admitted_claim in admitted
            if admitted_claim.claim.queue in self.queues
            and self.queues[admitted_claim.claim.queue].stop == "HoldAndDrain"
        )

    def used(self, queue: str) -> dict[Part, int]:
        """Return what a queue holds by (flavor, resource)."""
        return self._ledger.use.all_used(queue)

    def admit(self, claim: QuotaClaim) -> Verdict:
        """Judge one claim; holds nothing."""
        return _judge(claim, self._ledger)

    def cycle(self, pending: Sequence[QuotaClaim]) -> list[tuple[QuotaClaim, Verdict]]:
        """Judge all pending claims as Kueue's cycles would, one head per queue at a time.

        Of the heads, those that need not borrow go first, then by priority and age. Admitted
        claims are held (since 0: call `hold` again to date them). Once a head must preempt, its
        queue waits, and later claims take nothing that it is waiting for. A refused head blocks
        its queue only under StrictFIFO.
        """
        waiting = _group_by_queue(pending)
        later = self._ledger.copy()
        verdicts: list[tuple[QuotaClaim, Verdict]] = []
        heads: dict[str, tuple[QuotaClaim, Verdict]] = {}
        while waiting:
            for name, line in waiting.items():
                if name not in heads:
                    heads[name] = line[0], _judge(line[0], later)
            claim, verdict = min(heads.values(), key=_turn)
            if isinstance(verdict, Admit) and not _is_fitting(claim, verdict, self._ledger):
                verdict = Refuse("quota is free only once preempted workloads have left")
            verdicts.append((claim, verdict))
            if isinstance(verdict, Admit):
                self.hold(claim, verdict.flavors)
                later.add(AdmittedClaim(claim, verdict.flavors, 0.0))
            elif isinstance(verdict, Preempt):
                for uid in verdict.victims:
                    later.drop(uid)
                later.add(AdmittedClaim(claim, verdict.flavors, 0.0))
            heads = self._unmoved(heads, claim, verdict)
            waiting = _compute_after(waiting, claim, verdict, self.queues)
        return verdicts

    def _unmoved(
        self, heads: Mapping[str, tuple[QuotaClaim, Verdict]], claim: QuotaClaim, verdict: Verdict
    ) -> dict[str, tuple[QuotaClaim, Verdict]]:
        """Return the other heads whose verdicts still apply: a refusal changes no quota."""
        queue = self.queues.get(claim.queue)
        moved = {claim.queue}
        if queue is not None and not isinstance(verdict, Refuse):
            moved |= {mate.name for mate in self._ledger.mates(queue)}
        return {name: head for name, head in heads.items() if name not in moved}


def _group_by_queue(pending: Iterable[QuotaClaim]) -> dict[str, list[QuotaClaim]]:
    lines: dict[str, list[QuotaClaim]] = {}
    for claim in sorted(pending, key=lambda c: (-c.priority, c.created_s, c.uid)):
        lines.setdefault(claim.queue, []).append(claim)
    return lines


def _compute_after(
    waiting: Mapping[str, list[QuotaClaim]],
    claim: QuotaClaim,
    verdict: Verdict,
    queues: Mapping[str, ClusterQueue],
) -> dict[str, list[QuotaClaim]]:
    queue = queues.get(claim.queue)
    strict = queue is not None and queue.strategy == "StrictFIFO"
    blocked = isinstance(verdict, Preempt) or (isinstance(verdict, Refuse) and strict)
    rest = {
        name: line[1:] if name == claim.queue else line
        for name, line in waiting.items()
        if not (blocked and name == claim.queue)
    }
    return {name: line for name, line in rest.items() if line}


def _turn(head: tuple[QuotaClaim, Verdict]) -> tuple[bool, bool, int, float, str]:
    claim, verdict = head
    borrows = isinstance(verdict, Admit) and verdict.borrows
    refused = isinstance(verdict, Refuse)
    return (refused, borrows, -claim.priority, claim.created_s, claim.uid)


def _is_fitting(claim: QuotaClaim, verdict: Admit, ledger: Ledger) -> bool:
    return is_fitting(ledger.queues[claim.queue], sum_parts(claim, verdict.flavors), ledger.use)


def _judge(claim: QuotaClaim, ledger: Ledger) -> Verdict:
    queue = ledger.queues.get(claim.queue)
    if queue is None:
        return Refuse(f"ClusterQueue {claim.queue} doesn't exist")
    if queue.stop != "None":
        return Refuse(f"ClusterQueue {claim.queue} is inactive: stopped")
    flavors: dict[str, str] = {}
    victims: list[str] = []
    trial = ledger
    for group in _list_groups(claim, queue):
        verdict = _try_flavor(claim, group, queue, trial)
        if isinstance(verdict, Refuse):
            return verdict
        flavors.update(verdict.flavors)
        if isinstance(verdict, Preempt):
            victims += verdict.victims
            trial = trial.copy()
            for uid in verdict.victims:
                trial.drop(uid)
    if victims:
        return Preempt(tuple(victims), flavors)
    borrows = any(
        trial.use.used(queue.name, part) + n > queue.quota(part).nominal
        for part, n in sum_parts(claim, flavors).items()
    )
    return Admit(flavors, borrows)


def _list_groups(claim: QuotaClaim, queue: ClusterQueue) -> list[tuple[tuple[str, ...], list[str]]]:
    """Return resources that share their flavors, and those flavors in order."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for resource in sorted(name for name, amount in claim.uses.items() if amount):
        flavors_offered = tuple(
            flavor for flavor, quotas in queue.quotas.items() if resource in quotas
        )
        groups.setdefault(flavors_offered, []).append(resource)
    return list(groups.items())


def _try_flavor(
    claim: QuotaClaim, group: tuple[tuple[str, ...], list[str]], queue: ClusterQueue, ledger: Ledger
) -> Verdict:
    """Return the first flavor with room, borrowing or not; else the first that preemption frees."""
    flavors_offered, resources = group
    flavors_offered = tuple(f for f in flavors_offered if not claim.flavors or f in claim.flavors)
    why = f"resource {resources[0]} unavailable in ClusterQueue"
    preempt: Preempt | None = None
    for flavor in flavors_offered:
        flavors = dict.fromkeys(resources, flavor)
        wanted = sum_parts(claim, flavors)
        if is_fitting(queue, wanted, ledger.use):
            return Admit(flavors)
        part = next(p for p, n in wanted.items() if n > ledger.use.available(queue, p))
        more = wanted[part] - max(0, ledger.use.available(queue, part))
        maximum = ledger.use.greatest(queue, part)
        if any(n > ledger.use.greatest(queue, p) for p, n in wanted.items()):
            why = (
                f"insufficient quota for {part[1]} in flavor {flavor}, request > maximum capacity"
                f" ({wanted[part]} > {maximum})"
            )
            continue
        why = f"insufficient unused quota for {part[1]} in flavor {flavor}, {more} more needed"
        victims = find_targets(claim, flavors, ledger)
        if victims and preempt is None:
            preempt = Preempt(tuple(victim.claim.uid for victim in victims), flavors)
    return preempt or Refuse(f"couldn't assign flavors: {why}")

"""scheduler-plugins ElasticQuota: a guaranteed min, a cap max, and what others leave over.

A namespace may exceed its min while the sum of what all use stays within the sum of all mins. A
namespace that wants its min back evicts from those above theirs, whatever the priority; above its
own min it evicts only its own pods of lower priority. Source: scheduler-plugins KEP-9
(capacity scheduling). One simplification: a resource that no quota's min names is not counted
against the sum of mins.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from fallow.errors import UsageError
from simulator.cluster.quotas.claims import Admit, Claim, Preempt, Refuse, Verdict


class ElasticQuota(msgspec.Struct, frozen=True):
    """A namespace's quota; a resource absent of `min` is 0, absent of `max` unlimited."""

    namespace: str
    min: Mapping[str, int]
    max: Mapping[str, int] = {}


class ElasticQuotas:
    """All ElasticQuotas and what is held of them.

    Raises:
        UsageError: a min above its max; the real plug-in has no webhook that would refuse it.
    """

    def __init__(self, quotas: Iterable[ElasticQuota]) -> None:
        self._held: dict[str, tuple[Claim, float]] = {}
        self._leaving: set[str] = set()
        self.configure(quotas)

    def configure(self, quotas: Iterable[ElasticQuota]) -> None:
        """Replace the quotas (the first of a namespace counts); what is held stays held."""
        self.quotas: dict[str, ElasticQuota] = {}
        for quota in quotas:
            for resource, most in quota.max.items():
                if quota.min.get(resource, 0) > most:
                    raise UsageError(
                        f"ElasticQuota of {quota.namespace!r}: min of {resource} is"
                        f" {quota.min[resource]}, max only {most}",
                        hint="min may be at most max",
                    )
            self.quotas.setdefault(quota.namespace, quota)

    def hold(self, claim: Claim, since_s: float = 0.0) -> None:
        """Count a placed pod or gang."""
        self._held[claim.uid] = claim, since_s

    def leaving(self, uid: str) -> None:
        """Say that a claim is being evicted: it counts until `release`, and goes first."""
        self._leaving.add(uid)

    def release(self, uid: str) -> None:
        """Stop counting it."""
        self._held.pop(uid, None)
        self._leaving.discard(uid)

    def used(self, namespace: str) -> dict[str, int]:
        """Return what a namespace holds by resource."""
        held = (claim.uses for claim, _ in self._held.values() if claim.queue == namespace)
        return dict(_sum(held))

    def admit(self, claim: Claim) -> Verdict:
        """Judge one claim; holds nothing. A namespace without a quota is always admitted."""
        quota = self.quotas.get(claim.queue)
        if quota is None:
            return Admit()
        after = _sum([self.used(claim.queue), claim.uses])
        for resource, most in sorted(quota.max.items()):
            if claim.uses.get(resource, 0) and after[resource] > most:
                return Refuse(
                    f"Pod {claim.uid} is rejected in PreFilter because ElasticQuota"
                    f" {quota.namespace} is more than Max ({resource}: {after[resource]} > {most})"
                )
        if self._within_all(claim, self._everything()):
            return Admit(borrows=_above(after, quota.min, claim.uses))
        victims = self._victims(claim)
        if victims:
            return Preempt(victims)
        return Refuse(
            f"Pod {claim.uid} is rejected in PreFilter because total ElasticQuota used is more"
            " than min"
        )

    def may(self, claim: Claim, victim: str, priority: int = 0) -> bool:
        """Say whether a running pod yields to this claim (`scheduler.preempting.victims`).

        `priority` is the victim's, for pods that hold no quota: those yield only to higher
        claims without a quota.
        """
        held = self._held.get(victim)
        if claim.queue not in self.quotas or held is None or held[0].queue not in self.quotas:
            neither = claim.queue not in self.quotas and held is None
            return neither and priority < claim.priority
        return self._yields(claim, held[0], self._everything())

    def _yields(self, claim: Claim, held: Claim, used: Mapping[str, Counter[str]]) -> bool:
        quota = self.quotas[claim.queue]
        own = _sum([used.get(claim.queue, {}), claim.uses])
        if _above(own, quota.min, claim.uses):
            return held.queue == claim.queue and held.priority < claim.priority
        if held.queue == claim.queue or held.queue not in self.quotas:
            return False
        return _above(used[held.queue], self.quotas[held.queue].min, claim.uses, held.uses)

    def _victims(self, claim: Claim) -> tuple[str, ...]:
        used = self._everything()
        line = sorted(
            self._held.values(),
            key=lambda h: (h[0].uid not in self._leaving, h[0].priority, -h[1], h[0].uid),
        )
        gone: list[Claim] = []
        for held, _ in line:
            if self._within_all(claim, used):
                break
            if self._yields(claim, held, used):
                used[held.queue].subtract(held.uses)
                gone.append(held)
        if not self._within_all(claim, used):
            return ()
        needed = []
        for held in reversed(gone):
            used[held.queue].update(held.uses)
            if not self._within_all(claim, used):
                used[held.queue].subtract(held.uses)
                needed.append(held.uid)
        return tuple(reversed(needed))

    def _within_all(self, claim: Claim, used: Mapping[str, Counter[str]]) -> bool:
        """Say whether all namespaces together stay within the sum of mins."""
        guaranteed = _sum(quota.min for quota in self.quotas.values())
        total = _sum([*(n for name, n in used.items() if name in self.quotas), claim.uses])
        return not any(
            total[resource] > guaranteed[resource]
            for resource, amount in claim.uses.items()
            if amount and resource in guaranteed
        )

    def _everything(self) -> dict[str, Counter[str]]:
        used: dict[str, Counter[str]] = {}
        for claim, _ in self._held.values():
            used.setdefault(claim.queue, Counter()).update(claim.uses)
        return used


def _sum(amounts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for some in amounts:
        total.update(some)
    return total


def _above(
    used: Mapping[str, int],
    least: Mapping[str, int],
    *asked: Mapping[str, int],
) -> bool:
    """Say whether use exceeds the min in a resource that all of these ask."""
    resources = set.intersection(*(({r for r, n in some.items() if n}) for some in asked))
    return any(used.get(r, 0) > least.get(r, 0) for r in resources)

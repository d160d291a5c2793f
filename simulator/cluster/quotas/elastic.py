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
        self._used: dict[str, Counter[str]] = {}
        self._leaving: set[str] = set()
        self._nominated: dict[str, Claim] = {}
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
        self._guaranteed = _sum(quota.min for quota in self.quotas.values())

    def hold(self, claim: Claim, since_s: float = 0.0) -> None:
        """Count a placed pod or gang."""
        self.release(claim.uid)
        self._held[claim.uid] = claim, since_s
        self._used.setdefault(claim.queue, Counter()).update(claim.uses)

    def nominate(self, claim: Claim) -> None:
        """Keep what a claim evicts others for: they would take it again the moment it is free."""
        self._nominated[claim.uid] = claim

    def leaving(self, uid: str) -> None:
        """Say that a claim is being evicted: it counts until `release`, and goes first."""
        self._leaving.add(uid)

    def release(self, uid: str) -> None:
        """Stop counting it."""
        self._nominated.pop(uid, None)
        if uid in self._held:
            gone, _ = self._held.pop(uid)
            self._used[gone.queue].subtract(gone.uses)
        self._leaving.discard(uid)

    def used(self, namespace: str) -> dict[str, int]:
        """Return what a namespace holds by resource."""
        return {name: n for name, n in self._used.get(namespace, Counter()).items() if n}

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
        if self._within_all(claim, self._used):
            return Admit(borrows=self.rises_above(claim))
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
        return self._yields(claim, held[0], self._used, above=self.rises_above(claim))

    def rises_above(self, claim: Claim) -> bool:
        """Say whether the claim takes its namespace above its min."""
        own = _sum([self._used.get(claim.queue, {}), claim.uses])
        return self._above(own, self.quotas[claim.queue], claim.uses)

    def _yields(
        self, claim: Claim, held: Claim, used: Mapping[str, Counter[str]], *, above: bool
    ) -> bool:
        if above:
            return held.queue == claim.queue and held.priority < claim.priority
        if held.queue == claim.queue or held.queue not in self.quotas:
            return False
        return self._above(used[held.queue], self.quotas[held.queue], claim.uses, held.uses)

    def _above(
        self, used: Mapping[str, int], quota: ElasticQuota, *asked: Mapping[str, int]
    ) -> bool:
        """Say whether use exceeds the min in a counted resource that all of these ask."""
        resources = set(self._guaranteed)
        for some in asked:
            resources &= {resource for resource, amount in some.items() if amount}
        return any(used.get(r, 0) > quota.min.get(r, 0) for r in resources)

    def _victims(self, claim: Claim) -> tuple[str, ...]:
        above = self.rises_above(claim)
        used = {name: some.copy() for name, some in self._used.items()}
        # Whoever does not yield now would not yield later: what others hold only shrinks.
        line = sorted(
            (
                held
                for held in self._held.values()
                if self._yields(claim, held[0], used, above=above)
            ),
            key=lambda h: (h[0].uid not in self._leaving, h[0].priority, -h[1], h[0].uid),
        )
        gone: list[Claim] = []
        for held, _ in line:
            if self._within_all(claim, used):
                break
            if self._yields(claim, held, used, above=above):
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
        others = [
            one
            for one in self._nominated.values()
            if one.queue != claim.queue and one.priority >= claim.priority
        ]
        return not any(
            amount
            and resource in self._guaranteed
            and amount
            + sum(one.uses.get(resource, 0) for one in others)
            + sum(used[name][resource] for name in self.quotas if name in used)
            > self._guaranteed[resource]
            for resource, amount in claim.uses.items()
        )


def _sum(amounts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for some in amounts:
        total.update(some)
    return total

"""Simulate scheduler-plugins' ElasticQuota: a guaranteed min, a max, and borrowing.

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
from simulator.cluster.quotas.claims import Admit, Preempt, QuotaClaim, Refuse, Verdict


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
        self._claims: dict[str, tuple[QuotaClaim, float]] = {}
        self._used: dict[str, Counter[str]] = {}
        self._leaving: set[str] = set()
        self._nominated: dict[str, QuotaClaim] = {}
        self.configure(quotas)

    def configure(self, quotas: Iterable[ElasticQuota]) -> None:
        """Replace the quotas (the first of a namespace counts); holdings stay."""
        self.quotas: dict[str, ElasticQuota] = {}
        for quota in quotas:
            for resource, maximum in quota.max.items():
                if quota.min.get(resource, 0) > maximum:
                    raise UsageError(
                        f"ElasticQuota of {quota.namespace!r}: min of {resource} is"
                        f" {quota.min[resource]}, max only {maximum}",
                        hint="min may be at most max",
                    )
            self.quotas.setdefault(quota.namespace, quota)
        self._guaranteed = _sum(quota.min for quota in self.quotas.values())

    def hold(self, claim: QuotaClaim, since_s: float = 0.0) -> None:
        """Count a placed pod or gang."""
        self.release(claim.uid)
        self._claims[claim.uid] = claim, since_s
        self._used.setdefault(claim.queue, Counter()).update(claim.uses)

    def nominate(self, claim: QuotaClaim) -> None:
        """Reserve the quota for which a claim evicts others: they would take it again at once."""
        self._nominated[claim.uid] = claim

    def leaving(self, uid: str) -> None:
        """Record that a claim is being evicted: it counts until `release`, and is chosen first."""
        self._leaving.add(uid)

    def release(self, uid: str) -> None:
        """Stop counting it."""
        self._nominated.pop(uid, None)
        if uid in self._claims:
            claim, _ = self._claims.pop(uid)
            self._used[claim.queue].subtract(claim.uses)
        self._leaving.discard(uid)

    def used(self, namespace: str) -> dict[str, int]:
        """Return what a namespace holds by resource."""
        return {name: n for name, n in self._used.get(namespace, Counter()).items() if n}

    def admit(self, claim: QuotaClaim) -> Verdict:
        """Judge one claim; holds nothing. A namespace without a quota is always admitted."""
        quota = self.quotas.get(claim.queue)
        if quota is None:
            return Admit()
        after = _sum([self.used(claim.queue), claim.uses])
        for resource, maximum in sorted(quota.max.items()):
            if claim.uses.get(resource, 0) and after[resource] > maximum:
                return Refuse(
                    f"Pod {claim.uid} is rejected in PreFilter because ElasticQuota"
                    f" {quota.namespace} is more than Max ({resource}: {after[resource]} > "
                    f"{maximum})"
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

    def may(self, claim: QuotaClaim, victim: str, priority: int = 0) -> bool:
        """Return whether a running pod yields to this claim (`scheduler.preempting.victims`).

        `priority` is the victim's, for pods that hold no quota: those yield only to higher
        claims without a quota.
        """
        victim_claim = self._claims.get(victim)
        if (
            claim.queue not in self.quotas
            or victim_claim is None
            or victim_claim[0].queue not in self.quotas
        ):
            neither = claim.queue not in self.quotas and victim_claim is None
            return neither and priority < claim.priority
        return self._yields(claim, victim_claim[0], self._used, above=self.rises_above(claim))

    def rises_above(self, claim: QuotaClaim) -> bool:
        """Return whether the claim takes its namespace above its min."""
        own = _sum([self._used.get(claim.queue, {}), claim.uses])
        return self._above(own, self.quotas[claim.queue], claim.uses)

    def _yields(
        self,
        claim: QuotaClaim,
        running: QuotaClaim,
        used: Mapping[str, Counter[str]],
        *,
        above: bool,
    ) -> bool:
        if above:
            return running.queue == claim.queue and running.priority < claim.priority
        if running.queue == claim.queue or running.queue not in self.quotas:
            return False
        return self._above(
            used[running.queue], self.quotas[running.queue], claim.uses, running.uses
        )

    def _above(
        self, used: Mapping[str, int], quota: ElasticQuota, *requests: Mapping[str, int]
    ) -> bool:
        """Return whether use exceeds the min in a counted resource that all of these request."""
        resources = set(self._guaranteed)
        for amounts in requests:
            resources &= {resource for resource, amount in amounts.items() if amount}
        return any(used.get(r, 0) > quota.min.get(r, 0) for r in resources)

    def _victims(self, claim: QuotaClaim) -> tuple[str, ...]:
        above = self.rises_above(claim)
        used = {name: amounts.copy() for name, amounts in self._used.items()}
        # A pod that does not yield now would not yield later: the others' holdings only shrink.
        line = sorted(
            (
                running
                for running in self._claims.values()
                if self._yields(claim, running[0], used, above=above)
            ),
            key=lambda h: (h[0].uid not in self._leaving, h[0].priority, -h[1], h[0].uid),
        )
        evicted: list[QuotaClaim] = []
        for running, _ in line:
            if self._within_all(claim, used):
                break
            if self._yields(claim, running, used, above=above):
                used[running.queue].subtract(running.uses)
                evicted.append(running)
        if not self._within_all(claim, used):
            return ()
        needed = []
        for running in reversed(evicted):
            used[running.queue].update(running.uses)
            if not self._within_all(claim, used):
                used[running.queue].subtract(running.uses)
                needed.append(running.uid)
        return tuple(reversed(needed))

    def _within_all(self, claim: QuotaClaim, used: Mapping[str, Counter[str]]) -> bool:
        """Return whether all namespaces together are within the sum of mins."""
        nominated = [
            claim_nominated
            for claim_nominated in self._nominated.values()
            if claim_nominated.queue != claim.queue and claim_nominated.priority >= claim.priority
        ]
        return not any(
            amount
            and resource in self._guaranteed
            and amount
            + sum(claim_nominated.uses.get(resource, 0) for claim_nominated in nominated)
            + sum(used[name][resource] for name in self.quotas if name in used)
            > self._guaranteed[resource]
            for resource, amount in claim.uses.items()
        )


def _sum(amounts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for amounts_of in amounts:
        total.update(amounts_of)
    return total

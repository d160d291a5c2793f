"""Build the findings of quotas: the kinds of waste, and the evidence of each."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_DOWN
from typing import Any

import msgspec
import numpy as np

from analyzers.advice import read_advice
from analyzers.arrays import Doubles
from analyzers.money import CENT, compute_dollars
from analyzers.overlaps import scale_advice
from analyzers.quota.executor_parameters import build_parameters
from analyzers.quota.groups import QuotaGroup
from analyzers.quota.measures import QuotaMeasures, compute_pooling, compute_shares, measure_group
from analyzers.quota.patches import describe_proposal
from analyzers.quota.proposal import QuotaProposal, propose
from fallow.models import (
    Claim,
    Evidence,
    Finding,
    FindingKey,
    Recommendation,
    State,
    Subject,
)
from fallow.settings.capacity import QuotaSettings
from fallow.window import Window

ANALYZER = "quota"
MOST_NAMED = 16
RECLAIM = {
    "ClusterQueue": "preemption.reclaimWithinCohort: Any",
    "Queue.volcano": "reclaimable: true on the borrowers, the reclaim action",
    "Queue.kai": "the reclaim action; a low reclaimMinRuntime",
    "ResourceQuota": "a ResourceQuota lends nothing: see who holds the GPUs",
}


def find_waste(group: QuotaGroup, window: Window, settings: QuotaSettings) -> Iterator[Finding]:
    """Yield what a group of quotas wastes in the window."""
    measures = measure_group(group)
    if not group.inside.any():
        return
    least = settings.min_gpu_hours
    for n in range(len(group.members)):
        if measures.total("starved", n) >= max(least, 1e-6):
            yield _build_starved(group, measures, n, window)
        if measures.total("hoarded", n) >= max(least, 1e-6):
            yield _build_hoarded(group, measures, n, window)
        if group.kind == "ClusterQueue" and measures.total("reserved", n) >= max(least, 1e-6):
            yield _build_reserved(group, measures, n, window)
    # Guarantees move in whole GPUs: instances of a MIG profile are not whole GPUs.
    proposal = None if "/mig-" in group.resource else propose(group, measures, settings)
    stranded = measures.total("stranded")
    if stranded >= max(least, 1e-6) or (proposal is not None and proposal.gifts):
        yield _build_stranded(group, measures, proposal, window, settings)
    ghost = float(group.nominal[group.inside].sum(axis=1).mean()) - group.money.gpus
    if group.money.gpus and ghost >= settings.min_gpus and len(group.members):
        yield _build_ghost(group, ghost, window)
    if not group.lends and len(group.members) > 1:
        yield from _find_unpooled(group, window, settings)


def share_free_hours(findings: Sequence[Finding], groups: Sequence[QuotaGroup]) -> list[Finding]:
    """Return findings that together claim no more free GPU-hours than waiting pods could use.

    Each group measures the same free GPUs of its cluster: confirmed findings come first.
    """
    rest: dict[str, float] = {}
    for group in groups:
        hours = float(group.money.free[group.inside].sum())
        rest[group.cluster] = max(hours, rest.get(group.cluster, 0.0))
    shared = list(findings)
    order = sorted(
        enumerate(findings),
        key=lambda pair: (pair[1].evidence != "confirmed", -_sum_free(pair[1]), pair[1].kind),
    )
    for place, finding in order:
        claimed, cluster = _sum_free(finding), finding.subject.cluster
        granted = min(claimed, rest[cluster])
        rest[cluster] -= granted
        if granted < claimed:
            shared[place] = _limit(finding, granted / claimed)
    return shared


def _sum_free(finding: Finding) -> float:
    claims = (claim for advice in finding.recommendations for claim in advice.claims)
    return sum(claim.gpu_hours for claim in claims if claim.state == "free")


def _limit(finding: Finding, part: float) -> Finding:
    note = "other findings of the cluster claim the same free GPUs"
    return msgspec.structs.replace(
        finding,
        recommendations=tuple(scale_advice(advice, part) for advice in finding.recommendations),
        details={**finding.details, "assumed": [*finding.details["assumed"], note]},
    )


def _build_starved(group: QuotaGroup, measures: QuotaMeasures, n: int, window: Window) -> Finding:
    hours = measures.starved[:, n]
    others = np.delete(np.arange(len(group.members)), n)
    borrowed = measures.above[hours > 0][:, others].sum(axis=0)
    details = {
        "why": f"entitled to {_compute_mean(group.nominal, group, n):.1f} GPUs, had "
        f"{_compute_mean(group.used, group, n):.1f} and waited for "
        f"{_compute_mean(group.waiting, group, n):.1f}: "
        f"its nominal quota was broken in {int((hours > 0).sum())} of {len(hours)} hours",
        "starved_gpu_hours": measures.total("starved", n),
        "guarantee_violated_hours": int((hours > 0).sum()),
        "worst_gpus": round(float(hours.max()), 3),
        "above_their_guarantee_meanwhile": {
            group.label(int(m)): round(float(b), 3)
            for m, b in zip(others, borrowed, strict=True)
            if b > 0
        },
        "free_gpu_hours_meanwhile": round(
            float(group.money.free[group.inside][hours > 0].sum()), 3
        ),
        **compute_shares(group),
    }
    how = RECLAIM.get(group.kind, "ElasticQuota takes back by preemption; it must be enabled")
    return _build_finding(
        group, "starved_queue", group.subject(n), window, details, name=group.label(n), how=how
    )


def _build_hoarded(group: QuotaGroup, measures: QuotaMeasures, n: int, window: Window) -> Finding:
    hours = measures.total("hoarded", n)
    idle = group.idle[group.inside][:, n]
    usd = group.idle_usd[group.inside][:, n]
    paid = None if np.isnan(usd).any() or not idle.sum() else float(usd.sum() / idle.sum())
    waited = np.delete(group.waiting[group.inside], n, axis=1)
    details = {
        "why": f"held {_compute_mean(group.used, group, n):.1f} GPUs and left "
        f"{idle.mean():.1f} of them "
        f"idle, while others of {group.name} waited for {waited.sum(axis=1).mean():.1f}",
        "idle_gpu_hours": round(float(idle.sum()), 6),
        "waited_gpu_hours_elsewhere": round(float(waited.sum()), 6),
        "who_waited": {
            group.label(m): round(float(group.waiting[group.inside][:, m].sum()), 3)
            for m in range(len(group.members))
            if m != n and group.waiting[group.inside][:, m].sum() > 0
        },
        **compute_shares(group),
    }
    namespace = group.members[n][0] or None
    claims = _build_claims(group, hours, paid, "idle", namespace) if namespace else ()
    return _build_finding(
        group, "hoarded_quota", group.subject(n), window, details, hours, paid, claims,
        name=group.label(n), others=group.name,
    )  # fmt: skip


def _build_reserved(group: QuotaGroup, measures: QuotaMeasures, n: int, window: Window) -> Finding:
    free = group.money.free[group.inside]
    hours = round(float(np.minimum(measures.reserved[:, n], free).sum()), 6)
    mean = float(measures.reserved[:, n].mean())
    details = {
        "why": f"{mean:.1f} GPUs on average are reserved in {group.label(n)}, and no pod holds or "
        "waits for them",
        "reserved_gpu_hours": measures.total("reserved", n),
        "free_meanwhile_gpu_hours": hours,
    }
    claims = _build_claims(group, hours, group.money.usd_h, "free")
    return _build_finding(
        group, "ghost_reservation", group.subject(n), window, details, hours,
        group.money.usd_h, claims, name=group.label(n), gpus=mean,
    )  # fmt: skip


def _build_stranded(
    group: QuotaGroup,
    measures: QuotaMeasures,
    proposal: QuotaProposal | None,
    window: Window,
    settings: QuotaSettings,
) -> Finding:
    hours, price = measures.total("stranded"), group.money.usd_h
    moved = proposal if proposal is not None and proposal.gifts else None
    details = {
        "why": f"{measures.stranded.sum(axis=1).mean():.1f} GPUs on average were free while "
        f"{measures.blocked.sum(axis=1).mean():.1f} were waited for under a full quota and others "
        f"of {group.name} left theirs unused",
        "blocked_gpu_hours": measures.total("blocked"),
        "unused_quota_of": _sum_by_member(group, measures.stranded),
        "would_have_served": _sum_by_member(group, measures.served),
        "proposal": describe_proposal(group, proposal),
        **compute_shares(group),
    }
    words: dict[str, Any] = {}
    if moved is not None:
        words = {
            "gpus": moved.gpus,
            "missed": max(g.trial.missed_share for g in moved.gifts),
            "days": len(group.hours) / 24,
        }
    served = hours if moved is None else min(hours, _sum_served(measures, moved))
    advised = "stranded_quota"
    if moved is None:
        advised = "stranded_quota_limit" if group.lends else "stranded_quota_pool"
        words = {"blocked": ", ".join(_sum_by_member(group, measures.served)) or "nobody"}
    return _build_finding(
        group,
        "stranded_quota",
        _build_subject(group),
        window,
        details,
        hours,
        price,
        _build_claims(group, served, price, "free"),
        advised=advised,
        parameters={} if moved is None else build_parameters(group, moved, settings),
        **words,
    )


def _build_ghost(group: QuotaGroup, ghost: float, window: Window) -> Finding:
    nominal = group.nominal[group.inside].mean(axis=0)
    part = group.money.gpus / float(nominal.sum())
    details = {
        "why": f"{group.name} promises {nominal.sum():.0f} GPUs of {group.money.gpus:.0f}",
        "ghost_gpus": round(ghost, 3),
        "guaranteed_gpus": round(float(nominal.sum()), 3),
        "gpus": group.money.gpus,
        "covered": {
            group.label(n): round(float(nominal[n]) * part, 3)
            for n in np.argsort(-nominal, kind="stable")[:MOST_NAMED]
        },
    }
    return _build_finding(group, "ghost_quota", _build_subject(group), window, details, ghost=ghost)


def _find_unpooled(group: QuotaGroup, window: Window, settings: QuotaSettings) -> Iterator[Finding]:
    each, pooled = compute_pooling(group, settings.pool_quantile)
    gain = each - pooled
    if gain < settings.min_gpus:
        return
    free = group.money.free[group.inside]
    hours = round(float(np.minimum(free, gain).sum()), 6)
    details = {
        "why": f"{len(group.members)} static quotas need {each:.0f} GPUs to serve "
        f"{settings.pool_quantile:.0%} of their hours each, one pool needs {pooled:.0f}",
        "static_gpus": round(each, 3),
        "pooled_gpus": round(pooled, 3),
        "multiplexing_gain_gpus": round(gain, 3),
        "entitled_gpus": round(float(group.nominal[group.inside].sum(axis=1).mean()), 3),
        "days": round(len(group.hours) / 24, 1),
        **compute_shares(group),
    }
    yield _build_finding(
        group, "unpooled_quota", _build_subject(group), window, details, hours, group.money.usd_h,
        _build_claims(group, hours, group.money.usd_h, "free"),
        each=each, pooled=pooled, quantile=settings.pool_quantile,
    )  # fmt: skip


def _sum_served(measures: QuotaMeasures, proposal: QuotaProposal) -> float:
    """Return the additional GPU-hours of the window that the receivers would have had."""
    got = np.zeros(measures.served.shape)
    for n, before, after in proposal.receipts:
        got[:, n] = np.minimum(measures.served[:, n], after - before)
    return round(float(got.sum()), 6)


def _build_finding(  # noqa: PLR0917  (one call per kind)
    group: QuotaGroup,
    kind: str,
    about: Subject,
    window: Window,
    details: Mapping[str, Any],
    gpu_hours: float = 0.0,
    usd_h: float | None = None,
    claims: tuple[Claim, ...] = (),
    advised: str | None = None,
    parameters: dict[str, Any] | None = None,
    **words: Any,
) -> Finding:
    """Build a finding from its details, hours and claims; `words` fill the gaps of its advice."""
    notes = list(group.notes)
    blind = kind == "hoarded_quota" or not group.money.matched
    if group.money.models > 1 and gpu_hours and blind:
        notes.append(
            "the cluster has several GPU models: what is there may be another than is asked"
        )
    if kind == "ghost_quota" and group.kind == "ResourceQuota":
        notes.append("a ResourceQuota caps, it promises nothing: more than there is may be meant")
    evidence: Evidence = "suspected" if notes or not group.money.measured else "confirmed"
    if gpu_hours and usd_h is None:
        notes.append("a part of these hours has no price")
    advice = read_advice(ANALYZER)[advised or kind].fill(words)
    usd = None if usd_h is None else compute_dollars(gpu_hours, usd_h)
    days = window.seconds / 86_400
    return FindingKey(ANALYZER, kind, about, window).build(
        evidence=evidence,
        confidence=0.9 if evidence == "confirmed" else 0.6,
        gpu_hours=gpu_hours,
        usd=usd,
        details={**details, "assumed": notes},
        recommendations=(
            Recommendation(
                verb=advice.verb,
                target=f"{about.workload_kind}/{about.workload}",
                why=advice.why,
                reversible=True,
                undo=advice.undo,
                gpu_hours_per_day=round(sum(c.gpu_hours for c in claims) / days, 4),
                usd_per_day=None
                if usd_h is None
                else compute_dollars(sum(c.gpu_hours for c in claims) / days, usd_h).quantize(
                    CENT, ROUND_DOWN
                ),
                caution=advice.caution,
                saving="capacity",
                effort=advice.effort,
                claims=claims,
                parameters=parameters or {},
            ),
        ),
    )


def _build_claims(
    group: QuotaGroup, hours: float, usd_h: float | None, state: State, namespace: str | None = ""
) -> tuple[Claim, ...]:
    """Claim hours in one state: free ones are the cluster's, others a namespace's."""
    if hours <= 0:
        return ()
    usd = None if usd_h is None else compute_dollars(hours, usd_h)
    if state == "free":
        return (Claim(group.cluster, None, None, None, None, "free", hours, usd),)
    return (Claim(group.cluster, namespace, None, None, None, state, hours, usd),)


def _sum_by_member(group: QuotaGroup, values: Doubles) -> dict[str, float]:
    """Return the sums of the members with a non-zero sum, the largest first."""
    sums = values.sum(axis=0)
    order = np.argsort(-sums, kind="stable")[:MOST_NAMED]
    return {group.label(int(n)): round(float(sums[n]), 3) for n in order if sums[n] > 0}


def _build_subject(group: QuotaGroup) -> Subject:
    """Return a whole group as a subject."""
    return Subject(group.cluster, "", "Quota", group.name)


def _compute_mean(values: Doubles, group: QuotaGroup, n: int) -> float:
    """Return a member's mean over the window."""
    return float(values[group.inside][:, n].mean())

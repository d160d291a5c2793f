"""Build a finding about quotas: its evidence, its cost, and what would remove the waste."""

from collections.abc import Mapping
from decimal import ROUND_DOWN
from functools import cache
from typing import Any, cast

import numpy as np

from analyzers.arrays import Doubles
from analyzers.money import CENT, compute_dollars
from analyzers.queries import load_rows
from analyzers.quota.groups import QuotaGroup
from fallow.models import (
    Claim,
    Effort,
    Evidence,
    Finding,
    Recommendation,
    State,
    Subject,
    finding_id,
)
from fallow.window import Window

ANALYZER = "quota"
MOST_NAMED = 16


def build_finding(  # noqa: PLR0917  (one call per kind)
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
    advice = {
        column: text.format(**words) if column in {"why", "undo", "caution"} else text
        for column, text in _read_advice()[advised or kind].items()
    }
    usd = None if usd_h is None else compute_dollars(gpu_hours, usd_h)
    days = window.seconds / 86_400
    return Finding(
        id=finding_id(ANALYZER, kind, about, window.start),
        analyzer=ANALYZER,
        kind=kind,
        subject=about,
        window=window,
        verdict="wasteful",
        evidence=evidence,
        confidence=0.9 if evidence == "confirmed" else 0.6,
        gpu_hours=gpu_hours,
        usd=usd,
        details={**details, "assumed": notes},
        recommendations=(
            Recommendation(
                verb=advice["verb"],
                target=f"{about.workload_kind}/{about.workload}",
                why=advice["why"],
                reversible=True,
                undo=advice["undo"],
                gpu_hours_per_day=round(sum(c.gpu_hours for c in claims) / days, 4),
                usd_per_day=None
                if usd_h is None
                else compute_dollars(sum(c.gpu_hours for c in claims) / days, usd_h).quantize(
                    CENT, ROUND_DOWN
                ),
                caution=advice["caution"],
                saving="capacity",
                effort=cast("Effort", advice["effort"]),
                claims=claims,
                parameters=parameters or {},
            ),
        ),
    )


def build_claims(
    group: QuotaGroup, hours: float, usd_h: float | None, state: State, namespace: str | None = ""
) -> tuple[Claim, ...]:
    """Claim hours in one state: free ones are the cluster's, others a namespace's."""
    if hours <= 0:
        return ()
    usd = None if usd_h is None else compute_dollars(hours, usd_h)
    if state == "free":
        return (Claim(group.cluster, None, None, None, None, "free", hours, usd),)
    return (Claim(group.cluster, namespace, None, None, None, state, hours, usd),)


def sum_by_member(group: QuotaGroup, values: Doubles) -> dict[str, float]:
    """Return the sums of the members with a non-zero sum, the largest first."""
    sums = values.sum(axis=0)
    order = np.argsort(-sums, kind="stable")[:MOST_NAMED]
    return {group.label(int(n)): round(float(sums[n]), 3) for n in order if sums[n] > 0}


def build_subject(group: QuotaGroup) -> Subject:
    """Return a whole group as a subject."""
    return Subject(group.cluster, "", "Quota", group.name)


def compute_mean(values: Doubles, group: QuotaGroup, n: int) -> float:
    """Return a member's mean over the window."""
    return float(values[group.inside][:, n].mean())


@cache
def _read_advice() -> dict[str, dict[str, str]]:
    return {row["kind"]: row for row in load_rows("quota/advice")}

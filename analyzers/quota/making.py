"""A finding about quotas: its evidence, its money, and what would remove the waste."""

from collections.abc import Mapping
from decimal import ROUND_DOWN
from functools import cache
from typing import Any, cast

import numpy as np

from analyzers.money import CENT, worth
from analyzers.queries import rows_of
from analyzers.quota.fair import Doubles
from analyzers.quota.groups import Group
from fallow.nouns import (
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


def made(  # noqa: PLR0917  (one call per kind)
    group: Group,
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
    """Make a finding of its details, hours and claims; `words` fill the gaps of its advice."""
    notes = list(group.notes)
    blind = kind == "hoarded_quota" or not group.money.matched
    if group.money.models > 1 and gpu_hours and blind:
        notes.append(
            "the cluster has several GPU models: what is there may be another than is asked"
        )
    if kind == "ghost_quota" and group.kind == "ResourceQuota":
        notes.append("a ResourceQuota caps, it promises nothing: more than there is may be meant")
    evidence: Evidence = "suspected" if notes or not group.money.known else "confirmed"
    if gpu_hours and usd_h is None:
        notes.append("a part of these hours has no price")
    said = {
        column: text.format(**words) if column in {"why", "undo", "caution"} else text
        for column, text in _advice()[advised or kind].items()
    }
    usd = None if usd_h is None else worth(gpu_hours, usd_h)
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
                verb=said["verb"],
                target=f"{about.workload_kind}/{about.workload}",
                why=said["why"],
                reversible=True,
                undo=said["undo"],
                gpu_hours_per_day=round(sum(c.gpu_hours for c in claims) / days, 4),
                usd_per_day=None
                if usd_h is None
                else worth(sum(c.gpu_hours for c in claims) / days, usd_h).quantize(
                    CENT, ROUND_DOWN
                ),
                caution=said["caution"],
                saving="capacity",
                effort=cast("Effort", said["effort"]),
                claims=claims,
                parameters=parameters or {},
            ),
        ),
    )


def claims_of(
    group: Group, hours: float, usd_h: float | None, state: State, namespace: str | None = ""
) -> tuple[Claim, ...]:
    """Claim hours in one state: free ones are the cluster's, others a namespace's."""
    if hours <= 0:
        return ()
    usd = None if usd_h is None else worth(hours, usd_h)
    if state == "free":
        return (Claim(group.cluster, None, None, None, None, "free", hours, usd),)
    return (Claim(group.cluster, namespace, None, None, None, state, hours, usd),)


def by_member(group: Group, values: Doubles) -> dict[str, float]:
    """Return the sums of the members that have any, the greatest first."""
    sums = values.sum(axis=0)
    order = np.argsort(-sums, kind="stable")[:MOST_NAMED]
    return {group.label(int(n)): round(float(sums[n]), 3) for n in order if sums[n] > 0}


def about_group(group: Group) -> Subject:
    """Return a whole group as a subject."""
    return Subject(group.cluster, "", "Quota", group.name)


def mean(values: Doubles, group: Group, n: int) -> float:
    """Return a member's mean over the window."""
    return float(values[group.inside][:, n].mean())


@cache
def _advice() -> dict[str, dict[str, str]]:
    return {row["kind"]: row for row in rows_of("quota/advice")}

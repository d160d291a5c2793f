"""Report one hang as one finding where two analyzers find the same hours of the same job.

`stalled_job` reads samples, progress and ranks; `busy_hang` of sizing reads hourly rollups and
knows no ranks. Where both find a job, the first is kept, and of the second only the hours that
belong to another hang.
"""

from collections.abc import Sequence

import msgspec

from analyzers.limits import read_limits
from analyzers.workload_rows import Owner
from fallow.models import STALLED_JOB, Claim, Finding, Recommendation
from fallow.money import multiply

HANG = "busy_hang"


def remove_overlaps(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings without the hours of a hang that a stalled job already covers."""
    stalled: dict[Owner, list[Finding]] = {}
    for finding in findings:
        if finding.kind == STALLED_JOB:
            stalled.setdefault(_get_owner(finding), []).append(finding)
    remaining = []
    for finding in findings:
        same_job = stalled.get(_get_owner(finding), ()) if finding.kind == HANG else ()
        other = _subtract_stalled(finding, same_job) if same_job else finding
        if other is not None:
            remaining.append(other)
    return remaining


def _subtract_stalled(hang: Finding, stalled: Sequence[Finding]) -> Finding | None:
    """Return the remaining hours of a hang; None = only the edges of whole hours remain."""
    hours = hang.gpu_hours - sum(finding.gpu_hours for finding in stalled)
    # In rollups the first and the last hour of each stall are whole hours, at most.
    devices = sum(len(finding.details["devices"]) for finding in stalled)
    edges = 2 * read_limits("sizing")["hang_hours"] * devices
    if hours <= edges:
        return None
    part = hours / hang.gpu_hours
    return msgspec.structs.replace(
        hang,
        gpu_hours=round(hours, 6),
        usd=multiply(hang.usd, part),
        recommendations=tuple(scale_advice(advice, part) for advice in hang.recommendations),
        details={**hang.details, "beside": [finding.id for finding in stalled]},
    )


def scale_advice(advice: Recommendation, part: float) -> Recommendation:
    """Return advice that claims, and would free each day, a part (0-1) of its hours."""
    claims = tuple(_scale_claim(claim, part) for claim in advice.claims) if part else ()
    daily = advice.gpu_hours_per_day
    return msgspec.structs.replace(
        advice,
        claims=claims,
        gpu_hours_per_day=None if daily is None else round(daily * part, 4),
        usd_per_day=multiply(advice.usd_per_day, part),
    )


def _scale_claim(claim: Claim, part: float) -> Claim:
    usd, gpu_hours = multiply(claim.usd, part), round(claim.gpu_hours * part, 6)
    return msgspec.structs.replace(claim, gpu_hours=gpu_hours, usd=usd)


def _get_owner(finding: Finding) -> Owner:
    about = finding.subject
    return about.cluster, about.namespace, about.workload_kind, about.workload

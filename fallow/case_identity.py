"""Identify cases: which stored stretch of waste a finding continues, and what it cost so far.

    stored stretch   |-------------------|
    finding                    [-------------)     analyzers judge a window: its start advances
    the case         |-----------------------)     one id, one start, from when it was first seen

A finding that begins after the stored stretch ended is a new case: there was no waste in between.
A finding about an object that was created again under the old name (another uid) is also a new
case.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from fallow.models import Claim, Finding, Recommendation, compute_finding_id
from fallow.money import multiply
from fallow.window import Window

TOLERANCE = timedelta(minutes=5)
"""One rollup bucket: two judgements of one stretch may differ by this much at either end."""
CASE = "case"
"""Key of a finding's details: which part of the case was judged, and what was stored before it."""

CaseKin = tuple[str, str, str, str, str, str]
"""What findings of one case have in common: analyzer, kind, cluster, workload kind, namespace,
name."""


class StoredCase(msgspec.Struct, frozen=True):
    """A case as it was stored last; None = not stored."""

    id: str
    end: datetime
    """End of the observed waste."""
    start: datetime
    uid: str | None = None
    """The object's uid."""
    gpu_hours: float | None = None
    usd: Decimal | None = None


class JudgedPart(NamedTuple):
    """The part of a case that its analyzer judged last."""

    start: datetime
    gpu_hours: float
    usd: Decimal | None


StoredCases = Mapping[CaseKin, Sequence[StoredCase]]
"""Stretches by the keys that findings of their cases have in common."""


def get_kin(finding: Finding) -> CaseKin:
    """Return the key that all findings of a finding's case have in common."""
    subject = finding.subject
    return (
        finding.analyzer,
        finding.kind,
        subject.cluster,
        subject.workload_kind,
        subject.namespace,
        subject.workload,
    )


def to_stored_case(finding: Finding, uid: str | None = None) -> StoredCase:
    """Return a finding as a stretch that later findings may continue."""
    window = finding.window
    return StoredCase(finding.id, window.end, window.start, uid, finding.gpu_hours, finding.usd)


def resolve(
    findings: Sequence[Finding], stored: StoredCases, uids: Mapping[int, str] | None = None
) -> list[Finding]:
    """Return findings with the id and start of the cases that they continue, in their order.

    Two findings never continue the same stretch: the finding with the longer overlap does, and the
    other becomes its own case. `uids`: the objects' uids by the finding's index in `findings`; an
    unknown uid separates nothing.
    """
    uids = uids or {}
    trimmed = [
        _keep_birth(f, stored.get(get_kin(f), ()), uids.get(n)) for n, f in enumerate(findings)
    ]
    pairs = [
        (shared, n, stretch)
        for n, finding in enumerate(trimmed)
        for stretch in stored.get(get_kin(finding), ())
        if (shared := _compute_shared(finding, stretch, uids.get(n))) is not None
    ]
    pairs.sort(key=lambda pair: (-pair[0], pair[1], pair[2].id))
    matches: dict[int, StoredCase] = {}
    used: set[tuple[CaseKin, str]] = set()
    for _, n, stretch in pairs:
        key = (get_kin(trimmed[n]), stretch.id)
        if n not in matches and key not in used:
            matches[n] = stretch
            used.add(key)
    return [
        extend(finding, matches[n])
        if n in matches
        else _make_distinct(finding, stored.get(get_kin(finding), ()), uids.get(n))
        for n, finding in enumerate(trimmed)
    ]


def extend(finding: Finding, stretch: StoredCase) -> Finding:
    """Return a finding as the continuation of a stretch: its id, its start, and the hours of both.

    Stored hours stay as they were stored; the finding adds only its part after them, in proportion
    to the time. If no hours were stored, the finding keeps its own, and they are marked.
    """
    window = finding.window
    if window.start <= stretch.start:
        return msgspec.structs.replace(finding, id=stretch.id)
    judged = get_judged_part(finding)
    if window.start - stretch.start <= TOLERANCE:
        stretch = _lead(finding, stretch)
    gpu_hours, usd = _sum_parts(finding, stretch)
    counted = judged.start if gpu_hours is None else stretch.start
    details: dict[str, Any] = {
        "judged_from": judged.start.isoformat(),
        "judged_gpu_hours": judged.gpu_hours,
        "judged_usd": None if judged.usd is None else str(judged.usd),
        "counted_from": counted.isoformat(),
    }
    if silences := _list_silences(finding):
        details["silences"] = silences
    recommendations = finding.recommendations
    if gpu_hours is not None and finding.gpu_hours:
        recommendations = tuple(
            _scale_recommendation(a, gpu_hours / finding.gpu_hours) for a in recommendations
        )
    return msgspec.structs.replace(
        finding,
        id=stretch.id,
        window=Window(stretch.start, window.end),
        gpu_hours=finding.gpu_hours if gpu_hours is None else gpu_hours,
        usd=finding.usd if gpu_hours is None else usd,
        details={**finding.details, CASE: details},
        recommendations=recommendations,
    )


def extend_over_silence(finding: Finding, earlier: Finding) -> Finding:
    """Return a finding as the continuation of an earlier one after a time without samples."""
    extended = extend(finding, to_stored_case(earlier))
    silence = [earlier.window.end.isoformat(), finding.window.start.isoformat()]
    case = {
        **extended.details[CASE],
        "silences": [*_list_silences(earlier), *_list_silences(finding), silence],
    }
    return msgspec.structs.replace(extended, details={**extended.details, CASE: case})


def get_judged_part(finding: Finding) -> JudgedPart:
    """Return the part of a case that the analyzer itself judged: start, GPU-hours and dollars."""
    document = finding.details.get(CASE)
    if document is None:
        return JudgedPart(finding.window.start, finding.gpu_hours, finding.usd)
    usd = document["judged_usd"]
    return JudgedPart(
        datetime.fromisoformat(document["judged_from"]),
        document["judged_gpu_hours"],
        None if usd is None else Decimal(usd),
    )


def get_judged_finding(finding: Finding) -> Finding:
    """Return a case as its analyzer judged it: without the part that was stored before."""
    if CASE not in finding.details:
        return finding
    start, gpu_hours, usd = get_judged_part(finding)
    return msgspec.structs.replace(
        finding,
        window=Window(start, finding.window.end),
        gpu_hours=gpu_hours,
        usd=usd,
        details={name: value for name, value in finding.details.items() if name != CASE},
    )


def _lead(finding: Finding, stretch: StoredCase) -> StoredCase:
    """Return the few minutes by which a stretch began before a finding that covers all of it."""
    start, end = finding.window.start, finding.window.end
    part = (start - stretch.start) / (end - start)
    return msgspec.structs.replace(
        stretch, end=start, gpu_hours=finding.gpu_hours * part, usd=multiply(finding.usd, part)
    )


def _compute_shared(finding: Finding, stretch: StoredCase, uid: str | None) -> float | None:
    """Return for how many seconds a finding overlaps a stretch; None = it is another case."""
    if uid is not None and stretch.uid is not None and uid != stretch.uid:
        return None
    start, end = finding.window.start, finding.window.end
    if end <= stretch.start or start >= stretch.end:
        return None
    if start > stretch.start:
        min_overlap = min(TOLERANCE, (stretch.end - stretch.start) / 2)
        if stretch.end - start < min_overlap:
            return None  # it begins where the stretch ended, within the precision of buckets
    return (min(end, stretch.end) - max(start, stretch.start)).total_seconds()


def _sum_parts(finding: Finding, stretch: StoredCase) -> tuple[float | None, Decimal | None]:
    """Return the GPU-hours and dollars of a stretch plus what a finding adds after its end."""
    if stretch.gpu_hours is None:
        return None, None
    start, end = finding.window.start, finding.window.end
    usd = stretch.usd if finding.usd is not None else None
    if end < stretch.end:  # the finding is of a past time: the stretch is longer
        part = (end - stretch.start) / (stretch.end - stretch.start)
        return round(stretch.gpu_hours * part, 6), multiply(usd, part)
    part = _measure_observed(finding, max(stretch.end, start), end) / _measure_observed(
        finding, start, end
    )
    hours = round(stretch.gpu_hours + finding.gpu_hours * part, 6)
    added_usd = multiply(finding.usd, part)
    return hours, None if usd is None or added_usd is None else usd + added_usd


def _measure_observed(finding: Finding, start: datetime, end: datetime) -> timedelta:
    """Return how much of a time had samples."""
    edges = [
        (datetime.fromisoformat(a), datetime.fromisoformat(b)) for a, b in _list_silences(finding)
    ]
    silent = (max(timedelta(), min(b, end) - max(a, start)) for a, b in edges)
    return end - start - sum(silent, timedelta())


def _list_silences(finding: Finding) -> list[list[str]]:
    silences: list[list[str]] = finding.details.get(CASE, {}).get("silences", [])
    return silences


def _keep_birth(finding: Finding, stored: Sequence[StoredCase], uid: str | None) -> Finding:
    """Remove the part that belongs to an earlier object of the same name."""
    if uid is None:
        return finding
    others = [s.end for s in stored if s.uid is not None and s.uid != uid]
    floor = max((end for end in others if end < finding.window.end), default=None)
    return finding if floor is None else cut_before(finding, floor)


def cut_before(finding: Finding, start: datetime) -> Finding:
    """Return the part of a finding from a timestamp on, with its figures in proportion to time."""
    window = finding.window
    if not window.start < start < window.end:
        return finding
    part = (window.end - start) / (window.end - window.start)
    return msgspec.structs.replace(
        finding,
        id=compute_finding_id(finding.analyzer, finding.kind, finding.subject, start),
        window=Window(start, window.end),
        gpu_hours=round(finding.gpu_hours * part, 6),
        usd=multiply(finding.usd, part),
        recommendations=tuple(
            _scale_recommendation(advice, part) for advice in finding.recommendations
        ),
    )


def _make_distinct(finding: Finding, stored: Sequence[StoredCase], uid: str | None) -> Finding:
    """Give a new case its own id where its analyzer gives all stretches the same id."""
    ids = {stretch.id for stretch in stored}
    if finding.id not in ids:
        return finding
    start = finding.window.start
    new_id = compute_finding_id(finding.analyzer, finding.kind, finding.subject, start)
    if new_id in ids:
        new_id = compute_finding_id(
            finding.analyzer, f"{finding.kind}\x1f{uid}", finding.subject, start
        )
    return msgspec.structs.replace(finding, id=new_id)


def _scale_recommendation(advice: Recommendation, part: float) -> Recommendation:
    """Return a recommendation whose claims and savings are scaled with its hours and dollars."""
    return msgspec.structs.replace(
        advice,
        claims=tuple(_scale_claim(claim, part) for claim in advice.claims),
        gross_gpu_hours=_convert_hours(advice.gross_gpu_hours, part),
        gross_usd=multiply(advice.gross_usd, part),
        marginal_gpu_hours=_convert_hours(advice.marginal_gpu_hours, part),
        marginal_usd=multiply(advice.marginal_usd, part),
        marginal_idle_gpu_hours=_convert_hours(advice.marginal_idle_gpu_hours, part),
        marginal_in_use_gpu_hours=_convert_hours(advice.marginal_in_use_gpu_hours, part),
        marginal_in_use_usd=multiply(advice.marginal_in_use_usd, part),
        at_most_gpu_hours=_convert_hours(advice.at_most_gpu_hours, part),
        at_most_usd=multiply(advice.at_most_usd, part),
    )


def _scale_claim(claim: Claim, part: float) -> Claim:
    return msgspec.structs.replace(
        claim,
        gpu_hours=round(claim.gpu_hours * part, 6),
        usd=multiply(claim.usd, part),
        granted_gpu_hours=_convert_hours(claim.granted_gpu_hours, part),
    )


def _convert_hours(hours: float | None, part: float) -> float | None:
    return None if hours is None else round(hours * part, 6)

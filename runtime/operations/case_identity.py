"""Identify the cases that findings continue: as stored by analyses, and as seen by the actor.

    table finding ──────────────┐
    table action (seen rows) ───┼─► fallow.case_identity ─► one id, one start, all its hours
    table pod (uids) ───────────┘

The actor's cases have the last word, because notices and approvals refer to ids of the journal.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import msgspec

from fallow import case_identity
from fallow.case_identity import CaseKin, StoredCase, get_kin
from fallow.models import Finding
from fallow.protocols import Views
from runtime.operations.queries import load_sql

LONGEST_SILENCE = timedelta(hours=6)
"""The length of an exporter outage that is repaired within one shift. After a longer gap it is not
known whether the owner used the workload: then the careful choice is a new case with its own
notice."""

Workload = tuple[str, str, str, str]
"""cluster, kind, namespace, name"""


class ResolvedCases(msgspec.Struct, frozen=True):
    """Findings as the cases that they continue, and the uids of their objects by index."""

    findings: tuple[Finding, ...]
    uids: dict[int, str]
    ids: tuple[str, ...] = ()
    """Index of the case of each finding that was resolved: several may be parts of one case."""


def resolve(views: Views, findings: Sequence[Finding]) -> ResolvedCases:
    """Return the cases that findings continue, in their order, with their ids and starts.

    Findings of one workload that are separated only by missing samples are one case.
    """
    if not findings:
        return ResolvedCases((), {})
    uids, parts = _match_objects(views, findings)
    whole, case_of = _merge_over_silence(views, parts, uids)
    uids = {n: uids[place] for n, place in enumerate(whole) if place in uids}
    cut = [*whole.values()]
    since = min(f.window.start for f in cut)
    until = max(f.window.end for f in cut)
    stored = _read_stored_cases(views, since, until, {f.analyzer for f in cut})
    cases = case_identity.resolve(cut, stored, uids)
    cases = case_identity.resolve(cases, _read_seen_cases(views, since), uids)
    ids = {place: case.id for place, case in zip(whole, cases, strict=True)}
    return ResolvedCases(tuple(cases), uids, tuple(ids[case_of[n]] for n in range(len(findings))))


def join_parts(views: Views, findings: Sequence[Finding]) -> list[Finding]:
    """Return findings since their objects were created; those separated by silence are one."""
    if not findings:
        return []
    uids, parts = _match_objects(views, findings)
    return [*_merge_over_silence(views, parts, uids)[0].values()]


def _merge_over_silence(
    views: Views, parts: Sequence[Finding], uids: Mapping[int, str]
) -> tuple[dict[int, Finding], list[int]]:
    """Return findings by index; those separated only by missing samples are joined to one.

    Also return the index of the finding that each became part of. Samples that show activity, and
    times in which the workload held no device, separate findings. The gap itself adds no hours.
    """
    order = sorted(range(len(parts)), key=lambda n: (get_kin(parts[n]), parts[n].window.start))
    before = {
        later: earlier
        for earlier, later in pairwise(order)
        if get_kin(parts[earlier]) == get_kin(parts[later])
        and uids.get(earlier) == uids.get(later)
        and timedelta() < parts[later].window.start - parts[earlier].window.end <= LONGEST_SILENCE
    }
    merged, case_of = dict(enumerate(parts)), [*range(len(parts))]
    silent = _find_silent_gaps(views, parts, before)
    for later in order:
        if later in silent:
            earlier = before[later]
            merged[later] = case_identity.extend_over_silence(parts[later], merged.pop(earlier))
            case_of = [later if place == earlier else place for place in case_of]
    return merged, case_of


def _find_silent_gaps(
    views: Views, parts: Sequence[Finding], before: Mapping[int, int]
) -> set[int]:
    """Return the findings with no sample of their devices since the finding before them."""
    if not before:
        return set()
    kins = [get_kin(parts[n]) for n in before]
    begins = [_to_naive_utc(parts[n].window.end) for n in before.values()]
    ends = [_to_naive_utc(parts[n].window.start) for n in before]
    parameters = {
        "numbers": [*before],
        "clusters": [kin[2] for kin in kins],
        "kinds": [kin[3] for kin in kins],
        "namespaces": [kin[4] for kin in kins],
        "workloads": [kin[5] for kin in kins],
        "begins": begins,
        "ends": ends,
        "since": min(begins),
        "until": max(ends),
    }
    return {row["number"] for row in views.query(load_sql("unseen_gaps"), parameters).to_pylist()}


def _read_stored_cases(
    views: Views, since: datetime, until: datetime, analyzers: Iterable[str]
) -> dict[CaseKin, list[StoredCase]]:
    parameters = {
        "since": _to_naive_utc(since),
        "until": _to_naive_utc(until),
        "analyzers": sorted(analyzers),
    }
    stretches: dict[CaseKin, list[StoredCase]] = {}
    for row in views.query(load_sql("stored_cases"), parameters).to_pylist():
        kin = (row["analyzer"], row["kind"], *_build_workload(row))
        stretch = StoredCase(
            id=row["id"],
            end=_to_aware_utc(row["end"]),
            start=_to_aware_utc(row["start"]),
            uid=row["uid"],
            gpu_hours=row["gpu_hours"],
            usd=row["usd"],
        )
        stretches.setdefault(kin, []).append(stretch)
    return stretches


def _read_seen_cases(views: Views, since: datetime) -> dict[CaseKin, list[StoredCase]]:
    stretches: dict[CaseKin, list[StoredCase]] = {}
    for row in views.query(load_sql("seen_cases"), {"since": _to_naive_utc(since)}).to_pylist():
        document: Mapping[str, Any] = json.loads(row["document"])
        start, usd = document.get("start"), document.get("usd")
        stretch = StoredCase(
            id=row["id"],
            end=datetime.fromisoformat(document["until"]),
            # Rows of older journals have no start: then the time of the row is the latest possible
            # start.
            start=datetime.fromisoformat(start) if start else _to_aware_utc(row["first_seen"]),
            uid=document.get("uid"),
            gpu_hours=document.get("gpu_hours"),
            usd=None if usd is None else Decimal(usd),
        )
        if stretch.end > since:
            stretches.setdefault(tuple(document["kin"]), []).append(stretch)
    return stretches


def _match_objects(
    views: Views, findings: Sequence[Finding]
) -> tuple[dict[int, str], list[Finding]]:
    """Return the uids of the findings' objects, and the findings since these were created.

    If several objects had one name in a stretch, the finding is about the last one.
    """
    since = min(f.window.start for f in findings) - timedelta(hours=1)
    objects: dict[Workload, list[tuple[datetime, datetime, str]]] = {}
    for row in views.query(
        load_sql("workload_objects"), {"since": _to_naive_utc(since)}
    ).to_pylist():
        life = _to_aware_utc(row["born"]), _to_aware_utc(row["seen_until"]), row["uid"]
        objects.setdefault(_build_workload(row), []).append(life)
    uids, cut = {}, []
    for n, finding in enumerate(findings):
        lives = [
            life
            for life in objects.get(get_kin(finding)[2:], ())
            if life[0] < finding.window.end and life[1] > finding.window.start
        ]
        if lives:
            born, _, uids[n] = max(lives)
            cut.append(case_identity.cut_before(finding, born) if len(lives) > 1 else finding)
        else:
            cut.append(finding)
    return uids, cut


def _build_workload(row: Mapping[str, Any]) -> Workload:
    return row["cluster"], row["workload_kind"], row["namespace"], row["workload"]


def _to_naive_utc(timestamp: datetime) -> datetime:
    return timestamp.astimezone(UTC).replace(tzinfo=None)


def _to_aware_utc(timestamp: datetime) -> datetime:
    return timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)

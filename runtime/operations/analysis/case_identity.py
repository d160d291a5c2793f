"""Identify the cases that findings continue: as stored by analyses, and as seen by the actor.

    table finding ──────────────┐
    table action (seen rows) ───┼─► fallow.case_identity ─► one id, one start, all its hours
    table pod (uids) ───────────┘

The actor's cases have the last word, because notices and approvals refer to ids of the journal.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from fallow import case_identity
from fallow.case_identity import CaseKin, StoredCase
from fallow.models import Finding
from fallow.protocols import Views
from runtime.operations.queries import load_sql
from warehouse.case_parts import (
    build_workload,
    match_objects,
    merge_over_silence,
    to_aware_utc,
    to_naive_utc,
)


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
    uids, parts = match_objects(views, findings)
    whole, case_of = merge_over_silence(views, parts, uids)
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
    uids, parts = match_objects(views, findings)
    return [*merge_over_silence(views, parts, uids)[0].values()]


def _read_stored_cases(
    views: Views, since: datetime, until: datetime, analyzers: Iterable[str]
) -> dict[CaseKin, list[StoredCase]]:
    parameters = {
        "since": to_naive_utc(since),
        "until": to_naive_utc(until),
        "analyzers": sorted(analyzers),
    }
    stretches: dict[CaseKin, list[StoredCase]] = {}
    for row in views.query(load_sql("stored_cases"), parameters).to_pylist():
        kin = (row["analyzer"], row["kind"], *build_workload(row))
        stretch = StoredCase(
            id=row["id"],
            end=to_aware_utc(row["end"]),
            start=to_aware_utc(row["start"]),
            uid=row["uid"],
            gpu_hours=row["gpu_hours"],
            usd=row["usd"],
        )
        stretches.setdefault(kin, []).append(stretch)
    return stretches


def _read_seen_cases(views: Views, since: datetime) -> dict[CaseKin, list[StoredCase]]:
    stretches: dict[CaseKin, list[StoredCase]] = {}
    for row in views.query(load_sql("seen_cases"), {"since": to_naive_utc(since)}).to_pylist():
        document: Mapping[str, Any] = json.loads(row["document"])
        start, usd = document.get("start"), document.get("usd")
        stretch = StoredCase(
            id=row["id"],
            end=datetime.fromisoformat(document["until"]),
            # Rows of older journals have no start: then the time of the row is the latest possible
            # start.
            start=datetime.fromisoformat(start) if start else to_aware_utc(row["first_seen"]),
            uid=document.get("uid"),
            gpu_hours=document.get("gpu_hours"),
            usd=None if usd is None else Decimal(usd),
        )
        if stretch.end > since:
            stretches.setdefault(tuple(document["kin"]), []).append(stretch)
    return stretches

"""The cases that findings go on: as analyses stored them, and as the actor's turns saw them.

    table finding ──────────────┐
    table action (seen rows) ───┼─► fallow.continuity ─► one id, one start, the hours of all of it
    table pod (uids) ───────────┘

What turns saw comes last: notices and approvals hang on the ids of the journal.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import msgspec

from fallow import continuity
from fallow.continuity import TOLERANCE, Kin, Stretch, kin_of
from fallow.nouns import Finding
from fallow.seams import Analyzer, Views
from fallow.window import Window
from runtime.queries import sql

LONGEST_SILENCE = timedelta(hours=6)
"""An outage of an exporter that is repaired within a shift. After a longer one nobody knows whether
the owner came and went: a new case, with a notice of its own, is the careful answer."""

Workload = tuple[str, str, str, str]
"""cluster, kind, namespace, name"""


class Cases(msgspec.Struct, frozen=True):
    """Findings as the cases that they go on, and the uids of their objects by place."""

    findings: tuple[Finding, ...]
    uids: dict[int, str]
    ids: tuple[str, ...] = ()
    """Of the case of each finding that was resolved: several may be parts of one."""


def resolve(views: Views, findings: Sequence[Finding]) -> Cases:
    """Return the cases that findings go on, in their order, under their ids and starts.

    Findings of one workload between which samples only were missing are one case.
    """
    if not findings:
        return Cases((), {})
    uids, parts = _objects(views, findings)
    whole, case_of = _over_silence(views, parts, uids)
    uids = {n: uids[place] for n, place in enumerate(whole) if place in uids}
    cut = [*whole.values()]
    since = min(f.window.start for f in cut)
    until = max(f.window.end for f in cut)
    stored = _stored(views, since, until, {f.analyzer for f in cut})
    cases = continuity.resolve(cut, stored, uids)
    cases = continuity.resolve(cases, _seen(views, since), uids)
    ids = {place: case.id for place, case in zip(whole, cases, strict=True)}
    return Cases(tuple(cases), uids, tuple(ids[case_of[n]] for n in range(len(findings))))


def begun_before(
    views: Views, cases: Cases, analyzer: Analyzer, brief: Window, whole: Window
) -> Cases:
    """Return cases with the start that a longer window shows of those that no row tells of.

    Where a stretch fills all of the brief window and nothing is stored of it, its analyzer judges
    the whole one, once: what is found is stored, by whoever stores, and read the next time.
    """
    clipped = [
        n
        for n, case in enumerate(cases.findings)
        if brief.start <= case.window.start <= brief.start + TOLERANCE
    ]
    if not clipped or whole.start >= brief.start:
        return cases
    longer = continuity.grouped(resolve(views, [*analyzer.find(views, whole)]).findings)
    found = continuity.resolve([cases.findings[n] for n in clipped], longer)
    findings = dict(enumerate(cases.findings))
    findings.update(zip(clipped, resolve(views, found).findings, strict=True))
    return Cases(tuple(findings.values()), cases.uids)


def _over_silence(
    views: Views, parts: Sequence[Finding], uids: Mapping[int, str]
) -> tuple[dict[int, Finding], list[int]]:
    """Return findings by place, those that only missing samples part as one, the last of them.

    Also the place of the one that each became part of. Samples that show the devices at work, or a
    workload that held no device, part what they lie between. The silence itself costs no hours.
    """
    order = sorted(range(len(parts)), key=lambda n: (kin_of(parts[n]), parts[n].window.start))
    before = {
        later: earlier
        for earlier, later in pairwise(order)
        if kin_of(parts[earlier]) == kin_of(parts[later])
        and uids.get(earlier) == uids.get(later)
        and timedelta() < parts[later].window.start - parts[earlier].window.end <= LONGEST_SILENCE
    }
    made, case_of = dict(enumerate(parts)), [*range(len(parts))]
    silent = _unseen(views, parts, before)
    for later in order:
        if later in silent:
            earlier = before[later]
            made[later] = continuity.over_silence(parts[later], made.pop(earlier))
            case_of = [later if place == earlier else place for place in case_of]
    return made, case_of


def _unseen(views: Views, parts: Sequence[Finding], before: Mapping[int, int]) -> set[int]:
    """Return the findings before which no sample of their devices came since the earlier one."""
    if not before:
        return set()
    kins = [kin_of(parts[n]) for n in before]
    begins = [_naive(parts[n].window.end) for n in before.values()]
    ends = [_naive(parts[n].window.start) for n in before]
    asked = {
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
    return {row["number"] for row in views.query(sql("unseen_gaps"), asked).to_pylist()}


def _stored(
    views: Views, since: datetime, until: datetime, analyzers: Iterable[str]
) -> dict[Kin, list[Stretch]]:
    asked = {"since": _naive(since), "until": _naive(until), "analyzers": sorted(analyzers)}
    made: dict[Kin, list[Stretch]] = {}
    for row in views.query(sql("stored_cases"), asked).to_pylist():
        kin = (row["analyzer"], row["kind"], *_workload(row))
        stretch = Stretch(
            id=row["id"],
            end=_aware(row["end"]),
            start=_aware(row["start"]),
            uid=row["uid"],
            gpu_hours=row["gpu_hours"],
            usd=row["usd"],
        )
        made.setdefault(kin, []).append(stretch)
    return made


def _seen(views: Views, since: datetime) -> dict[Kin, list[Stretch]]:
    made: dict[Kin, list[Stretch]] = {}
    for row in views.query(sql("seen_cases"), {"since": _naive(since)}).to_pylist():
        said: Mapping[str, Any] = json.loads(row["document"])
        start, usd = said.get("start"), said.get("usd")
        stretch = Stretch(
            id=row["id"],
            end=datetime.fromisoformat(said["until"]),
            # Rows of older journals do not say since when: it was seen then, at least.
            start=datetime.fromisoformat(start) if start else _aware(row["first_seen"]),
            uid=said.get("uid"),
            gpu_hours=said.get("gpu_hours"),
            usd=None if usd is None else Decimal(usd),
        )
        if stretch.end > since:
            made.setdefault(tuple(said["kin"]), []).append(stretch)
    return made


def _objects(views: Views, findings: Sequence[Finding]) -> tuple[dict[int, str], list[Finding]]:
    """Return the uids of the findings' objects, and the findings since these were made.

    Where several objects bore a name in a stretch, the last one is what it is about.
    """
    since = min(f.window.start for f in findings) - timedelta(hours=1)
    objects: dict[Workload, list[tuple[datetime, datetime, str]]] = {}
    for row in views.query(sql("workload_objects"), {"since": _naive(since)}).to_pylist():
        life = _aware(row["born"]), _aware(row["seen_until"]), row["uid"]
        objects.setdefault(_workload(row), []).append(life)
    uids, cut = {}, []
    for n, finding in enumerate(findings):
        lives = [
            life
            for life in objects.get(kin_of(finding)[2:], ())
            if life[0] < finding.window.end and life[1] > finding.window.start
        ]
        if lives:
            born, _, uids[n] = max(lives)
            cut.append(continuity.since(finding, born) if len(lives) > 1 else finding)
        else:
            cut.append(finding)
    return uids, cut


def _workload(row: Mapping[str, Any]) -> Workload:
    return row["cluster"], row["workload_kind"], row["namespace"], row["workload"]


def _naive(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(tzinfo=None)


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

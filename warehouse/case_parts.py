"""Find the parts of cases: since when their object exists, and which are separated by silence only.

    table pod (uids) ───────► the part of a finding since its object was created
    tables pod, allocation, ► findings of one workload with nothing but missing samples in between:
    sample                    one case

Live verdicts, analyses and back-tests use both.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

from fallow import case_identity
from fallow.case_identity import get_kin
from fallow.models import Finding
from fallow.protocols import Views
from warehouse.steps import SERVING_LOAD, compose_query, load_step

LONGEST_SILENCE = timedelta(hours=6)
"""The length of an exporter outage that is repaired within one shift. After a longer gap it is not
known whether the owner used the workload: then the careful choice is a new case with its own
notice."""

Workload = tuple[str, str, str, str]
"""cluster, kind, namespace, name"""


RAW = "sample"


class Gap(NamedTuple):
    """The time between two findings of a workload."""

    number: int
    workload: Workload
    begin: datetime
    end: datetime


def match_objects(
    views: Views, findings: Sequence[Finding]
) -> tuple[dict[int, str], list[Finding]]:
    """Return the uids of the findings' objects, and the findings since these were created.

    If several objects had one name in a stretch, the finding is about the last one.
    """
    since = min(f.window.start for f in findings) - timedelta(hours=1)
    objects: dict[Workload, list[tuple[datetime, datetime, str]]] = {}
    for row in views.query(
        load_step("inventory/workload_objects"), {"since": to_naive_utc(since)}
    ).to_pylist():
        life = to_aware_utc(row["born"]), to_aware_utc(row["seen_until"]), row["uid"]
        objects.setdefault(build_workload(row), []).append(life)
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


def merge_over_silence(
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
    silent = find_silent_gaps(
        views,
        [
            Gap(n, get_kin(parts[n])[2:], parts[m].window.end, parts[n].window.start)
            for n, m in before.items()
        ],
    )
    for later in order:
        if later in silent:
            earlier = before[later]
            merged[later] = case_identity.extend_over_silence(parts[later], merged.pop(earlier))
            case_of = [later if place == earlier else place for place in case_of]
    return merged, case_of


def find_silent_gaps(views: Views, gaps: Sequence[Gap], source: str = RAW) -> set[int]:
    """Return the numbers of the gaps in which nothing of the workload was seen, and nobody used it.

    `source`: `sample`, or `rollup_5m` where five-minute buckets were judged.
    """
    if not gaps:
        return set()
    begins, ends = ([to_naive_utc(getattr(g, end)) for g in gaps] for end in ("begin", "end"))
    columns = zip(*(g.workload for g in gaps), strict=True)
    parameters = {
        "numbers": [g.number for g in gaps],
        **dict(
            zip(("clusters", "kinds", "namespaces", "workloads"), map(list, columns), strict=True)
        ),
        "begins": begins,
        "ends": ends,
        "since": min(begins),
        "until": max(ends),
    }
    step = "unseen_gaps" if source == RAW else "unseen_bucket_gaps"
    sql = compose_query(
        (SERVING_LOAD, "inventory/gap_devices", "inventory/gap_uses", f"inventory/{step}"),
        once=("gap_devices",),
    )
    return {row["number"] for row in views.query(sql, parameters).to_pylist()}


def build_workload(row: Mapping[str, Any]) -> Workload:
    """Return the workload of a row."""
    return row["cluster"], row["workload_kind"], row["namespace"], row["workload"]


def to_naive_utc(timestamp: datetime) -> datetime:
    """Return a timestamp as the engine takes it."""
    return timestamp.astimezone(UTC).replace(tzinfo=None)


def to_aware_utc(timestamp: datetime) -> datetime:
    """Return a timestamp of a row with its timezone."""
    return timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)

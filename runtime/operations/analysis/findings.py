"""Convert findings to rows and documents: a row of `finding` has the whole printed document."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from dashboards.detail_words import describe_verb
from dashboards.figures.inbox import choose_steps
from fallow.errors import UsageError
from fallow.models import PLATFORM, Finding, Recommendation, Subject
from fallow.protocols import Views
from fallow.tables import Batch
from fallow.window import Window
from warehouse.steps import compose_query

if TYPE_CHECKING:
    from analyzers.ranking import RankedFinding

IN_WINDOW = (
    "warehouse:findings/latest_findings",
    "warehouse:findings/finding_parts",
    "findings_in_window",
)
BLOCK_COLUMNS = ("workload", "verb", "cluster", "team", "evidence", "workloads", "gpu_hours", "usd")
MOST_BLOCKS = 5
_ENCODER = msgspec.json.Encoder(decimal_format="number")


def document(finding: Finding) -> dict[str, Any]:
    """Return a finding as `fallow.findings/v1` prints it: money a number, times RFC 3339."""
    body: dict[str, Any] = msgspec.json.decode(_ENCODER.encode(finding))
    for printed, advice in zip(body["recommendations"], finding.recommendations, strict=True):
        # Default values are not stored, but they are printed.
        printed |= {"saving": advice.saving, "effort": advice.effort}
    return body


def build_rows(
    findings: Sequence[Finding], *, found_at: datetime, uids: Mapping[int, str] | None = None
) -> Batch:
    """Return rows of the `finding` table; `uids` of the objects, by the finding's index."""
    uids = uids or {}
    timestamp = found_at.astimezone(UTC).replace(tzinfo=None)
    return Batch.of(
        "finding",
        {
            "id": [f.id for f in findings],
            "analyzer": [f.analyzer for f in findings],
            "kind": [f.kind for f in findings],
            "cluster": [f.subject.cluster for f in findings],
            "namespace": [f.subject.namespace for f in findings],
            "workload_kind": [f.subject.workload_kind for f in findings],
            "workload": [f.subject.workload for f in findings],
            "uid": [uids.get(n) for n in range(len(findings))],
            "start": [f.window.start.astimezone(UTC).replace(tzinfo=None) for f in findings],
            "end": [f.window.end.astimezone(UTC).replace(tzinfo=None) for f in findings],
            "found_at": [timestamp] * len(findings),
            "verdict": [f.verdict for f in findings],
            "evidence": [f.evidence for f in findings],
            "confidence": [f.confidence for f in findings],
            "gpu_hours": [f.gpu_hours for f in findings],
            "usd": [f.usd for f in findings],
            "document": [_ENCODER.encode(f).decode() for f in findings],
        },
    )


def build_trial_rows(findings: Sequence[Finding]) -> Batch:
    """Return rows of the `trial_finding` table."""
    unique = {finding.id: finding for finding in findings}
    documents = [_ENCODER.encode(finding).decode() for finding in unique.values()]
    return Batch.of("trial_finding", {"id": [*unique], "document": documents})


def read(views: Views, prefix: str) -> Finding:
    """Return the stored finding whose id begins with `prefix`: the site's, or else a trial's.

    Raises:
        UsageError: no finding does, or several do.
    """
    matches = views.query(
        compose_query(("findings_by_prefix",), "runtime.operations.queries"), {"prefix": prefix}
    ).to_pylist()
    if not matches:
        raise UsageError(
            f"no finding {prefix!r} in this warehouse",
            hint="fallow analyze lists the ids; fallow incidents ID is about an incident",
        )
    exact = [row for row in matches if row["id"] == prefix]
    if len(matches) > 1 and not exact:
        ids = ", ".join(row["id"] for row in matches)
        raise UsageError(f"{prefix!r} begins several findings", hint=f"one of: {ids}")
    stored: Mapping[str, Any] = (exact or matches)[0]
    return msgspec.json.decode(stored["document"], type=Finding)


def read_latest(
    views: Views, window: Window, cluster: str | None = None, *, without: Collection[str] = ()
) -> list[Finding]:
    """Return the findings of each analyzer's last run, `without` some, that touch a window."""
    return [finding for finding, _ in read_parts(views, window, cluster, without=without)]


def read_parts(
    views: Views, window: Window, cluster: str | None = None, *, without: Collection[str] = ()
) -> list[tuple[Finding, float]]:
    """Return the findings of `read_latest`, and which part of each is in the window."""
    table = views.query(
        compose_query(IN_WINDOW, "runtime.operations.queries"),
        {
            "since": window.start,
            "until": window.end,
            "cluster": cluster,
            "without": sorted(without),
        },
    )
    return [
        (msgspec.json.decode(row["document"], type=Finding), row["part"])
        for row in table.to_pylist()
    ]


def format_subject(subject: Subject) -> str:
    """Return the subject of a finding as text: namespace/Kind/name."""
    parts = (subject.namespace, subject.workload_kind, subject.workload)
    return "/".join(filter(None, parts))


def build_blocks(ranked: "Sequence[RankedFinding]") -> list[dict[str, Any]]:
    """Return the blocks of actions that save most, as pages and reports list them."""
    rows = []
    for row in ranked:
        subject, advice = row.finding.subject, row.finding.recommendations
        first = max(advice, key=_get_hours, default=None)
        rows.append(
            {
                "id": row.finding.id,
                "cluster": subject.cluster,
                "analyzer": row.finding.analyzer,
                "kind": row.finding.kind,
                "evidence": row.finding.evidence,
                "team": subject.team or subject.namespace or PLATFORM,
                "workload": format_subject(subject),
                "verb": first and describe_verb(first.verb),
                "gpu_hours": row.gpu_hours,
                "usd": row.usd,
            }
        )
    blocks = choose_steps(rows, MOST_BLOCKS)
    return [{name: block[name] for name in BLOCK_COLUMNS} for block in blocks]


def _get_hours(advice: Recommendation) -> float:
    return (advice.marginal_gpu_hours or 0.0) + (advice.at_most_gpu_hours or 0.0)


def build_row(ranked: "RankedFinding") -> dict[str, Any]:
    """Return a finding as one line of a table."""
    finding = ranked.finding
    subject, advice = finding.subject, finding.recommendations
    return {
        "id": finding.id,
        "analyzer": finding.analyzer,
        "kind": finding.kind,
        "evidence": finding.evidence,
        "namespace": subject.namespace,
        "workload": f"{subject.workload_kind}/{subject.workload}",
        "team": subject.team,
        "cluster": subject.cluster,
        "start": finding.window.start.replace(tzinfo=None),
        "end": finding.window.end.replace(tzinfo=None),
        "gpu_hours": finding.gpu_hours,
        "usd": finding.usd,
        "effort": ranked.effort,
        "impact": ranked.impact,
        "saves_gpu_hours": ranked.gpu_hours,
        "saves_usd": ranked.usd,
        "at_most_gpu_hours": ranked.at_most_gpu_hours,
        "at_most_usd": ranked.at_most_usd,
        "saving": advice[0].saving if advice else None,
        "do": advice[0].verb if advice else None,
    }

"""Build the report's data from the ledger and the findings."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from dashboards.waste_report import (
    OtherFinding,
    PlantedScore,
    StateTotal,
    Story,
    UnjudgedWorkload,
    WasteRow,
    sort_states,
)
from fallow import money
from fallow.models import Finding
from fallow.protocols import Views
from fallow.window import Window, format_duration
from runtime.operations.analysis.findings import format_subject
from runtime.operations.queries import load_sql
from warehouse import coverage
from warehouse.spend import write_estimate_notes

if TYPE_CHECKING:
    from analyzers.ranking import RankedFinding
    from warehouse.audits import AuditFailure


def build_story(
    views: Views,
    window: Window,
    *,
    cluster: str,
    findings: Sequence[Finding],
    others: "Sequence[RankedFinding]" = (),
    failures: "Sequence[AuditFailure]" = (),
    planted: PlantedScore | None = None,
    notes: Sequence[str] = (),
    savings: str = "",
) -> Story:
    """Collect the report's data about one cluster and window.

    `findings` are reported as wastes of workloads, `others` by what they would save; `savings` is
    what all of them save together.
    """
    where = {"since": window.start, "until": window.end, "cluster": cluster}
    states = views.query(load_sql("states"), where).to_pylist()
    fleet = views.query(load_sql("fleet"), where).to_pylist()[0]
    usd = money.split_states({row["state"]: row["usd"] for row in states})
    return Story(
        cluster=cluster,
        window=window,
        gpus=fleet["gpus"],
        nodes=int(fleet["nodes"]),
        states=sort_states(
            [
                StateTotal(row["state"], _convert_hours(row["gpu_hours"]), usd[row["state"]])
                for row in states
            ]
        ),
        wastes=tuple(sum_wastes(findings, window)),
        others=tuple(
            _build_other_finding(row)
            for row in others
            if row.gpu_hours or row.usd or row.at_most_gpu_hours
        ),
        savings=savings,
        unjudged=tuple(
            _build_unjudged(row) for row in views.query(load_sql("unjudged"), where).to_pylist()
        ),
        planted=planted,
        audit_failures=tuple(str(failure) for failure in failures),
        prices=_describe_prices(states),
        unseen=coverage.describe_unseen_gpus(views, window, cluster) or "",
        notes=(*notes, *_write_notes(states)),
    )


def _write_notes(states: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what the story's dollars and owners lack."""
    if unpriced := sum(row["unpriced_gpu_hours"] or 0.0 for row in states):
        yield f"{unpriced:,.1f} GPU-hours have no price and no dollars in this story."
    yield from write_estimate_notes(
        sum(row["estimated_gpu_hours"] or 0.0 for row in states),
        money.sum_known([row["estimated_usd"] for row in states]),
    )
    if ownerless := sum(row["ownerless_gpu_hours"] or 0.0 for row in states):
        yield (
            f"The owner of {ownerless:,.1f} GPU-hours is not known: each of their pods counts as a "
            "workload of its own. kube-state-metrics names the owners."
        )


def sum_wastes(findings: Sequence[Finding], window: Window) -> list[WasteRow]:
    """Add the findings of a workload up by kind; the most expensive first."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        groups.setdefault(get_waste_key(finding), []).append(finding)
    # In cents that sum to a total that is rounded once: the total of the findings.
    usd = money.apportion([_sum(group) for group in groups.values()])
    wastes = [
        _build_waste_row(group, window, paid)
        for group, paid in zip(groups.values(), usd, strict=True)
    ]
    return sorted(wastes, key=lambda w: (-(w.usd or Decimal()), -w.gpu_hours, w.workload))


def get_waste_key(finding: Finding) -> tuple[str, ...]:
    """Return what the findings have in common that a person reads as one waste of several times."""
    s = finding.subject
    return (s.cluster, s.namespace, s.workload_kind, s.workload, finding.kind)


def _sum(group: Sequence[Finding]) -> Decimal | None:
    priced = [f.usd for f in group if f.usd is not None]
    return sum(priced, Decimal()) if priced else None


def _build_waste_row(group: Sequence[Finding], window: Window, usd: Decimal | None) -> WasteRow:
    largest = max(group, key=lambda f: (f.gpu_hours, f.id))
    subject = largest.subject
    first = min(f.window.start for f in group)
    times = f", {len(group)} times" if len(group) > 1 else ""
    unsure = sum(f.evidence == "suspected" for f in group)
    if largest.evidence == "confirmed" and unsure:
        times += f" ({unsure} only suspected)"
    if len(group) == 1 and largest.window.end >= window.end:
        times = f" ({format_duration((window.end - first).total_seconds())})"
    advice = largest.recommendations[0] if largest.recommendations else None
    return WasteRow(
        workload=f"{subject.namespace}/{subject.workload}",
        owner=f"{subject.team or subject.namespace} ({subject.workload_kind})",
        kind=largest.kind,
        since=f"{first:%a %Y-%m-%d %H:%M}{times}",
        gpu_hours=_convert_hours(sum(f.gpu_hours for f in group)),
        usd=usd,
        evidence=largest.evidence,
        why=describe_reason(largest),
        advice=f"{advice.verb} {advice.target}: {advice.why}" if advice else "",
        finding=largest.id,
    )


def _build_other_finding(row: "RankedFinding") -> OtherFinding:
    finding, advice = row.finding, row.finding.recommendations[0]
    bound = not row.gpu_hours
    return OtherFinding(
        subject=format_subject(finding.subject),
        analyzer=finding.analyzer,
        kind=finding.kind,
        saving="at most" if bound else advice.saving,
        gpu_hours=_convert_hours(row.at_most_gpu_hours if bound else row.gpu_hours),
        usd=_round_to_cents(row.at_most_usd if bound else row.usd),
        evidence=finding.evidence,
        why=describe_reason(finding),
        advice=f"{advice.verb} {advice.target}",
        finding=finding.id,
    )


def describe_reason(finding: Finding) -> str:
    """Return the evidence of a finding as a sentence."""
    return str(finding.details.get("why", finding.kind))


def _build_unjudged(row: dict[str, Any]) -> UnjudgedWorkload:
    contradicted = float(row["conflict_device_hours"]) > 0
    why = "signals contradict each other" if contradicted else "telemetry missing"
    return UnjudgedWorkload(
        f"{row['namespace']}/{row['workload']}", _convert_hours(row["gpu_hours"]), why
    )


def _describe_prices(states: Sequence[dict[str, Any]]) -> str:
    oldest = [r["oldest_price"] for r in states if r["oldest_price"] is not None]
    newest = [r["newest_price"] for r in states if r["newest_price"] is not None]
    if not oldest:
        return ""
    first, last = min(oldest), max(newest)
    if first.date() == last.date():
        return f"as of {last:%Y-%m-%d}"
    return f"as of {first:%Y-%m-%d} to {last:%Y-%m-%d}"


def _convert_hours(hours: float) -> float:
    """Return hours without the noise of a sum of floats, whose order the engine does not fix.

    Five-minute buckets give ties such as 2,423.05: noise would round them up or down by chance.
    """
    return round(float(hours), money.MICRO_HOURS)


def _round_to_cents(usd: Decimal | None) -> Decimal | None:
    return None if usd is None else money.round_to_cents(usd)

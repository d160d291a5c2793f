"""From the books and the findings to the story's plain record."""

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from dashboards.story import Other, Planted, StateTotal, Story, Unjudged, Waste, in_order
from fallow import money
from fallow.nouns import Finding
from fallow.seams import Views
from fallow.window import Window, format_duration
from runtime.findings import named
from runtime.queries import sql

if TYPE_CHECKING:
    from analyzers.ranking import Ranked
    from warehouse.audits import AuditFailure


def tell(
    views: Views,
    window: Window,
    *,
    cluster: str,
    findings: Sequence[Finding],
    others: "Sequence[Ranked]" = (),
    failures: "Sequence[AuditFailure]" = (),
    planted: Planted | None = None,
    notes: Sequence[str] = (),
) -> Story:
    """Gather what the story says of one cluster and window.

    `findings` are told as wastes of workloads, `others` by what they would save.
    """
    where = {"since": window.start, "until": window.end, "cluster": cluster}
    states = views.query(sql("states"), where).to_pylist()
    fleet = views.query(sql("fleet"), where).to_pylist()[0]
    idle = [row["usd"] if row["state"] == "idle" else Decimal() for row in states]
    usd, _ = money.split([row["usd"] for row in states], idle)
    unpriced = sum(row["unpriced_gpu_hours"] or 0.0 for row in states)
    if unpriced:
        notes = [*notes, f"{unpriced:,.1f} GPU-hours have no price and no dollars in this story."]
    return Story(
        cluster=cluster,
        window=window,
        gpus=float(fleet["gpus"]),
        nodes=int(fleet["nodes"]),
        states=in_order(
            [
                StateTotal(row["state"], row["gpu_hours"], paid)
                for row, paid in zip(states, usd, strict=True)
            ]
        ),
        wastes=tuple(wastes(findings, window)),
        others=tuple(_other(row) for row in others if row.gpu_hours or row.usd),
        unjudged=tuple(_unjudged(row) for row in views.query(sql("unjudged"), where).to_pylist()),
        planted=planted,
        audit_failures=tuple(str(failure) for failure in failures),
        prices=_prices(states),
        notes=tuple(notes),
    )


def wastes(findings: Sequence[Finding], window: Window) -> list[Waste]:
    """Add the findings of a workload up by kind; the dearest first."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        s = finding.subject
        key = (s.cluster, s.namespace, s.workload_kind, s.workload, finding.kind)
        groups.setdefault(key, []).append(finding)
    # In cents that sum to what is rounded once: "idle and held" is what was found.
    usd = money.apportion([_sum(group) for group in groups.values()])
    made = [_waste(group, window, paid) for group, paid in zip(groups.values(), usd, strict=True)]
    return sorted(made, key=lambda w: (-(w.usd or Decimal()), -w.gpu_hours, w.workload))


def _sum(group: Sequence[Finding]) -> Decimal | None:
    priced = [f.usd for f in group if f.usd is not None]
    return sum(priced, Decimal()) if priced else None


def _waste(group: Sequence[Finding], window: Window, usd: Decimal | None) -> Waste:
    largest = max(group, key=lambda f: (f.gpu_hours, f.id))
    subject = largest.subject
    first = min(f.window.start for f in group)
    times = f", {len(group)} times" if len(group) > 1 else ""
    unsure = sum(f.evidence == "suspected" for f in group)
    if largest.evidence == "confirmed" and unsure:
        times += f" ({unsure} only suspected)"
    if len(group) == 1 and largest.window.end >= window.end:
        times = f" ({format_duration((window.end - first).total_seconds())})"
    advised = largest.recommendations[0] if largest.recommendations else None
    return Waste(
        workload=f"{subject.namespace}/{subject.workload}",
        owner=f"{subject.team or subject.namespace} ({subject.workload_kind})",
        kind=largest.kind,
        since=f"{first:%a %Y-%m-%d %H:%M}{times}",
        gpu_hours=sum(f.gpu_hours for f in group),
        usd=usd,
        evidence=largest.evidence,
        why=because(largest),
        advice=f"{advised.verb} {advised.target}: {advised.why}" if advised else "",
        finding=largest.id,
    )


def _other(row: "Ranked") -> Other:
    finding, advice = row.finding, row.finding.recommendations[0]
    return Other(
        subject=named(finding.subject),
        analyzer=finding.analyzer,
        kind=finding.kind,
        saving=advice.saving,
        gpu_hours=row.gpu_hours,
        usd=_cents(row.usd),
        evidence=finding.evidence,
        why=because(finding),
        advice=f"{advice.verb} {advice.target}",
        finding=finding.id,
    )


def because(finding: Finding) -> str:
    """Say in words what a finding rests on."""
    return str(finding.details.get("why", finding.kind))


def _unjudged(row: dict[str, Any]) -> Unjudged:
    contradicted = float(row["conflict_device_hours"]) > 0
    why = "witnesses contradict each other" if contradicted else "telemetry missing"
    return Unjudged(f"{row['namespace']}/{row['workload']}", float(row["gpu_hours"]), why)


def _prices(states: Sequence[dict[str, Any]]) -> str:
    oldest = [r["oldest_price"] for r in states if r["oldest_price"] is not None]
    newest = [r["newest_price"] for r in states if r["newest_price"] is not None]
    if not oldest:
        return ""
    first, last = min(oldest), max(newest)
    if first.date() == last.date():
        return f"as of {last:%Y-%m-%d}"
    return f"as of {first:%Y-%m-%d} to {last:%Y-%m-%d}"


def _cents(usd: Decimal | None) -> Decimal | None:
    return None if usd is None else money.cents(usd)

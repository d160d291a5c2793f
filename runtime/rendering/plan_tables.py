"""Render plans, refusals and backtests as rows, documents and sentences."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from actions.gate_answers import format_subject
from dashboards.detail_words import describe_verb
from dashboards.figures import policy_actions
from fallow.action_models import Decision, Facts, Reason
from fallow.window import format_duration
from runtime.rendering.tables import name_clusters, render

if TYPE_CHECKING:
    from actions.backtest import AbortedEvaluation, Backtest
    from actions.plan import RefusedCase
    from runtime.operations.acting.plans import PlanResult, WhyNotReport

SIGNS = {"act": "+", "snapshot": "+", "observe": "."}
"""Of allowed steps: it would be done now, or is only listed; ~ = its owner is notified."""
ORDER = "+=~.-"
"""Held ones wait for a person: they come before those that change nothing."""
QUIET = {
    "=": "held: why says until when, or for what",
    "~": "notified: their owners get a notice, nothing changes",
    ".": "listed: their policies only observe",
}
DOLLARS = (
    "usd_per_day: 24 hours at the rate of the last waste; `fallow analyze` has the dollars of the "
    "hours that were wasted. at_most_usd_per_day: hours in use, a bound"
)


def build_rows(result: "PlanResult", top: int = 0) -> list[dict[str, Any]]:
    """Return a plan as rows: what would be done, what is held, what is refused, with the reason."""
    facts = {f.finding.id: f for f in result.facts}
    decisions, refused = result.plan.decisions, result.plan.refused
    table_rows = [_build_decision_row(d, result, facts.get(d.finding)) for d in decisions]
    table_rows += [_build_refusal_row(r, result, facts.get(r.finding)) for r in refused]
    table_rows.sort(
        key=lambda row: (
            ORDER.index(row[""]),
            -(row["usd_per_day"] or 0),
            -(row["at_most_usd_per_day"] or 0),
        )
    )
    table_rows = name_clusters(table_rows)
    return table_rows[:top] if top else table_rows


def document(result: "PlanResult") -> dict[str, Any]:
    """Return a plan as `fallow.plan/v1`."""
    allowed = list_allowed_decisions(result)
    bounds = {f.finding.id for f in result.facts if f.recommendation.is_bound}
    aborted, clusters = result.plan.aborted, result.plan.list_clusters()
    of_several: dict[str, Any] = {}
    if len(clusters) > 1:
        of_several["aborted_clusters"] = [
            {"cluster": cluster, "gate": reason.gate, "text": reason.text}
            for cluster, reason in aborted.items()
        ]
    return {
        "at": result.at,
        "aborted": next(iter(aborted.values()), None) if len(aborted) == len(clusters) else None,
        **of_several,
        "saves": {
            "workloads": len(allowed),
            "gpus": round(sum(d.gpus for d in allowed), 6),
            "gpu_hours_per_day": round(sum(d.gpu_hours_per_day or 0 for d in allowed), 4),
            "usd_per_day": _parse_usd(allowed),
        },
        "decisions": [
            msgspec.to_builtins(d, builtin_types=(Decimal,)) | {"is_bound": d.finding in bounds}
            for d in result.plan.decisions
        ],
        "refused": msgspec.to_builtins(result.plan.refused),
        "cases": [
            {"id": f.id, "since": f.window.start, "gpu_hours": f.gpu_hours, "usd": f.usd}
            for f in result.findings.values()
        ],
        "trusted_by_hand": [
            {"policy": s.policy, "by": s.by, "at": s.at, "reason": s.reason} for s in result.by_hand
        ],
        "held_back": [
            msgspec.to_builtins(row, builtin_types=(Decimal,)) for row in sum_plan(result)
        ],
        "notes": list(result.notes),
    }


def sum_plan(result: "PlanResult") -> list[policy_actions.HeldBack]:
    """Return what teams hold back of a plan, by team and reason."""
    by_finding = {f.finding.id: f for f in result.facts}
    decided = [(d.finding, d.reasons) for d in result.plan.decisions]
    refused = [(r.finding, r.reasons) for r in result.plan.refused]
    cases = [
        policy_actions.PlannedCase(
            facts.owner,
            reasons,
            facts.gpus,
            facts.usd_per_day,
        )
        for finding, reasons in (*decided, *refused)
        if (facts := by_finding.get(finding)) is not None
    ]
    return policy_actions.sum_held_back(cases)


def list_allowed_decisions(result: "PlanResult") -> list[Decision]:
    """Return the decisions that would be carried out now."""
    aborted = result.plan.aborted
    return [d for d in result.plan.decisions if d.subject[0] not in aborted and _sign(d) == "+"]


def plan_notes(result: "PlanResult") -> list[str]:
    """Return the notes beside a plan."""
    lines = [*result.notes, *(f"policy {s.policy} is {s.why}" for s in result.by_hand)]
    several = len(result.plan.list_clusters()) > 1
    for cluster, reason in result.plan.aborted.items():
        where = f" in cluster {cluster}" if several else ""
        lines.append(f"nothing is done{where}: {reason.text}")
    allowed = list_allowed_decisions(result)
    if allowed:
        hours = sum(d.gpu_hours_per_day or 0 for d in allowed)
        usd = _parse_usd(allowed)
        money = "at no known price" if usd is None else f"${usd:,.2f} a day"
        gpus = sum(d.gpus for d in allowed)
        lines.append(
            f"+ {len(allowed)} would be acted upon now: {gpus:g} GPUs, {hours:,.1f} GPU-hours "
            f"and {money} as long as nothing changes"
        )
    else:
        lines.append("nothing would be acted upon now")
    by_sign = Counter(map(_sign, result.plan.decisions))
    lines += [f"{sign} {by_sign[sign]} {words}" for sign, words in QUIET.items() if by_sign[sign]]
    lines.append(DOLLARS)
    for gate, count in Counter(r.reasons[0].gate for r in result.plan.refused if r.reasons).items():
        lines.append(f"- {count} refused first by gate '{gate}'")
    for row in sum_plan(result):
        money = "no known price" if row.usd_per_day is None else f"${row.usd_per_day:,.2f} a day"
        lines.append(f"team {row.team}: {money} of {row.cases} cases, {row.reason}")
    lines.append("fallow why-not WORKLOAD says why in five lines, --gates every gate's answer")
    return lines


def _build_decision_row(
    decision: Decision, result: "PlanResult", facts: Facts | None
) -> dict[str, Any]:
    why = "" if _sign(decision) in "+." else _format_reasons(decision.reasons)
    if decision.next_at is not None:
        why = f"until {decision.next_at:%Y-%m-%d %H:%M}: {why}"
    return {
        "": _sign(decision),
        "step": decision.step,
        "ruling": decision.ruling,
        "cluster": decision.subject[0],
        "workload": format_subject(decision.subject),
        "since": _find_case_start(result, decision.finding),
        "do": describe_verb(decision.verb),
        "policy": decision.policy,
        "gpus": decision.gpus,
        **_split_usd(decision.usd_per_day, facts),
        "gpu_hours_per_day": decision.gpu_hours_per_day,
        "why": why,
        "id": decision.finding,
    }


def _build_refusal_row(
    refused: "RefusedCase", result: "PlanResult", facts: Facts | None
) -> dict[str, Any]:
    return {
        "": "-",
        "step": "",
        "ruling": "deny",
        "cluster": refused.subject[0],
        "workload": format_subject(refused.subject),
        "since": _find_case_start(result, refused.finding),
        "do": describe_verb(facts.recommendation.verb) if facts else "",
        "policy": refused.policy or "none",
        "gpus": facts.gpus if facts else None,
        **_split_usd(facts.usd_per_day if facts else None, facts),
        "gpu_hours_per_day": facts.recommendation.gpu_hours_per_day if facts else None,
        "why": _format_reasons(refused.reasons),
        "id": refused.finding,
    }


def _split_usd(usd: Decimal | None, facts: Facts | None) -> dict[str, Decimal | None]:
    """Return a whole day's dollars; what advice about hours in use could free at most is apart."""
    is_bound = facts is not None and facts.recommendation.is_bound
    return {
        "usd_per_day": None if is_bound else usd,
        "at_most_usd_per_day": usd if is_bound else None,
    }


def _find_case_start(result: "PlanResult", finding: str) -> datetime | None:
    """Return when a case began, as tables show times."""
    case = result.findings.get(finding)
    return None if case is None else case.window.start.replace(tzinfo=None)


def _sign(decision: Decision) -> str:
    if decision.ruling != "allow":
        return "="
    return SIGNS.get(decision.step, "~")


def _format_reasons(reasons: Sequence[Reason]) -> str:
    """Return the first reason, and how many others there are."""
    if not reasons:
        return ""
    first, more = reasons[0], len(reasons) - 1
    return f"{first.gate}: {first.text}" + (f" (+{more})" if more else "")


def _parse_usd(decisions: Sequence[Decision]) -> Decimal | None:
    prices = [d.usd_per_day for d in decisions]
    if not prices or None in prices:
        return None
    return sum((u for u in prices if u is not None), Decimal(0))


def answer_rows(report: "WhyNotReport") -> list[dict[str, Any]]:
    """Return every gate's result as a row."""
    return [
        {
            "policy": policy,
            "finding": finding.id,
            "since": finding.window.start,
            "gate": answer.gate,
            "question": answer.question,
            "answer": "yes" if answer.open else "no",
            "refusal": answer.refusal,
            "until": answer.until,
            "what_would_help": answer.way,
        }
        for finding, policy, gates in report.cases
        for answer in gates
    ]


def describe_report(report: "WhyNotReport") -> dict[str, Any]:
    """Return the fields beside the rows of `fallow.why_not/v1`."""
    return {
        "workload": format_subject(report.subject),
        "at": report.at,
        "doubts": list(report.doubts),
    }


def render_answers(report: "WhyNotReport", output: str, *, every: bool) -> str:
    """Return the gates' results as text: per case, the gates that refuse (`every`: all gates)."""
    parts = []
    for finding, policy, gates in report.cases:
        shut = [a for a in gates if every or not a.open]
        head = (
            f"{finding.kind} {finding.id}, {finding.verdict} since "
            f"{finding.window.start:%Y-%m-%d %H:%M} UTC "
            f"({format_duration(finding.window.seconds)}), under policy {policy}: "
            f"{sum(a.open for a in gates)} of {len(gates)} gates open"
        )
        listed = [
            {
                "gate": a.gate,
                "answer": "yes" if a.open else "no",
                "refusal": a.refusal,
                "what would help": "" if a.open else a.way,
            }
            for a in shut
        ]
        body = render(listed, output, noun="gates") if listed else "every gate is open\n"
        parts.append(f"{head}\n{body}")
    return "\n".join(parts)


def stop_rows(backtest: "Backtest", top: int = 0) -> list[dict[str, Any]]:
    """Return what would have been stopped, as rows."""
    listed = backtest.stops[:top] if top else backtest.stops
    rows = [
        {
            "at": s.at.replace(tzinfo=None),
            "cluster": s.subject[0],
            "workload": format_subject(s.subject),
            "do": s.verb,
            "gpus": s.gpus,
            "idle_since": s.idle_since.replace(tzinfo=None),
            "gpu_hours": s.gpu_hours,
            "usd": s.usd,
            "used_again": None if s.used_at is None else s.used_at.replace(tzinfo=None),
            "reversed": {True: "yes", False: "no", None: "unknown"}[s.is_reversed],
        }
        for s in listed
    ]
    return name_clusters(rows)


def build_backtest_document(backtest: "Backtest") -> dict[str, Any]:
    """Return a backtest as `fallow.backtest/v1`."""
    low, high = backtest.interval
    return {
        "policy": backtest.policy,
        "fingerprint": backtest.fingerprint,
        "window": backtest.window,
        "step_s": backtest.step.total_seconds(),
        "evaluations": backtest.evaluations,
        "exact": backtest.exact,
        "cases": backtest.cases,
        "notified": backtest.notified,
        "stopped": len(backtest.stops),
        "gpu_hours": round(backtest.gpu_hours, 4),
        "usd": backtest.usd,
        "reversals": {
            "within_s": backtest.within.total_seconds(),
            "judged": backtest.judged,
            "reversed": backtest.reversals,
            "rate": backtest.rate,
            "interval_95": [round(low, 6), round(high, 6)],
            "upper_end_95": round(backtest.proof.upper_end, 6),
            "declared": backtest.declared,
            "met": backtest.met,
            "more_stops": 0 if backtest.met else backtest.proof.missing_stops,
            "more_days": 0 if backtest.met else backtest.proof.missing_days,
        },
        "blocked": msgspec.to_builtins(backtest.blocked),
        "aborted": [
            {"at": at, "gate": reason.gate, "text": reason.text}
            for at, reason, _ in backtest.aborted
        ],
        "unknown": list(backtest.unknown),
        "stops": [
            row | {"marks_seen": "after" if stop.is_marked_later else "before"}
            for row, stop in zip(stop_rows(backtest), backtest.stops, strict=True)
        ],
        "unresolved": [
            {
                "workload": format_subject(case.subject),
                "idle_since": case.idle_since,
                "until": case.until,
                "gpu_hours": case.gpu_hours,
                "usd": case.usd,
                "why": case.why,
            }
            for case in backtest.unresolved
        ],
    }


def write_backtest_notes(backtest: "Backtest", top: int = 0) -> list[str]:
    """Return a backtest's verdict as sentences; `top`: number of named cases, 0 = all."""
    start, end = backtest.window.start, backtest.window.end
    usd = backtest.usd
    money = "at no known price" if usd is None else f"${usd:,.2f}"
    scope = (
        f"policy {backtest.policy} ({backtest.fingerprint}) from {start:%Y-%m-%d %H:%M} to "
        f"{end:%Y-%m-%d %H:%M} UTC, {backtest.evaluations} evaluations every "
        f"{format_duration(backtest.step.total_seconds())}"
    )
    freed = (
        f"{backtest.cases} cases, {backtest.notified} owners notified, "
        f"{len(backtest.stops)} stopped: "
        f"{backtest.gpu_hours:,.1f} GPU-hours freed, {money}"
    )
    lines = [scope, freed, _describe_reversals(backtest)]
    if backtest.unknown:
        named = ", ".join(backtest.unknown)
        lines.append(f"unknown to a back-test, not counted as met, asked at each act: {named}")
    lines += [
        f"held by {block.gate}{f' ({block.budget})' if block.budget else ''}: {block.cases} cases, "
        f"{block.never} of them to the end"
        for block in backtest.blocked
    ]
    if later := [s for s in backtest.stops if s.is_marked_later]:
        lines.append(
            f"annotations of {len(later)} of the stopped were first seen after their stop: what "
            "kept them then is not known"
        )
    by_cluster: dict[str, list[AbortedEvaluation]] = {}
    for aborted in backtest.aborted:
        by_cluster.setdefault(aborted.cluster, []).append(aborted)
    lines += [
        f"{len(evaluations)} evaluations aborted whole, first at "
        f"{evaluations[0].at:%Y-%m-%d %H:%M}: {evaluations[0].reason.text}"
        for evaluations in by_cluster.values()
    ]
    return [*lines, *_write_unresolved_notes(backtest, top)]


def _write_unresolved_notes(backtest: "Backtest", top: int) -> list[str]:
    """Return the cases whose object could not be identified."""
    if not backtest.unresolved:
        return []
    count = len(backtest.unresolved)
    cases = "1 case could" if count == 1 else f"{count} cases could"
    lines = [f"the identity of {cases} not be resolved: never stopped here, and not judged"]
    named = backtest.unresolved[:top] if top else backtest.unresolved
    lines += [
        f"  {format_subject(case.subject)}, idle {case.idle_since:%Y-%m-%d %H:%M} to "
        f"{case.until:%Y-%m-%d %H:%M} UTC, {case.gpu_hours:,.1f} GPU-hours: {case.why}"
        for case in named
    ]
    if len(named) < count:
        lines.append(f"  {count - len(named)} more: --top 0, or -o json")
    return lines


def _describe_reversals(backtest: "Backtest") -> str:
    within = format_duration(backtest.within.total_seconds())
    if backtest.rate is None:
        return f"reversals: {backtest.proof} (declared {backtest.declared:.1%} within {within})"
    verdict = "met" if backtest.met else "NOT met"
    unknown = len(backtest.stops) - backtest.judged
    more = f"; {unknown} too late to judge" if unknown else ""
    return (
        f"reversals, used again within {within}: {backtest.proof}{more}; "
        f"declared {backtest.declared:.1%}: {verdict}"
    )

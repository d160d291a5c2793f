"""Plans, refusals and back-tests as rows, documents and sentences."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from fallow.acting import Decision, Reason
from fallow.window import format_duration
from runtime.output import render

if TYPE_CHECKING:
    from actions.backtest import Backtest
    from actions.planning import Refused
    from runtime.planned import Planned, Told

SIGNS = {"allow": {"act": "+", "snapshot": "+"}, "hold": {}, "deny": {}}
"""+ it would be done now, ~ its owner is told or it is watched, = it is held, - it is refused."""
PERCENT = 100


def rows(made: "Planned", top: int = 0) -> list[dict[str, Any]]:
    """Return a plan as a diff: what would be done, what is held, what is refused, with why."""
    by_hand = {s.policy: s.why for s in made.by_hand}
    found = [_decided(d, made, by_hand.get(d.policy, "")) for d in made.plan.decisions] + [
        _refused(r, made) for r in made.plan.refused
    ]
    order = "+~=-"
    found.sort(key=lambda row: (order.index(row[""]), -(row["usd_per_day"] or 0)))
    return found[:top] if top else found


def document(made: "Planned") -> dict[str, Any]:
    """Return a plan as `fallow.plan/v1`."""
    allowed = acts(made)
    return {
        "at": made.at,
        "aborted": made.plan.aborted,
        "saves": {
            "workloads": len(allowed),
            "gpus": round(sum(d.gpus for d in allowed), 6),
            "gpu_hours_per_day": round(sum(d.gpu_hours_per_day or 0 for d in allowed), 4),
            "usd_per_day": _usd(allowed),
        },
        "decisions": msgspec.to_builtins(made.plan.decisions, builtin_types=(Decimal,)),
        "refused": msgspec.to_builtins(made.plan.refused),
        "cases": [
            {"id": f.id, "since": f.window.start, "gpu_hours": f.gpu_hours, "usd": f.usd}
            for f in made.findings.values()
        ],
        "trusted_by_hand": [
            {"policy": s.policy, "by": s.by, "at": s.at, "reason": s.reason} for s in made.by_hand
        ],
        "notes": list(made.notes),
    }


def acts(made: "Planned") -> list[Decision]:
    """Return the decisions that would be carried out now."""
    if made.plan.aborted is not None:
        return []
    return [d for d in made.plan.decisions if _sign(d) == "+"]


def said(made: "Planned") -> list[str]:
    """Return what is said beside a plan."""
    lines = [*made.notes, *(f"policy {s.policy} is {s.why}" for s in made.by_hand)]
    if made.plan.aborted is not None:
        lines.append(f"nothing is done: {made.plan.aborted.text}")
    allowed = acts(made)
    if allowed:
        hours = sum(d.gpu_hours_per_day or 0 for d in allowed)
        usd = _usd(allowed)
        money = "at no known price" if usd is None else f"${usd:,.2f} a day"
        gpus = sum(d.gpus for d in allowed)
        lines.append(
            f"+ {len(allowed)} would be acted upon now: {gpus:g} GPUs, {hours:,.1f} GPU-hours "
            f"and {money} as long as nothing changes"
        )
    else:
        lines.append("nothing would be acted upon now")
    for gate, count in Counter(r.reasons[0].gate for r in made.plan.refused if r.reasons).items():
        lines.append(f"- {count} refused first by gate '{gate}'")
    lines.append("fallow why-not WORKLOAD tells every gate's answer")
    return lines


def _decided(decision: Decision, made: "Planned", by_hand: str = "") -> dict[str, Any]:
    cluster, kind, namespace, name = decision.subject
    del cluster
    why = _why(decision.reasons) if decision.ruling != "allow" else by_hand
    if decision.next_at is not None:
        why = f"until {decision.next_at:%Y-%m-%d %H:%M}: {why}"
    return {
        "": _sign(decision),
        "step": decision.step,
        "ruling": decision.ruling,
        "workload": f"{kind}/{namespace}/{name}",
        "since": _since(made, decision.finding),
        "do": decision.verb,
        "policy": decision.policy,
        "gpus": decision.gpus,
        "usd_per_day": decision.usd_per_day,
        "gpu_hours_per_day": decision.gpu_hours_per_day,
        "why": why,
        "id": decision.id,
    }


def _refused(refused: "Refused", made: "Planned") -> dict[str, Any]:
    _, kind, namespace, name = refused.subject
    facts = next((f for f in made.facts if f.finding.id == refused.finding), None)
    return {
        "": "-",
        "step": "",
        "ruling": "deny",
        "workload": f"{kind}/{namespace}/{name}",
        "since": _since(made, refused.finding),
        "do": facts.recommendation.verb if facts else "",
        "policy": refused.policy or "none",
        "gpus": facts.gpus if facts else None,
        "usd_per_day": facts.usd_per_day if facts else None,
        "gpu_hours_per_day": facts.recommendation.gpu_hours_per_day if facts else None,
        "why": _why(refused.reasons),
        "id": refused.finding,
    }


def _since(made: "Planned", finding: str) -> datetime | None:
    """Return when a case began, as tables show moments."""
    case = made.findings.get(finding)
    return None if case is None else case.window.start.replace(tzinfo=None)


def _sign(decision: Decision) -> str:
    if decision.ruling != "allow":
        return "="
    return SIGNS["allow"].get(decision.step, "~")


def _why(reasons: Sequence[Reason]) -> str:
    """Return the first reason, and how many there are besides."""
    if not reasons:
        return ""
    first, more = reasons[0], len(reasons) - 1
    return f"{first.gate}: {first.text}" + (f" (+{more})" if more else "")


def _usd(decisions: Sequence[Decision]) -> Decimal | None:
    known = [d.usd_per_day for d in decisions]
    if not known or None in known:
        return None
    return sum((u for u in known if u is not None), Decimal(0))


def answered(told: "Told") -> list[dict[str, Any]]:
    """Return every gate's answer as a row."""
    return [
        {
            "policy": policy,
            "finding": finding.id,
            "since": finding.window.start,
            "gate": answer.gate,
            "asks": answer.asks,
            "answer": "yes" if answer.open else "no",
            "said": "" if answer.open else answer.said,
            "until": answer.until,
            "what_would_help": answer.way,
        }
        for finding, policy, gates in told.cases
        for answer in gates
    ]


def answered_text(told: "Told", output: str, *, every: bool) -> str:
    """Write the answers for people: case by case, the shut gates (`every`: all)."""
    parts = []
    for finding, policy, gates in told.cases:
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
                "said": "" if a.open else a.said,
                "what would help": "" if a.open else a.way,
            }
            for a in shut
        ]
        body = render(listed, output, noun="gates") if listed else "every gate is open\n"
        parts.append(f"{head}\n{body}")
    return "\n".join(parts)


def stops(made: "Backtest", top: int = 0) -> list[dict[str, Any]]:
    """Return what would have been stopped, as rows."""
    listed = made.stops[:top] if top else made.stops
    return [
        {
            "at": s.at.replace(tzinfo=None),
            "workload": f"{s.subject[1]}/{s.subject[2]}/{s.subject[3]}",
            "do": s.verb,
            "gpus": s.gpus,
            "idle_since": s.idle_since.replace(tzinfo=None),
            "gpu_hours": s.gpu_hours,
            "usd": s.usd,
            "used_again": None if s.used_at is None else s.used_at.replace(tzinfo=None),
            "regretted": {True: "yes", False: "no", None: "unknown"}[s.regretted],
        }
        for s in listed
    ]


def backtest_document(made: "Backtest") -> dict[str, Any]:
    """Return a back-test as `fallow.backtest/v1`."""
    low, high = made.interval
    return {
        "policy": made.policy,
        "fingerprint": made.fingerprint,
        "window": made.window,
        "step_s": made.step.total_seconds(),
        "moments": made.moments,
        "exact": made.exact,
        "cases": made.cases,
        "told": made.told,
        "stopped": len(made.stops),
        "gpu_hours": round(made.gpu_hours, 4),
        "usd": made.usd,
        "regret": {
            "within_s": made.within.total_seconds(),
            "judged": made.judged,
            "regretted": made.regretted,
            "rate": made.rate,
            "interval_95": [round(low, 6), round(high, 6)],
            "upper_end_95": round(made.proof.upper_end, 6),
            "declared": made.declared,
            "met": made.met,
            "more_stops": 0 if made.met else made.proof.more,
            "more_days": 0 if made.met else made.proof.more_days,
        },
        "held": msgspec.to_builtins(made.held),
        "aborted": [
            {"at": at, "gate": reason.gate, "text": reason.text} for at, reason in made.aborted
        ],
        "unknown": list(made.unknown),
        "stops": stops(made),
        "unresolved": [
            {
                "workload": _name(case.subject),
                "idle_since": case.idle_since,
                "until": case.until,
                "gpu_hours": case.gpu_hours,
                "usd": case.usd,
                "why": case.why,
            }
            for case in made.unresolved
        ],
    }


def backtest_said(made: "Backtest", top: int = 0) -> list[str]:
    """Return a back-test's verdict in sentences; `top`: cases named, 0 = all."""
    start, end = made.window.start, made.window.end
    usd = made.usd
    money = "at no known price" if usd is None else f"${usd:,.2f}"
    told = (
        f"policy {made.policy} ({made.fingerprint}) from {start:%Y-%m-%d %H:%M} to "
        f"{end:%Y-%m-%d %H:%M} UTC, {made.moments} moments every "
        f"{format_duration(made.step.total_seconds())}"
    )
    freed = (
        f"{made.cases} cases, {made.told} owners told, {len(made.stops)} stopped: "
        f"{made.gpu_hours:,.1f} GPU-hours freed, {money}"
    )
    lines = [told, freed, _harm(made)]
    if made.unknown:
        named = ", ".join(made.unknown)
        lines.append(f"unknown to a back-test, not counted as met, asked at each act: {named}")
    lines += [
        f"held by {held.gate}{f' ({held.what})' if held.what else ''}: {held.cases} cases, "
        f"{held.never} of them to the end"
        for held in made.held
    ]
    if made.aborted:
        at, reason = made.aborted[0]
        lines.append(
            f"{len(made.aborted)} moments aborted whole, first at {at:%Y-%m-%d %H:%M}: "
            f"{reason.text}"
        )
    return [*lines, *_unresolved(made, top)]


def _unresolved(made: "Backtest", top: int) -> list[str]:
    """Return the cases of which nobody knows which object they were about."""
    if not made.unresolved:
        return []
    count = len(made.unresolved)
    cases = "1 case could" if count == 1 else f"{count} cases could"
    lines = [f"the identity of {cases} not be resolved: never stopped here, and not judged"]
    named = made.unresolved[:top] if top else made.unresolved
    lines += [
        f"  {_name(case.subject)}, idle {case.idle_since:%Y-%m-%d %H:%M} to "
        f"{case.until:%Y-%m-%d %H:%M} UTC, {case.gpu_hours:,.1f} GPU-hours: {case.why}"
        for case in named
    ]
    if len(named) < count:
        lines.append(f"  {count - len(named)} more: --top 0, or -o json")
    return lines


def _name(subject: tuple[str, str, str, str]) -> str:
    """Write a subject (cluster, kind, namespace, name) as Kind/namespace/name."""
    return "/".join(subject[1:])


def _harm(made: "Backtest") -> str:
    within = format_duration(made.within.total_seconds())
    if made.rate is None:
        return f"reversals: {made.proof} (declared {made.declared:.1%} within {within})"
    verdict = "met" if made.met else "NOT met"
    unknown = len(made.stops) - made.judged
    more = f"; {unknown} too late to judge" if unknown else ""
    return (
        f"reversals, used again within {within}: {made.proof}{more}; "
        f"declared {made.declared:.1%}: {verdict}"
    )

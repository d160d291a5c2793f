"""Actions, steps and requests as rows for eyes and machines."""

from typing import Any

import msgspec

from actions.journal import Record, Told
from actions.loop.actor import one_of
from actions.loop.seams import TurnReport
from runtime.output import document, render

MOST_REASONS = 3


def taken(report: TurnReport) -> list[dict[str, Any]]:
    """Return what a turn did, or would do, one row per step; then what it holds and refuses."""
    done = {(t.decision.policy, t.decision.finding) for t in report.taken}
    rows = [
        _row(t.decision, t.result, t.reasons or t.decision.reasons, t.action) for t in report.taken
    ]
    if report.plan is None:
        return rows
    rows += [
        _row(decision, decision.ruling, decision.reasons, None)
        for decision in report.plan.decisions
        if (decision.policy, decision.finding) not in done and decision.step != "observe"
    ]
    rows += [
        {
            "action": None,
            "policy": refused.policy or None,
            "finding": refused.finding,
            "workload": _whom(refused.subject),
            "do": None,
            "step": None,
            "result": "refused",
            "gpus": None,
            "usd_per_day": None,
            "why": _why(refused.reasons),
        }
        for refused in report.plan.refused
    ]
    return rows


def talk(report: TurnReport) -> list[str]:
    """Return what is said beside the rows."""
    lines = [f"{reason.gate}: {reason.text}" for reason in report.halted]
    if report.plan is not None and report.plan.aborted is not None:
        lines.append(f"nothing is done at all: {report.plan.aborted.text}")
    lines += list(report.notes)
    for outcome in report.closed:
        said = "; ".join(reason.text for reason in outcome.reasons)
        lines.append(f"action {outcome.action}: {outcome.result}" + (f" ({said})" if said else ""))
    if report.open:
        lines.append(f"under way, the next turn verifies: {', '.join(report.open)}")
    if report.dry_run:
        lines.append("a dry run: nothing was written; --yes acts")
    return lines


def listed(record: Record) -> list[dict[str, Any]]:
    """Return every action, the newest first."""
    return [_told(told) for told in sorted(record.actions.values(), key=_newest)]


def waiting(record: Record) -> list[dict[str, Any]]:
    """Return what waits for approval, in the shape of actions."""
    rows = []
    for asked in record.asked.values():
        if record.approvals(asked.policy, asked.finding):
            continue
        rows.append(
            {
                "action": asked.decision,
                "at": asked.at,
                "policy": asked.policy,
                "workload": _whom(asked.subject),
                "do": asked.verb,
                "result": "waits for approval",
                "by": asked.by,
                "freed_gpus": None,
                "why": None,
            }
        )
    return rows


def whole(record: Record, prefix: str, output: str) -> str:
    """Return one action with all that the journal says about it.

    Raises:
        UsageError: no action, or several, begin with `prefix`.
    """
    action = one_of(prefix, record.actions, "action")
    told = record.actions[action]
    rows = [
        {"seq": e.seq, "at": e.at, "kind": e.kind, "by": e.actor, "document": e.document}
        for e in record.journal.entries(key=action)
    ]
    if output == "json":
        made: Any = msgspec.to_builtins(told.action, enc_hook=str)
        return document("action", {"action": made, "rows": rows})
    summary = render([_told(told)], output, noun="action")
    short = [{**row, "document": _short(row)} for row in rows]
    return summary + "\n" + render(short, output, noun="rows")


def _short(row: dict[str, Any]) -> str:
    if row["kind"] == "intent":
        intent = row["document"]["action"]["intent"]
        return f"{len(intent['changes'])} changes, {len(intent['undo'])} to undo them"
    return msgspec.json.encode(row["document"]).decode()[:100]


def _told(told: Told) -> dict[str, Any]:
    action, outcome = told.action, told.outcome
    result = "under way" if outcome is None or told.is_open else outcome.result
    why = _why(outcome.reasons) if outcome else None
    if told.restored is not None:
        why = f"taken back by {told.restored.by} at {told.restored.at:%Y-%m-%d %H:%M} UTC"
    return {
        "action": action.id,
        "at": action.at,
        "policy": action.decision.policy,
        "workload": _whom(action.decision.subject),
        "do": action.decision.verb,
        "result": result,
        "by": action.actor,
        "freed_gpus": outcome.freed_gpus if outcome else None,
        "why": why,
    }


def _row(decision: Any, result: str, reasons: Any, action: str | None) -> dict[str, Any]:
    return {
        "action": action,
        "policy": decision.policy,
        "finding": decision.finding,
        "workload": _whom(decision.subject),
        "do": decision.verb,
        "step": decision.step,
        "result": result,
        "gpus": decision.gpus,
        "usd_per_day": decision.usd_per_day,
        "why": _why(reasons),
    }


def _whom(subject: tuple[str, str, str, str]) -> str:
    return "/".join(filter(None, subject[1:]))


def _why(reasons: Any) -> str | None:
    said = [reason.text for reason in reasons]
    more = f" (and {len(said) - MOST_REASONS} more)" if len(said) > MOST_REASONS else ""
    return "; ".join(said[:MOST_REASONS]) + more or None


def _newest(told: Told) -> float:
    return -told.action.at.timestamp()

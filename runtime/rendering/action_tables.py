"""Render actions, steps and requests as rows for people and machines."""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from actions.cluster.literal_values import hide_literals
from actions.gate_answers import format_subject
from actions.journal import ActionState, JournalState
from actions.journal.permissions import ApprovalRequest
from actions.loop.actor import find_by_prefix
from actions.loop.protocols import TurnReport
from runtime.rendering.tables import document, render

MOST_REASONS = 3
WAITS, APPROVED = "waits for approval", "approved"
OUTDATED = "outdated"
"""Of a request whose case is not in the last plan any more: an approval has no effect."""


def build_step_rows(report: TurnReport) -> list[dict[str, Any]]:
    """Return the steps that a turn took, or would take, then what it holds and refuses."""
    taken_keys = {(t.decision.policy, t.decision.finding) for t in report.steps}
    rows = [
        _build_step_row(t.decision, t.result, t.reasons or t.decision.reasons, t.action)
        for t in report.steps
    ]
    if report.plan is None:
        return rows
    rows += [
        _build_step_row(decision, decision.ruling, decision.reasons, None)
        for decision in report.plan.decisions
        if (decision.policy, decision.finding) not in taken_keys and decision.step != "observe"
    ]
    rows += [
        {
            "action": None,
            "policy": refused.policy or None,
            "finding": refused.finding,
            "workload": format_subject(refused.subject),
            "do": None,
            "step": None,
            "result": "refused",
            "gpus": None,
            "usd_per_day": None,
            "why": _format_reasons(refused.reasons),
        }
        for refused in report.plan.refused
    ]
    return rows


def build_turn_rows(reports: Sequence[TurnReport]) -> list[dict[str, Any]]:
    """Return the steps that turns took, in order of time."""
    return [
        {
            "at": report.at,
            "workload": format_subject(step.decision.subject),
            "do": step.decision.verb,
            "result": step.result,
            "action": step.action,
            "step": step.decision.step,
            "policy": step.decision.policy,
            "finding": step.decision.finding,
            "why": _format_reasons(step.reasons) or None,
        }
        for report in reports
        for step in report.steps
    ]


def write_step_notes(report: TurnReport) -> list[str]:
    """Return the notes beside the rows."""
    lines = [f"{reason.gate}: {reason.text}" for reason in report.halted]
    aborted = report.plan.aborted if report.plan is not None else {}
    lines += [f"nothing is done at all: {reason.text}" for reason in aborted.values()]
    lines += list(report.notes)
    for outcome in report.closed:
        reasons = "; ".join(reason.text for reason in outcome.reasons)
        lines.append(
            f"action {outcome.action}: {outcome.result}" + (f" ({reasons})" if reasons else "")
        )
    if report.open:
        lines.append(f"under way, the next turn verifies: {', '.join(report.open)}")
    if report.dry_run:
        lines.append("a dry run: nothing was written; --yes acts")
    return lines


def action_rows(record: JournalState, cluster: str | None = None) -> list[dict[str, Any]]:
    """Return every action, of a cluster or of all, the newest first."""
    return [
        _action_row(state)
        for state in sorted(record.actions.values(), key=_rank_newest_first)
        if cluster in (None, state.action.decision.subject[0])
    ]


def build_approval_rows(
    record: JournalState, outdated: Collection[str] = (), cluster: str | None = None
) -> list[dict[str, Any]]:
    """Return what waits for approval, of a cluster or of all, in the shape of actions.

    `outdated`: the requests whose case is not in the last plan.
    """
    return [
        _request_row(request, OUTDATED if request.decision in outdated else WAITS)
        for request in record.approval_requests.values()
        if not record.approvals(request.policy, request.finding)
        and cluster in (None, request.subject[0])
    ]


def _request_row(request: ApprovalRequest, result: str) -> dict[str, Any]:
    return {
        "action": request.decision,
        "at": request.at,
        "policy": request.policy,
        "workload": format_subject(request.subject),
        "do": request.verb,
        "result": result,
        "by": request.by,
        "freed_gpus": None,
        "why": None,
    }


def render_action(record: JournalState, prefix: str, output: str) -> str:
    """Return one action or request with all that the journal has about it, without values of `env`.

    Rows of old versions have such values: a journal is never rewritten.

    Raises:
        UsageError: no action and no request, or several, begin with `prefix`.
    """
    action = find_by_prefix(prefix, [*record.actions, *record.approval_requests], "action")
    state = record.actions.get(action)
    rows = [
        {
            "seq": e.seq,
            "at": e.at,
            "kind": e.kind,
            "by": e.actor,
            "document": hide_literals(e.document),
        }
        for e in record.journal.entries(key=action)
    ]
    if output == "json":
        subject: Any = record.approval_requests[action] if state is None else state.action
        action_body: Any = hide_literals(msgspec.to_builtins(subject, enc_hook=str))
        return document("action", {"action": action_body, "rows": rows})
    if state is None:
        request = record.approval_requests[action]
        is_approved = record.approvals(request.policy, request.finding)
        row = _request_row(request, APPROVED if is_approved else WAITS)
    else:
        row = _action_row(state)
    summary = render([row], output, noun="action")
    short = [{**row, "document": _shorten_document(row)} for row in rows]
    return summary + "\n" + render(short, output, noun="rows")


def _shorten_document(row: dict[str, Any]) -> str:
    if row["kind"] == "intent":
        intent = row["document"]["action"]["intent"]
        return f"{len(intent['changes'])} changes, {len(intent['undo'])} to undo them"
    return msgspec.json.encode(row["document"]).decode()[:100]


def _action_row(state: ActionState) -> dict[str, Any]:
    action, outcome = state.action, state.outcome
    result = "under way" if outcome is None or state.is_open else outcome.result
    why = _format_reasons(outcome.reasons) if outcome else None
    if state.restored is not None:
        why = f"reversed by {state.restored.by} at {state.restored.at:%Y-%m-%d %H:%M} UTC"
    return {
        "action": action.id,
        "at": action.at,
        "policy": action.decision.policy,
        "workload": format_subject(action.decision.subject),
        "do": action.decision.verb,
        "result": result,
        "by": action.actor,
        "freed_gpus": outcome.freed_gpus if outcome else None,
        "why": why,
    }


def _build_step_row(decision: Any, result: str, reasons: Any, action: str | None) -> dict[str, Any]:
    return {
        "action": action,
        "policy": decision.policy,
        "finding": decision.finding,
        "workload": format_subject(decision.subject),
        "do": decision.verb,
        "step": decision.step,
        "result": result,
        "gpus": decision.gpus,
        "usd_per_day": decision.usd_per_day,
        "why": _format_reasons(reasons),
    }


def _format_reasons(reasons: Any) -> str | None:
    texts = [reason.text for reason in reasons]
    more = f" (and {len(texts) - MOST_REASONS} more)" if len(texts) > MOST_REASONS else ""
    return "; ".join(texts[:MOST_REASONS]) + more or None


def _rank_newest_first(state: ActionState) -> float:
    return -state.action.at.timestamp()

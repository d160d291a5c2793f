"""Run `fallow explain ACTION`: who decided what from which rows, and whether it can be replayed.

journal ─► policy, facts, budgets ─► decide again ─► the same bytes?
warehouse as it was ─► analyzer again ─► the same finding?
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from actions.backtest.as_of import AsOf
from actions.cluster.literal_values import hide_literals
from actions.decide import decide, drop_details
from actions.gate_answers import answer_gates
from actions.journal import event_types
from actions.journal.log import encode_canonical
from actions.loop.actor import find_by_prefix
from actions.policy.budgets import BudgetUsage
from actions.policy.model import Policy
from fallow.action_models import Facts
from fallow.case_identity import get_judged_finding
from fallow.errors import FallowError
from fallow.settings import Settings
from runtime.operations.accounting import savings
from runtime.operations.acting import plans
from runtime.rendering.tables import format_value, render

if TYPE_CHECKING:
    from actions.journal import ActionState, JournalState
    from actions.journal.log import Entry
    from warehouse.lake import Warehouse

SAME = "same"
MAX_NAMED, MAX_TEXT, MAX_LINE = 8, 40, 100
CASE_EVENTS = (
    event_types.SEEN,
    event_types.NOTIFIED,
    event_types.NOTIFICATION_FAILED,
    event_types.APPROVAL_REQUESTED,
    event_types.APPROVED,
    event_types.SNAPSHOT,
)
"""Kinds of rows about an action's case, before it."""
ABSENT = "absent"


def find_action(record: "JournalState", prefix: str) -> str | None:
    """Return the one action whose id begins with this text; None = no action does.

    Raises:
        UsageError: several actions do.
    """
    if not any(key.startswith(prefix) for key in record.actions):
        return None
    return find_by_prefix(prefix, record.actions, "action")


def explain_action(
    warehouse: "Warehouse", settings: Settings, record: "JournalState", action: str, now: datetime
) -> dict[str, Any]:
    """Return an action with all its evidence, and whether a replay gives the same verdict."""
    state = record.actions[action]
    (row,) = record.journal.entries("intent", key=action)
    policy, facts = _find_policy(state), state.facts
    usage_document = row.document.get("spent")
    usage = (
        None
        if usage_document is None
        else msgspec.convert(usage_document, BudgetUsage, strict=False)
    )
    gates: list[Any] = []
    if policy is not None and facts is not None and usage is not None:
        gates = answer_gates(policy, facts, usage, state.action.decision.at)
    explanation = {
        "action": _to_builtins(state.action),
        "policy": {**state.policy, "fingerprint_now": policy.fingerprint if policy else None},
        "facts": _to_builtins(facts),
        "spent": usage_document,
        "gates": [_to_builtins(answer) for answer in gates],
        "reproduced": {
            "decision": replay_decision(state, policy, usage),
            "finding": replay_finding(warehouse, settings, state),
        },
        "rows": [_build_event_row(entry) for entry in _list_rows(record, state)],
        "savings": savings.read_action_savings(warehouse, settings, action, now),
    }
    # Rows of old versions have values of env; the replay above needs them, no reader does.
    document: dict[str, Any] = hide_literals(explanation)
    return document


def replay_decision(state: "ActionState", policy: Any, usage: Any) -> str:
    """Decide again from the stored facts, budgets and policy: `same`, or the difference."""
    if state.facts is None or policy is None or usage is None:
        return "the facts or budgets were not kept: it was journalled by an older Fallow"
    if policy.fingerprint != state.policy.get("fingerprint"):
        return "the policy's stored text is not the one of its fingerprint"
    decision = state.action.decision
    decided = decide(policy, state.facts, usage, decision.at)
    again, before = (encode_canonical(drop_details(d, state.facts)) for d in (decided, decision))
    if again == before:
        return SAME
    return _describe_difference(json.loads(before), json.loads(again))


def replay_finding(warehouse: "Warehouse", settings: Settings, state: "ActionState") -> str:
    """Run the analyzer again over the rows of that time: `same`, or the difference."""
    facts = state.facts
    if facts is None:
        return "the facts were not kept: it was journalled by an older Fallow"
    finding, cluster = facts.finding, facts.finding.subject.cluster
    sample_end = _find_last_sample_end(warehouse, cluster, facts.at)
    if sample_end is None:
        return _explain_deleted_rows(settings, facts)
    views: Any = AsOf(warehouse, facts.at, devices_until=sample_end)
    try:
        cases, notes = plans.gather_cases(
            views, settings, at=facts.at, cluster=cluster, names=(finding.analyzer,)
        )
    except FallowError as error:
        return f"it cannot be found again: {error.message}"
    mine = [c for c in cases if _is_same_case(c, facts)]
    if not mine:
        why = f" ({'; '.join(notes)})" if notes else ""
        return f"differs: {finding.analyzer} finds no such case in the rows of then{why}"
    last = max(mine, key=lambda case: case.finding.window.end)
    # The stored part of the case is not a verdict: the replay has to give the judged part again.
    before, after = (
        _to_builtins(get_judged_finding(finding)),
        _to_builtins(get_judged_finding(last.finding)),
    )
    after["id"] = before["id"]
    return SAME if before == after else _describe_difference(before, after)


def _find_last_sample_end(warehouse: "Warehouse", cluster: str, at: datetime) -> datetime | None:
    """Return until when the last sample before a time is valid; None = no sample is stored."""
    row = warehouse.query(
        "SELECT max(ts + to_seconds(coalesce(interval_s, 0))) AS last FROM sample "
        "WHERE cluster = $cluster AND ts < $at AND ts >= $since",
        {"cluster": cluster, "at": at, "since": at - timedelta(hours=1)},
    ).to_pylist()[0]
    last: datetime | None = row["last"]
    return None if last is None else min(last.replace(tzinfo=at.tzinfo), at)


def _explain_deleted_rows(settings: Settings, facts: Facts) -> str:
    kept_until = facts.at + timedelta(days=settings.warehouse.raw_days)
    return f"the rows were deleted (kept until {kept_until:%Y-%m-%d})"


def _is_same_case(first: Facts, second: Facts) -> bool:
    keys = [
        (f.finding.kind, *msgspec.structs.astuple(f.finding.subject)[:4]) for f in (first, second)
    ]
    return keys[0] == keys[1]


def _find_policy(state: "ActionState") -> Any:
    text = state.policy.get("text")
    return None if text is None else msgspec.convert(text, Policy, strict=False)


def _list_rows(record: "JournalState", state: "ActionState") -> list["Entry"]:
    """Return the rows about an action and, before it, about its case, in their order."""
    decision = state.action.decision
    mine = record.journal.entries(key=state.action.id)
    of_case = [
        entry
        for entry in record.journal.entries(*CASE_EVENTS)
        if decision.finding in (entry.key, entry.document.get("finding"))
        and entry.document.get("policy", decision.policy) == decision.policy
        and entry.seq < mine[0].seq
    ]
    return [*of_case, *mine]


def _build_event_row(entry: "Entry") -> dict[str, Any]:
    document = {} if entry.kind == "intent" else entry.document
    return {
        "seq": entry.seq,
        "at": entry.at,
        "kind": entry.kind,
        "by": entry.actor,
        "document": document,
        "hash": entry.hash,
    }


def _to_builtins(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value, enc_hook=str))


def _describe_difference(before: Any, after: Any) -> str:
    differences = [
        f"{path} ({_shorten(a)} then, {_shorten(b)} now)"
        for path, a, b in _find_differing_leaves(before, after)
    ]
    more = f" and {len(differences) - MAX_NAMED} more" if len(differences) > MAX_NAMED else ""
    return f"differs in {', '.join(differences[:MAX_NAMED])}{more}"


def _find_differing_leaves(
    before: Any, after: Any, path: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            where = f"{path}.{key}" if path else str(key)
            yield from _find_differing_leaves(
                before.get(key, ABSENT), after.get(key, ABSENT), where
            )
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for n, (a, b) in enumerate(zip(before, after, strict=True)):
            yield from _find_differing_leaves(a, b, f"{path}[{n}]")
    elif before != after:
        yield path, before, after


def _shorten(value: Any, most: int = MAX_TEXT) -> str:
    text = format_value(value) if not isinstance(value, (dict, list)) else json.dumps(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def render_explanation(document: Mapping[str, Any]) -> str:
    """Return an explanation as text."""
    action, facts = document["action"], document["facts"] or {}
    decision, intent = action["decision"], action["intent"]
    finding = facts.get("finding") or {}
    policy = document["policy"] or {}
    text = policy.get("text") or {}
    bare = {k: v for k, v in text.items() if k != "source"}
    subject = "/".join(filter(None, decision["subject"]))
    verdict = [finding.get(name) for name in ("analyzer", "verdict", "evidence")]
    sure = f"{', '.join(map(str, verdict))}, confidence {finding.get('confidence')}"
    lines = [
        f"action    {action['id']}  {decision['verb']} {subject}",
        f"at        {action['at']} by {action['actor']}",
        f"finding   {decision['finding']}  ({sure})",
        f"policy    {decision['policy']}, fingerprint {policy.get('fingerprint')}",
        "",
        "verdict, once more",
        f"  decided again on the stored facts and budgets: {document['reproduced']['decision']}",
        f"  found again in the stored rows: {document['reproduced']['finding']}",
        "",
        "policy",
        *_indent(yaml.safe_dump(bare, sort_keys=False)),
        "facts",
        *(
            f"  {k}: {_shorten(v)}"
            for k, v in facts.items()
            if k not in ("finding", "recommendation")
        ),
        "",
        "gates",
        *(
            f"  {'open' if g['open'] else 'SHUT'}  {g['gate']}: {g['refusal'] or 'yes'}"
            for g in document["gates"]
        ),
        "",
        "writes",
        *_write_lines(intent["changes"]),
        "undo",
        *_write_lines(intent["undo"]),
    ]
    if intent.get("lost"):
        lines.append(f"  lost for good: {intent['lost']}")
    if action.get("approved_by"):
        lines.append(f"approved by {', '.join(action['approved_by'])}")
    if action.get("snapshot"):
        lines.append(f"snapshot {action['snapshot']}")
    rows = [
        {**row, "document": _format_event(row), "hash": row["hash"][:12]}
        for row in document["rows"]
    ]
    lines += ["", "what happened", *_indent(render(rows, "table", noun="rows"))]
    lines += ["", "what it saved", *_indent(_choose_savings_table(document["savings"]))]
    return "\n".join(lines) + "\n"


def _write_lines(changes: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for change in changes:
        lines.append(f"  {change['method']} {change['path']} {json.dumps(change['body'])}")
        waits = dict(change.get("when") or {})
        if change.get("vacant"):
            waits["pods with GPUs"] = "none"
        if waits:
            lines.append(f"    once it shows {json.dumps(waits)}")
    return lines


def _format_event(row: Mapping[str, Any]) -> str:
    return _shorten(dict(sorted(row["document"].items())), MAX_LINE)


def _choose_savings_table(rows: Sequence[Mapping[str, Any]]) -> str:
    names = ("kind", "predicted_gpu_hours", "gpu_hours", "predicted_usd", "usd", "restart_usd")
    brief = [{name: row[name] for name in (*names, "end", "is_reversed")} for row in rows]
    return render(brief, "table", noun="savings") if rows else "nothing is measured yet"


def _indent(text: str, by: str = "  ") -> list[str]:
    return [f"{by}{line}" for line in text.rstrip().splitlines()]

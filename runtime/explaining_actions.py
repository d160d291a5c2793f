"""`fallow explain ACTION`: who decided what from which rows, and whether it comes out again.

journal ─► policy, facts, budgets ─► decide again ─► the same bytes?
warehouse as it was ─► analyzer again ─► the same finding?
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from fallow.acting import Facts
from fallow.continuity import judged_finding
from fallow.errors import FallowError
from fallow.settings import Settings
from runtime import planned, saved
from runtime.output import render, shown

if TYPE_CHECKING:
    from actions.journal import Record, Told
    from actions.journal.book import Entry
    from warehouse.lake import Warehouse

SAME = "same"
MOST_NAMED, BRIEF, LINE = 8, 40, 100
OF_CASE = ("seen", "noticed", "unnoticed", "asked", "approved", "snapshot")
"""Kinds of rows about an action's case, before it."""
ABSENT = "absent"


def action_of(record: "Record", prefix: str) -> str | None:
    """Return the one action that begins so; None = none does.

    Raises:
        UsageError: several do.
    """
    from actions.loop.actor import one_of  # noqa: PLC0415

    if not any(key.startswith(prefix) for key in record.actions):
        return None
    return one_of(prefix, record.actions, "action")


def explanation(
    warehouse: "Warehouse", settings: Settings, record: "Record", action: str, now: datetime
) -> dict[str, Any]:
    """Return an action with all that it rests on, and whether its verdict comes out again."""
    from actions.policy.budgets import Spent  # noqa: PLC0415
    from actions.whynot import answers  # noqa: PLC0415

    told = record.actions[action]
    (row,) = record.journal.entries("intent", key=action)
    policy, facts = _policy(told), told.facts
    kept = row.document.get("spent")
    spent = None if kept is None else msgspec.convert(kept, Spent, strict=False)
    gates: list[Any] = []
    if policy is not None and facts is not None and spent is not None:
        gates = answers(policy, facts, spent, told.action.decision.at)
    return {
        "action": _plain(told.action),
        "policy": {**told.policy, "fingerprint_now": policy.fingerprint if policy else None},
        "facts": _plain(facts),
        "spent": kept,
        "gates": [_plain(answer) for answer in gates],
        "reproduced": {
            "decision": decided_again(told, policy, spent),
            "finding": found_again(warehouse, settings, told),
        },
        "rows": [_shown(entry) for entry in _rows(record, told)],
        "savings": saved.of_action(warehouse, settings, action, now),
    }


def decided_again(told: "Told", policy: Any, spent: Any) -> str:
    """Decide again on the stored facts, budgets and policy: `same`, or where it differs."""
    from actions.decide import decide  # noqa: PLC0415
    from actions.journal.book import canonical  # noqa: PLC0415

    if told.facts is None or policy is None or spent is None:
        return "the facts or budgets were not kept: it was journalled by an older Fallow"
    if policy.fingerprint != told.policy.get("fingerprint"):
        return "the policy's stored text is not the one of its fingerprint"
    decision = told.action.decision
    again = canonical(decide(policy, told.facts, spent, decision.at))
    before = canonical(decision)
    if again == before:
        return SAME
    return _differs(json.loads(before), json.loads(again))


def found_again(warehouse: "Warehouse", settings: Settings, told: "Told") -> str:
    """Ask the analyzer again over the rows as they were known then: `same`, or where it differs."""
    from actions.backtest.asof import AsOf  # noqa: PLC0415

    facts = told.facts
    if facts is None:
        return "the facts were not kept: it was journalled by an older Fallow"
    finding, cluster = facts.finding, facts.finding.subject.cluster
    looked = _looked(warehouse, cluster, facts.at)
    if looked is None:
        return _gone(settings, facts)
    views: Any = AsOf(warehouse, facts.at, looked=looked)
    try:
        cases, notes = planned.cases(
            views, settings, at=facts.at, cluster=cluster, names=(finding.analyzer,)
        )
    except FallowError as error:
        return f"it cannot be looked for again: {error.message}"
    mine = [c for c in cases if _same_case(c, facts)]
    if not mine:
        why = f" ({'; '.join(notes)})" if notes else ""
        return f"differs: {finding.analyzer} finds no such case in the rows of then{why}"
    last = max(mine, key=lambda case: case.finding.window.end)
    # What was stored of the case before is no verdict: what was judged has to come out again.
    before, after = _plain(judged_finding(finding)), _plain(judged_finding(last.finding))
    after["id"] = before["id"]
    return SAME if before == after else _differs(before, after)


def _looked(warehouse: "Warehouse", cluster: str, at: datetime) -> datetime | None:
    """Return until when the last look before a moment spoke; None = no look is kept of then."""
    row = warehouse.query(
        "SELECT max(ts + to_seconds(coalesce(interval_s, 0))) AS last FROM sample "
        "WHERE cluster = $cluster AND ts < $at AND ts >= $since",
        {"cluster": cluster, "at": at, "since": at - timedelta(hours=1)},
    ).to_pylist()[0]
    last: datetime | None = row["last"]
    return None if last is None else min(last.replace(tzinfo=at.tzinfo), at)


def _gone(settings: Settings, facts: Facts) -> str:
    kept = facts.at + timedelta(days=settings.warehouse.raw_days)
    return f"the rows are gone (kept until {kept:%Y-%m-%d})"


def _same_case(one: Facts, other: Facts) -> bool:
    keys = [(f.finding.kind, *msgspec.structs.astuple(f.finding.subject)[:4]) for f in (one, other)]
    return keys[0] == keys[1]


def _policy(told: "Told") -> Any:
    from actions.policy.model import Policy  # noqa: PLC0415

    text = told.policy.get("text")
    return None if text is None else msgspec.convert(text, Policy, strict=False)


def _rows(record: "Record", told: "Told") -> list["Entry"]:
    """Return the rows about an action and, before it, about its case, in their order."""
    decision = told.action.decision
    mine = record.journal.entries(key=told.action.id)
    of_case = [
        entry
        for entry in record.journal.entries(*OF_CASE)
        if decision.finding in (entry.key, entry.document.get("finding"))
        and entry.document.get("policy", decision.policy) == decision.policy
        and entry.seq < mine[0].seq
    ]
    return [*of_case, *mine]


def _shown(entry: "Entry") -> dict[str, Any]:
    document = {} if entry.kind == "intent" else entry.document
    return {
        "seq": entry.seq,
        "at": entry.at,
        "kind": entry.kind,
        "by": entry.actor,
        "document": document,
        "hash": entry.hash,
    }


def _plain(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value, enc_hook=str))


def _differs(before: Any, after: Any) -> str:
    found = [f"{path} ({_brief(a)} then, {_brief(b)} now)" for path, a, b in _leaves(before, after)]
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return f"differs in {', '.join(found[:MOST_NAMED])}{more}"


def _leaves(one: Any, other: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in dict.fromkeys([*one, *other]):
            where = f"{path}.{key}" if path else str(key)
            yield from _leaves(one.get(key, ABSENT), other.get(key, ABSENT), where)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for n, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from _leaves(a, b, f"{path}[{n}]")
    elif one != other:
        yield path, one, other


def _brief(value: Any, most: int = BRIEF) -> str:
    text = shown(value) if not isinstance(value, (dict, list)) else json.dumps(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def spoken(told: Mapping[str, Any]) -> str:
    """Write an explanation for eyes."""
    action, facts = told["action"], told["facts"] or {}
    decision, intent = action["decision"], action["intent"]
    finding = facts.get("finding") or {}
    text = (told["policy"] or {}).get("text") or {}
    bare = {k: v for k, v in text.items() if k != "source"}
    whom = "/".join(filter(None, decision["subject"]))
    said = [finding.get(name) for name in ("analyzer", "verdict", "evidence")]
    sure = f"{', '.join(map(str, said))}, confidence {finding.get('confidence')}"
    lines = [
        f"action    {action['id']}  {decision['verb']} {whom}",
        f"at        {action['at']} by {action['actor']}",
        f"finding   {decision['finding']}  ({sure})",
        f"policy    {decision['policy']}, fingerprint {(told['policy'] or {}).get('fingerprint')}",
        "",
        "verdict, once more",
        f"  decided again on the stored facts and budgets: {told['reproduced']['decision']}",
        f"  found again in the stored rows: {told['reproduced']['finding']}",
        "",
        "policy",
        *_indented(yaml.safe_dump(bare, sort_keys=False)),
        "facts",
        *(
            f"  {k}: {_brief(v)}"
            for k, v in facts.items()
            if k not in ("finding", "recommendation")
        ),
        "",
        "gates",
        *(f"  {'open' if g['open'] else 'SHUT'}  {g['gate']}: {g['said']}" for g in told["gates"]),
        "",
        "writes",
        *_writes(intent["changes"]),
        "undo",
        *_writes(intent["undo"]),
    ]
    if intent.get("lost"):
        lines.append(f"  lost for good: {intent['lost']}")
    if action.get("approved_by"):
        lines.append(f"approved by {', '.join(action['approved_by'])}")
    if action.get("snapshot"):
        lines.append(f"snapshot {action['snapshot']}")
    rows = [{**row, "document": _line(row), "hash": row["hash"][:12]} for row in told["rows"]]
    lines += ["", "what happened", *_indented(render(rows, "table", noun="rows"))]
    lines += ["", "what it saved", *_indented(_saved(told["savings"]))]
    return "\n".join(lines) + "\n"


def _writes(changes: Sequence[Mapping[str, Any]]) -> list[str]:
    said = []
    for change in changes:
        said.append(f"  {change['method']} {change['path']} {json.dumps(change['body'])}")
        waits = dict(change.get("when") or {})
        if change.get("vacant"):
            waits["pods with GPUs"] = "none"
        if waits:
            said.append(f"    once it shows {json.dumps(waits)}")
    return said


def _line(row: Mapping[str, Any]) -> str:
    return _brief(dict(sorted(row["document"].items())), LINE)


def _saved(rows: Sequence[Mapping[str, Any]]) -> str:
    names = ("kind", "predicted_gpu_hours", "gpu_hours", "predicted_usd", "usd", "restart_usd")
    brief = [{name: row[name] for name in (*names, "end", "is_regretted")} for row in rows]
    return render(brief, "table", noun="savings") if rows else "nothing is measured yet"


def _indented(text: str, by: str = "  ") -> list[str]:
    return [f"{by}{line}" for line in text.rstrip().splitlines()]

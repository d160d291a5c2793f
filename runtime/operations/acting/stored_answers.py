"""Answer why a workload is not acted upon from the plan that the last turn stored."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

from actions.gate_answers import describe_way, find_subject, format_subject
from fallow.action_models import Reason
from fallow.models import Subject

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

MOST_REASONS = 3
"""Reasons that the answer has; --gates lists every gate's."""
QUIET_STEPS = {
    "observe": "nothing will stop it; policy {} only lists it",
    "notify": "nothing stops it yet; policy {} only notifies its owner",
}
"""What an answer says of steps that change nothing."""


class StoredAnswer(msgspec.Struct, frozen=True):
    """What the last plan says of one workload; `policy` None = it has no case of it."""

    subject: Subject
    at: datetime
    acts: bool
    policy: str | None = None
    verb: str = ""
    step: str | None = None
    ruling: str = ""
    reasons: tuple[Reason, ...] = ()
    next_at: datetime | None = None
    gpus: float | None = None
    usd_per_day: Decimal | None = None
    aborted: str | None = None
    way: str = ""
    """What would open the first gate that anything opens."""


def read_stored_answer(
    warehouse: "Warehouse", workload: str, cluster: str | None
) -> StoredAnswer | None:
    """Return what the last stored plan says of a workload; None = no plan is stored.

    Raises:
        UsageError: the text matches no workload, or several.
    """
    rows = warehouse.query(
        'SELECT * FROM plan WHERE $cluster IS NULL OR "cluster" = $cluster', {"cluster": cluster}
    ).to_pylist()
    if not rows:
        return None
    columns = ("cluster", "namespace", "workload_kind", "workload")
    by_subject = {Subject(**{name: row[name] for name in columns}): row for row in rows}
    last = max(row["ts"] for row in rows)
    recent = list_recent_workloads(warehouse, last + timedelta(seconds=1), cluster)
    subject = find_subject(workload, [*by_subject, *recent])
    row = by_subject.get(subject)
    if row is None:
        return StoredAnswer(subject, last, rows[0]["acts"])
    reasons = msgspec.json.decode(row["reasons"], type=tuple[Reason, ...])
    request = row["request"] or ""
    requested = warehouse.query(
        "SELECT about FROM action WHERE kind = 'approval-requested' AND about = $request",
        {"request": request},
    )["about"].to_pylist()
    ways = [way for r in reasons if (way := describe_way(r.gate, r.text, request, requested))]
    return StoredAnswer(
        subject,
        at=row["ts"],
        acts=row["acts"],
        policy=row["policy"] or None,
        verb=row["verb"] or "",
        step=row["step"],
        ruling=row["ruling"],
        reasons=reasons,
        next_at=row["next_at"],
        gpus=row["gpus"],
        usd_per_day=row["usd_per_day"],
        aborted=row["aborted"],
        way=ways[0] if ways else "",
    )


def list_recent_workloads(
    warehouse: "Warehouse", at: datetime, cluster: str | None
) -> list[Subject]:
    """Return the workloads that held GPUs in the day before a time."""
    rows = warehouse.query(
        "SELECT DISTINCT cluster, namespace, workload_kind, workload FROM allocation "
        'WHERE start < $until AND coalesce("end", $until) >= $since AND workload IS NOT NULL '
        "AND ($cluster IS NULL OR cluster = $cluster) ORDER BY ALL",
        {"since": at - timedelta(days=1), "until": at, "cluster": cluster},
    ).to_pylist()
    return [Subject(**row) for row in rows]


def describe_stored_answer(answer: StoredAnswer) -> list[str]:
    """Return the answer in at most five lines: what happens, why not, what helps, what it costs."""
    name = format_subject(answer.subject)
    time = f"{answer.at:%Y-%m-%d %H:%M}"
    tail = f"as of {time} UTC, the last plan; --now judges anew, --gates lists every gate"
    if not answer.ruling:
        return [f"{name}: nothing will stop it; the last plan has no case of it", tail]
    lines = [f"{name}: {_describe_outcome(answer)}"]
    listed = [f"{r.gate}: {r.text}" for r in answer.reasons[:MOST_REASONS]]
    more = len(answer.reasons) - len(listed)
    if listed and (answer.ruling != "allow" or answer.step in QUIET_STEPS):
        lines.append("because " + "; ".join(listed) + (f" (and {more} more)" if more else ""))
        if answer.way:
            lines.append(f"to change that: {answer.way}")
    if answer.gpus:
        usd = answer.usd_per_day
        money = "at no known price" if usd is None else f"${usd:,.2f} a day"
        lines.append(f"it holds {answer.gpus:g} GPU{'s' * (answer.gpus != 1)}, {money}")
    return [*lines, tail]


def _describe_outcome(answer: StoredAnswer) -> str:
    policy, verb = answer.policy, answer.verb
    if answer.aborted:
        return f"nothing will stop it: {answer.aborted}"
    if answer.ruling == "allow":
        would = "" if answer.acts else ", were acting enabled"
        if answer.step in QUIET_STEPS:
            return f"{QUIET_STEPS[answer.step].format(policy)}: {verb}{would}"
        return f"policy {policy} goes on now, step {answer.step}: {verb}{would}"
    if answer.ruling == "hold":
        until = f" until {answer.next_at:%Y-%m-%d %H:%M} UTC" if answer.next_at else ""
        return f"nothing stops it yet; policy {policy} waits{until}: {verb}"
    if policy is None:
        return "nothing will stop it: no policy matches it"
    return f"nothing will stop it; the nearest policy is {policy}: {verb}"

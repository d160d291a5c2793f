"""A fleet that was acted upon: a plan, policies and a journal as the service leaves them."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from actions.journal import Journal, event_types
from actions.journal.warehouse_copy import copy_journal
from actions.policy.reversals import get_upper_end
from fallow.action_models import (
    Action,
    Decision,
    Intent,
    Outcome,
    Reason,
    Result,
    Target,
    action_id,
)
from fallow.settings import Settings
from fallow.window import Window
from runtime.operations.acting import plans
from runtime.operations.acting.plan_rows import PlanWriter
from runtime.operations.analysis import findings
from warehouse.lake import Warehouse

DAY = timedelta(days=1)


def lived(settings: Settings, warehouse: Warehouse, end: datetime) -> None:
    """Let policies decide about the stored findings, and a journal tell of the day before."""
    found = findings.read_latest(warehouse, Window(end - 3 * DAY, end))
    idle = [f for f in found if f.analyzer == "idle" and f.evidence == "confirmed"][:6]
    clock = Clock(end - DAY)
    with Journal.open(plans.get_journal_path(settings), clock, actor="fallow") as journal:
        owner = [_decision(f, end) for f in idle]
        for decision in owner:
            journal.append(event_types.NOTIFIED, decision.finding, {"policy": decision.policy})
        for decision in owner[:2]:
            journal.append(event_types.APPROVAL_REQUESTED, decision.id, _case(decision))
        done(journal, owner[2], clock, "done")
        done(journal, owner[3], clock, "done", back="ann")
        done(journal, owner[4], clock, None)
        done(journal, owner[5], clock, "failed", why="the API refused: an admission webhook")
        line = "fresh: the last look at GPU-1 is 11m old"
        journal.append(event_types.REFUSED, owner[1].id, {**_case(owner[1]), "line": line})
        kept = "/".join(owner[0].subject)
        until = (end + 2 * DAY).isoformat()
        journal.append(event_types.KEEP, kept, {"until": until}, actor="ann")
        journal.append(event_types.SNOOZED, found[-1].id, {"until": until}, actor="ben")
        for name, judged, back in (("idle-inference", 60, 0), ("idle-notebooks", 30, 4)):
            _backtested(journal, settings, name, judged, back, end)
        journal.append(
            event_types.DEMOTED, "spot-batch", {"reversed": 2, "acted": 9, "declared": 0.05}
        )
        copy_journal(journal, warehouse, settings.cluster)
    PlanWriter(warehouse, settings).write_preview(found, end)


class Clock:
    """Ten minutes pass with each look."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        """Return the moment, and let time pass."""
        self.now += timedelta(minutes=10)
        return self.now


def done(
    journal: Journal,
    decision: Decision,
    clock: Clock,
    result: Result | None,
    *,
    why: str = "its pods are gone",
    back: str = "",
) -> str:
    """Write an action down, and what came of it; return its id."""
    cluster, kind, namespace, name = decision.subject
    at = clock()
    target = Target(cluster, "v1", kind, namespace, name, uid=f"uid-{name}")
    made = Action(
        action_id(decision.id, target.uid, at),
        decision,
        Intent(target, "scale", (), (), lost="what was in memory"),
        at,
        "fallow",
    )
    journal.append(event_types.INTENT, made.id, {"action": made, "policy": {}})
    if result is not None:
        outcome = Outcome(made.id, result, clock(), (Reason("done", why),), freed_gpus=2.0)
        journal.append(event_types.OUTCOME, made.id, msgspec.to_builtins(outcome, enc_hook=str))
    if back:
        journal.append(event_types.REVERSED, made.id, {"by": back, "person": True})
    return made.id


def _decision(found: Any, at: datetime) -> Decision:
    owner = found.subject
    policy = "idle-notebooks" if found.kind == "idle_notebook" else "idle-inference"
    return Decision(
        id=f"d{found.id[1:]}",
        policy=policy,
        finding=found.id,
        subject=(owner.cluster, owner.workload_kind, owner.namespace, owner.workload),
        verb=found.recommendations[0].verb,
        step="act",
        ruling="allow",
        reasons=(),
        at=at,
        gpus=2.0,
        owner=owner.team or owner.namespace,
    )


def _case(decision: Decision) -> dict[str, Any]:
    return {
        "policy": decision.policy,
        "finding": decision.finding,
        "subject": decision.subject,
        "verb": decision.verb,
    }


def _backtested(  # noqa: PLR0917
    journal: Journal, settings: Settings, name: str, judged: int, back: int, end: datetime
) -> None:
    rules = plans.load_policies(settings) if settings.actions.policies.exists() else ()
    text = {rule.name: rule.fingerprint for rule in rules}.get(name, "0" * 12)
    figures = {
        "fingerprint": text,
        "since": (end - 30 * DAY).isoformat(),
        "until": end.isoformat(),
        "stops": judged + 2,
        "judged": judged,
        "reversed": back,
        "rate": back / judged,
        "interval": [0.0, 0.088] if not back else [0.053, 0.297],
        "upper_end": get_upper_end(back, judged),
        "declared": 0.05,
        "gpu_hours": 1234.5,
        "met": not back,
    }
    journal.append(event_types.BACKTESTED, name, figures)
    if not back:
        journal.append(event_types.TRUSTED, name, {**figures, "by": "backtest"})


def policies(settings: Settings, names: Sequence[str]) -> None:
    """Put policies of these names where the settings look for them: one that may act anywhere."""
    folder = settings.actions.policies
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        kind = "idle_notebook" if "notebook" in name else "idle_inference"
        text = (
            f"name: {name}\ndescription: stop what rests\nmode: enforce\n"
            f"match: {{analyzer: idle, kind: {kind}, evidence: confirmed}}\n"
            "allow: {namespaces: ['*'], kinds: [Deployment, Notebook, Job]}\n"
            "stages: [observe, notify, {grace: 24h}, {snapshot: {what: [manifest]}}, "
            "{act: suspend}]\n"
            "budgets: [{workloads: 5%, per: 1d}]\napprovals: {when: always}\n"
            "reversals: {rate: 5%, within: 24h}\n"
        )
        (folder / f"{name}.yaml").write_text(text)

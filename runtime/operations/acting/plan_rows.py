"""Write policies' decisions as rows: the tables `plan` and `policy`, for pages and reports.

A plan replaces the one before as a whole. The actor writes it after its turn. If nothing acts, it
is written after each analysis, and then it contains what would be done.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from actions.facts import gather_facts
from actions.journal import Journal
from actions.journal.warehouse_copy import copy_journal
from actions.policy.schedule import get_blackout_end, is_blackout
from fallow.action_models import Facts, Reason, compute_decision_id
from fallow.demo_marker import has_demo_cluster
from fallow.errors import FallowError
from fallow.models import Finding
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import format_duration
from runtime.operations.acting import plans

if TYPE_CHECKING:
    from actions.plan import ActionPlan
    from actions.policy.model import ActionBudget, Policy, RecurringWindow, Stage
    from warehouse.lake import Warehouse

log = logging.getLogger("fallow.plans")

WRITE_EVERY = timedelta(minutes=5)
"""Shortest time between two writes: with a turn per minute, most decisions do not change."""
OWN_CLUSTER = "cluster = $cluster"


class PlanWriter:
    """Stores a plan, at most once in `WRITE_EVERY`."""

    def __init__(self, warehouse: "Warehouse", settings: Settings) -> None:
        self._warehouse, self._settings = warehouse, settings
        self._written_at: datetime | None = None

    def write(
        self, plan: "ActionPlan", facts: Sequence[Facts], policies: "Sequence[Policy]", at: datetime
    ) -> None:
        """Replace the stored plan and policies; a failure is only logged."""
        if self._written_at is not None and at - self._written_at < WRITE_EVERY:
            return
        mine = {"cluster": self._settings.cluster}
        plan_batch = plan_rows(self._settings, plan, facts, at)
        policy_batch = build_policy_rows(self._settings.cluster, policies, at)
        try:
            self._warehouse.replace("plan", plan_batch.rows, OWN_CLUSTER, mine)
            self._warehouse.replace("policy", policy_batch.rows, OWN_CLUSTER, mine)
        except FallowError as error:
            log.warning("the plan is not shown", extra={"why": error.message})
            return
        self._written_at = at

    def write_preview(self, findings: Sequence[Finding], at: datetime) -> None:
        """Decide about findings as the actor would, and store that; failures are only logged."""
        folder = self._settings.actions.policies
        try:
            rules = plans.load_policies(self._settings) if folder.exists() else ()
            facts = gather_facts(self._warehouse, findings, at)
            plan, facts = plans.decide(self._warehouse, self._settings, rules, facts, at)
            self._copy(at)
        except FallowError as error:
            log.warning("there is no plan", extra={"why": str(error)})
            return
        self.write(plan, facts, rules, at)

    def _copy(self, at: datetime) -> None:
        """Copy the journal of an earlier actor: commands, or a service that acted once."""
        path = plans.get_journal_path(self._settings)
        if path.is_file():
            with Journal.open(path, lambda: at, write=False) as journal:
                copy_journal(journal, self._warehouse, self._settings.cluster)


def plan_rows(
    settings: Settings, plan: "ActionPlan", facts: Sequence[Facts], at: datetime
) -> Batch:
    """Return a plan's decisions and refusals, a row per object."""
    aborted = plan.aborted.get(settings.cluster)
    by_object: dict[object, Facts] = {_build_subject_key(f): f for f in facts}
    by_object |= {f.finding.id: f for f in facts}
    rows: list[dict[str, Any]] = []
    for decision in plan.decisions:
        case = by_object.get(decision.finding)
        row = _build_subject_columns(
            decision.subject, decision.finding, decision.policy, decision.reasons
        )
        rows.append(
            row
            | {
                "verb": decision.verb,
                "step": decision.step,
                "ruling": decision.ruling,
                "next_at": _to_naive_utc(decision.next_at),
                "owner": decision.owner,
                "gpus": decision.gpus,
                "gpu_hours_per_day": decision.gpu_hours_per_day,
                "usd_per_day": None if _is_bound(case) else decision.usd_per_day,
            }
        )
    for refused in plan.refused:
        row = _build_subject_columns(
            refused.subject, refused.finding, refused.policy, refused.reasons
        )
        case = by_object.get(refused.finding, by_object.get(refused.subject))
        if case is not None:
            row |= {
                "verb": case.recommendation.verb,
                "owner": case.owner,
                "gpus": case.gpus,
                "gpu_hours_per_day": case.recommendation.gpu_hours_per_day,
                "usd_per_day": None if _is_bound(case) else case.usd_per_day,
            }
        rows.append(row | {"ruling": "deny"})
    # A demo's fleet acts while its time passes.
    acts = settings.actions.enabled or has_demo_cluster(settings.home)
    whole = {"ts": _to_naive_utc(at), "aborted": aborted.text if aborted else None, "acts": acts}
    mine = [row | whole for row in rows if row["cluster"] == settings.cluster]
    return _batch("plan", mine)


def _is_bound(case: Facts | None) -> bool:
    return case is not None and case.recommendation.is_bound


def build_policy_rows(cluster: str, policies: "Sequence[Policy]", at: datetime) -> Batch:
    """Return the policies as text, and which of their blackouts is active."""
    rows = []
    for policy in policies:
        on = [b for b in policy.blackouts if is_blackout(b, at)]
        ends = [get_blackout_end(b, at) for b in on]
        rows.append(
            {
                "cluster": cluster,
                "policy": policy.name,
                "ts": _to_naive_utc(at),
                "fingerprint": policy.fingerprint,
                "description": policy.description,
                "mode": policy.mode,
                "source": policy.source,
                **describe_policy(policy),
                "reversal_rate": policy.reversals.rate,
                "reversal_within_s": policy.reversals.within.total_seconds(),
                "closed": "; ".join(b.name for b in on) or None,
                "opens_at": None
                if None in ends
                else _to_naive_utc(max(filter(None, ends), default=None)),
            }
        )
    return _batch("policy", rows)


def describe_policy(policy: "Policy") -> dict[str, str]:
    """Return in words what a policy matches and allows, its stages, budgets and approvals."""
    act_window = policy.act_window
    return {
        "matches": ", ".join(_describe_conditions(policy.match)) or "every finding",
        "allows": ", ".join(_describe_conditions(policy.allow))
        or "nothing: no namespace is listed",
        "stages": " → ".join(_describe_stage(stage) for stage in policy.stages)
        + (f", {_describe_recurrence(act_window)}" if act_window else ""),
        "budgets": "; ".join(_describe_budget(b) for b in policy.budgets) or "none",
        "approvals": _describe_approvals(policy),
    }


def _build_subject_key(facts: Facts) -> tuple[str, str, str, str]:
    subject = facts.finding.subject
    return subject.cluster, subject.workload_kind, subject.namespace, subject.workload


def _build_subject_columns(
    subject: tuple[str, str, str, str], finding: str, policy: str, reasons: Sequence[Reason]
) -> dict[str, Any]:
    cluster, kind, namespace, name = subject
    return {
        "cluster": cluster,
        "namespace": namespace,
        "workload_kind": kind,
        "workload": name,
        "policy": policy,
        "finding": finding,
        "request": compute_decision_id(policy, finding, "act"),
        "reasons": json.dumps([{"gate": r.gate, "text": r.text} for r in reasons]),
    }


def _describe_conditions(part: msgspec.Struct) -> Iterator[str]:
    """Yield the conditions of a part of a policy that are not its defaults."""
    fresh = type(part)()
    for name in part.__struct_fields__:
        value = getattr(part, name)
        if value == getattr(fresh, name):
            continue
        label = name.replace("_", " ")
        match value:
            case tuple():
                yield f"{label} {' | '.join(value)}"
            case dict():
                labels = (f"{key}={'|'.join(values)}" for key, values in value.items())
                yield f"{label} {' '.join(labels)}"
            case bool():
                yield label
            case str():
                yield f"{label} {value}"
            case timedelta():
                yield f"{label} of {format_duration(value.total_seconds())} or more"
            case _:
                yield f"{label} of {value} or more"


def _describe_stage(stage: "Stage") -> str:
    wait = format_duration(stage.wait.total_seconds()) if stage.wait else ""
    return " ".join(filter(None, (stage.step, wait, ", ".join((*stage.parts, *stage.do)))))


def _describe_budget(budget: "ActionBudget") -> str:
    most = [
        f"{amount} {name.replace('_', ' ')}"
        for name in ("workloads", "gpus", "owners", "usd_per_hour")
        if (amount := getattr(budget, name)) is not None
    ]
    text = f"{', '.join(most)} in {format_duration(budget.per.total_seconds())}"
    each = f" for each {budget.each}" if budget.each else ""
    scope = " in all clusters" if budget.scope == "fleet" else ""
    return (
        text + each + scope + (f", {_describe_recurrence(budget.window)}" if budget.window else "")
    )


def _describe_recurrence(window: "RecurringWindow") -> str:
    length = format_duration(window.duration.total_seconds())
    return f"while {window.schedule} ({window.timezone}) for {length}"


def _describe_approvals(policy: "Policy") -> str:
    approvals = policy.approvals
    text = {"none": "nobody", "always": "always", "first": f"the first {approvals.first}"}[
        approvals.when
    ]
    return text + (", by two people" if approvals.four_eyes else "")


def _batch(table: str, rows: Sequence[dict[str, Any]]) -> Batch:
    names = dict.fromkeys(name for row in rows for name in row)
    return Batch.of(table, {name: [row.get(name) for row in rows] for name in names})


def _to_naive_utc(timestamp: datetime | None) -> datetime | None:
    return None if timestamp is None else timestamp.astimezone(UTC).replace(tzinfo=None)

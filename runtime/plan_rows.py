"""What policies decide, as rows: the tables `plan` and `policy`, which pages and reports read.

A plan is told as a whole in the place of the one before, by the actor after its turn or, where
nothing acts, after each analysis: then it says what would be done.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from fallow.acting import Facts, Reason, decision_id
from fallow.errors import FallowError
from fallow.nouns import Finding
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import format_duration
from runtime import planned

if TYPE_CHECKING:
    from actions.planning import Plan
    from actions.policy.model import Budget, Policy, Recurring, Rung
    from warehouse.lake import Warehouse

log = logging.getLogger("fallow.plans")

EVERY = timedelta(minutes=5)
"""A turn a minute decides mostly what the one before did: rows are written this often."""
MINE = "cluster = $cluster"


class Telling:
    """Writes down what a plan says, at most once in `EVERY`."""

    def __init__(self, warehouse: "Warehouse", settings: Settings) -> None:
        self._warehouse, self._settings = warehouse, settings
        self._told: datetime | None = None

    def tell(
        self, plan: "Plan", facts: Sequence[Facts], policies: "Sequence[Policy]", at: datetime
    ) -> None:
        """Put a plan and its policies in the place of those before; a failure is only logged."""
        if self._told is not None and at - self._told < EVERY:
            return
        mine = {"cluster": self._settings.cluster}
        told = plan_rows(self._settings, plan, facts, at)
        rules = policy_rows(self._settings.cluster, policies, at)
        try:
            self._warehouse.replace("plan", told.rows, MINE, mine)
            self._warehouse.replace("policy", rules.rows, MINE, mine)
        except FallowError as error:
            log.warning("the plan is not told", extra={"why": error.message})
            return
        self._told = at

    def would(self, found: Sequence[Finding], at: datetime) -> None:
        """Decide about findings as if it were to act, and tell that; failures are only logged."""
        from actions.facts import gather  # noqa: PLC0415

        folder = self._settings.actions.policies
        try:
            rules = planned.policies(self._settings) if folder.exists() else ()
            facts = gather(self._warehouse, found, at)
            made, facts = planned.decide(self._warehouse, self._settings, rules, facts, at)
            self._copy(at)
        except FallowError as error:
            log.warning("there is no plan", extra={"why": str(error)})
            return
        self.tell(made, facts, rules, at)

    def _copy(self, at: datetime) -> None:
        """Copy the journal of whoever acted before: commands, or a service that acted once."""
        from actions.journal import Journal  # noqa: PLC0415
        from actions.journal.copying import copy  # noqa: PLC0415

        path = planned.journal_of(self._settings)
        if path.is_file():
            with Journal.open(path, lambda: at, write=False) as journal:
                copy(journal, self._warehouse, self._settings.cluster)


def plan_rows(settings: Settings, plan: "Plan", facts: Sequence[Facts], at: datetime) -> Batch:
    """Return a plan's decisions and refusals, a row per object."""
    aborted = None if plan.aborted is None else plan.aborted.text
    known: dict[object, Facts] = {_whom(f): f for f in facts}
    known |= {f.finding.id: f for f in facts}
    rows: list[dict[str, Any]] = []
    for made in plan.decisions:
        row = _about(made.subject, made.finding, made.policy, made.reasons)
        rows.append(
            row
            | {
                "verb": made.verb,
                "step": made.step,
                "ruling": made.ruling,
                "next_at": _naive(made.next_at),
                "owner": made.owner,
                "gpus": made.gpus,
                "gpu_hours_per_day": made.gpu_hours_per_day,
                "usd_per_day": made.usd_per_day,
            }
        )
    for refused in plan.refused:
        row = _about(refused.subject, refused.finding, refused.policy, refused.reasons)
        case = known.get(refused.finding, known.get(refused.subject))
        if case is not None:
            row |= {
                "verb": case.recommendation.verb,
                "owner": case.owner,
                "gpus": case.gpus,
                "gpu_hours_per_day": case.recommendation.gpu_hours_per_day,
                "usd_per_day": case.usd_per_day,
            }
        rows.append(row | {"ruling": "deny"})
    whole = {"ts": _naive(at), "aborted": aborted, "acts": settings.actions.enabled}
    mine = [row | whole for row in rows if row["cluster"] == settings.cluster]
    return _batch("plan", mine)


def policy_rows(cluster: str, policies: "Sequence[Policy]", at: datetime) -> Batch:
    """Return the policies in words, and which of their blackouts is on."""
    from actions.policy.schedule import dark, light  # noqa: PLC0415

    rows = []
    for policy in policies:
        on = [b for b in policy.blackouts if dark(b, at)]
        ends = [light(b, at) for b in on]
        rows.append(
            {
                "cluster": cluster,
                "policy": policy.name,
                "ts": _naive(at),
                "fingerprint": policy.fingerprint,
                "description": policy.description,
                "mode": policy.mode,
                "source": policy.source,
                "matches": ", ".join(_asked(policy.match)) or "every finding",
                "allows": ", ".join(_asked(policy.allow)) or "nothing: no namespace is listed",
                "ladder": " → ".join(_rung(rung) for rung in policy.ladder)
                + (f", {_when(policy.act_window)}" if policy.act_window else ""),
                "budgets": "; ".join(_budget(b) for b in policy.budgets) or "none",
                "approvals": _approvals(policy),
                "regret_rate": policy.regret.rate,
                "regret_within_s": policy.regret.within.total_seconds(),
                "closed": "; ".join(b.name for b in on) or None,
                "opens_at": None if None in ends else _naive(max(filter(None, ends), default=None)),
            }
        )
    return _batch("policy", rows)


def _whom(facts: Facts) -> tuple[str, str, str, str]:
    whom = facts.finding.subject
    return whom.cluster, whom.workload_kind, whom.namespace, whom.workload


def _about(
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
        "request": decision_id(policy, finding, "act"),
        "reasons": json.dumps([{"gate": r.gate, "text": r.text} for r in reasons]),
    }


def _asked(part: msgspec.Struct) -> Iterator[str]:
    """Yield what a part of a policy asks beside its defaults."""
    fresh = type(part)()
    for name in part.__struct_fields__:
        value = getattr(part, name)
        if value == getattr(fresh, name):
            continue
        said = name.replace("_", " ")
        match value:
            case tuple():
                yield f"{said} {' | '.join(value)}"
            case dict():
                labels = (f"{key}={'|'.join(values)}" for key, values in value.items())
                yield f"{said} {' '.join(labels)}"
            case bool():
                yield said
            case str():
                yield f"{said} {value}"
            case timedelta():
                yield f"{said} of {format_duration(value.total_seconds())} or more"
            case _:
                yield f"{said} of {value} or more"


def _rung(rung: "Rung") -> str:
    wait = format_duration(rung.wait.total_seconds()) if rung.wait else ""
    return " ".join(filter(None, (rung.step, wait, ", ".join((*rung.what, *rung.do)))))


def _budget(budget: "Budget") -> str:
    most = [
        f"{amount} {name.replace('_', ' ')}"
        for name in ("workloads", "gpus", "owners", "usd_per_hour")
        if (amount := getattr(budget, name)) is not None
    ]
    said = f"{', '.join(most)} in {format_duration(budget.per.total_seconds())}"
    each = f" for each {budget.each}" if budget.each else ""
    return said + each + (f", {_when(budget.window)}" if budget.window else "")


def _when(window: "Recurring") -> str:
    length = format_duration(window.duration.total_seconds())
    return f"while {window.schedule} ({window.timezone}) for {length}"


def _approvals(policy: "Policy") -> str:
    asked = policy.approvals
    said = {"none": "nobody", "always": "always", "first": f"the first {asked.first}"}[asked.when]
    return said + (", by two people" if asked.four_eyes else "")


def _batch(table: str, rows: Sequence[dict[str, Any]]) -> Batch:
    names = dict.fromkeys(name for row in rows for name in row)
    return Batch.of(table, {name: [row.get(name) for row in rows] for name in names})


def _naive(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(UTC).replace(tzinfo=None)

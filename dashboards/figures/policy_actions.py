"""Show policies' decisions and actions: plan, approvals, actions, refusals, freezes."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from dashboards.figures.query import Filters, run_query
from fallow.action_models import Reason
from fallow.money import sum_known
from fallow.protocols import Views
from fallow.resources import read_table
from fallow.rows import Row
from fallow.window import Window

MOST = 1000
OWN_WORDS = frozenset({"held", "keep", "veto"})
"""Gates whose reasons are written by the workload's own team: requests, budgets, annotations."""
STANDS = frozenset({"done", "not sticking"})
"""Results that an undo can reverse."""


def plan(views: Views, filters: Filters) -> pa.Table:
    """Return the current decisions, a row per object: done, notified, held, refused, observed.

    An action that began after the plan was written has its result in `says`.

    Columns: subject, cluster, owner, verb, says, policy, step, gate, reason (the first) and why
    (all, if it is not done), next_at (UTC), gpus, gpu_hours_per_day, usd_per_day (null: no price,
    or only a bound), finding, request, and of the whole plan at, aborted (why nothing is done at
    all) and acts (the service carries it out).
    """
    steps = ("journal", "planned", "acted", "begun", "policy_actions/plan")
    return run_query(views, steps, None, filters, most=MOST)


def count_refused_by_gate(views: Views, filters: Filters) -> list[dict[str, Any]]:
    """Return what the last plan refuses, holds or only notifies, by gate, the most expensive first.

    Keys: gate, decision (refused, held, notified only), cases, gpus, usd_per_day, example (the
    reason of the most expensive case), policies, next_at (UTC, the soonest; null = time alone
    changes nothing), and from `gate_words.csv` reason and change (what would change it).
    """
    steps = ("planned", "policy_actions/refused_by_gate")
    words = {row["gate"]: row for row in read_table("dashboards", "gate_words.csv")}
    unlisted = {"reason": None, "change": "fallow why-not WORKLOAD --gates shows every gate"}
    return [
        row | {k: words.get(row["gate"], unlisted)[k] or row["gate"] for k in unlisted}
        for row in run_query(views, steps, None, filters).to_pylist()
    ]


class PlannedCase(msgspec.Struct, frozen=True):
    """A case of a plan, with what its act would free."""

    team: str | None
    reasons: tuple[Reason, ...]
    gpus: float | None
    usd_per_day: Decimal | None


class HeldBack(Row, frozen=True):
    """What one reason that a team itself wrote keeps from being saved."""

    team: str
    reason: str
    cases: int
    gpus: float
    usd_per_day: Decimal | None
    """None = no case has a price."""


def read_held_back(views: Views, filters: Filters) -> list[HeldBack]:
    """Return what the last plan leaves alone for reasons that teams wrote, by team and reason."""
    rows = run_query(views, ("planned", "policy_actions/planned_cases"), None, filters)
    decode = msgspec.json.Decoder(tuple[Reason, ...]).decode
    return sum_held_back(
        PlannedCase(row["team"], decode(row["reasons"] or "[]"), row["gpus"], row["usd_per_day"])
        for row in rows.to_pylist()
    )


def sum_held_back(cases: Iterable[PlannedCase]) -> list[HeldBack]:
    """Sum cases by team and reason, the most expensive first.

    A reason is the text of a gate in `OWN_WORDS` up to its colon. A case with two reasons counts at
    each: sums of several reasons may be more than what the cases cost.
    """
    by_reason: dict[tuple[str, str], list[PlannedCase]] = defaultdict(list)
    for case in cases:
        texts = {r.text.partition(":")[0] for r in case.reasons if r.gate in OWN_WORDS}
        for text in sorted(texts):
            by_reason[case.team or "", text].append(case)
    rows = [
        HeldBack(
            team,
            reason,
            len(of_reason),
            sum(case.gpus or 0.0 for case in of_reason),
            sum_known([case.usd_per_day for case in of_reason]),
        )
        for (team, reason), of_reason in by_reason.items()
    ]
    return sorted(rows, key=lambda r: (-(r.usd_per_day or 0), -r.gpus, r.team, r.reason))


def read_waiting(views: Views, filters: Filters) -> pa.Table:
    """Return pending approvals: id of the request, subject, verb, policy, requester and time.

    `planned`: the case is still in the plan; approved_by: the first approver where two are
    required.
    """
    return run_query(
        views, ("journal", "planned", "policy_actions/waiting"), None, filters, most=MOST
    )


def count_waiting(views: Views, filters: Filters) -> int:
    """Return how many actions wait for approval: requests whose case is in the last plan."""
    return sum(read_waiting(views, filters)["planned"].to_pylist())


def list_outdated_requests(views: Views, filters: Filters) -> set[str]:
    """Return the pending requests whose case is not in the last plan: an approval does nothing."""
    return {row["id"] for row in read_waiting(views, filters).to_pylist() if not row["planned"]}


def read_actions_done(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return the actions of the window and the open ones, the newest first.

    Columns: id, cluster, at, subject, owner, verb, policy, result, why, actor, freed_gpus,
    restored_by, restored_at, ended, lost (what cannot be restored), saved_usd, saved_gpu_hours
    (measured so far), finding.
    """
    return run_query(
        views, ("journal", "acted", "policy_actions/past_actions"), window, filters, most=MOST
    )


def read_refused(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return the loop's refusals before an action: at, subject, policy, why, actor, decision."""
    return run_query(views, ("journal", "policy_actions/refused"), window, filters, most=MOST)


def read_frozen(views: Views, filters: Filters) -> pa.Table:
    """Return the clusters where nothing acts: cluster, at, actor, why."""
    return run_query(views, ("journal", "policy_actions/frozen"), None, filters)


def can_undo(result: str | None, at: datetime, now: datetime, watch: timedelta) -> bool:
    """Return whether an action can still be undone; timestamps are naive UTC."""
    return result in STANDS and now - at < watch

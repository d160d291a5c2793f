"""Show policies' decisions and actions: plan, approvals, actions, refusals, freezes."""

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from dashboards.figures.query import Filters, run_query
from fallow.protocols import Views
from fallow.resources import read_table
from fallow.window import Window

MOST = 1000
STANDS = frozenset({"done", "not sticking"})
"""Results that an undo can reverse."""


def plan(views: Views, filters: Filters) -> pa.Table:
    """Return the current decisions, a row per object: done, notified, held, refused, observed.

    Columns: subject, cluster, owner, verb, says, policy, step, gate and why (if it is not done),
    next_at (UTC), gpus, gpu_hours_per_day, usd_per_day, finding, request, and of the whole plan at,
    aborted (why nothing is done at all) and acts (the service carries it out).
    """
    return run_query(views, ("planned", "policy_actions/plan"), None, filters, most=MOST)


def count_refused_by_gate(views: Views, filters: Filters) -> list[dict[str, Any]]:
    """Return what the last plan refuses, holds or only notifies, by gate, the most expensive first.

    Keys: gate, decision (refused, held, notified only), cases, gpus, usd_per_day, example (the
    reason of the most expensive case), policies, next_at (UTC, the soonest; null = time alone
    changes nothing), and from `gate_words.csv` reason and change (what would change it).
    """
    steps = ("planned", "policy_actions/refused_by_gate")
    words = {row["gate"]: row for row in read_table("dashboards", "gate_words.csv")}
    unlisted = {"reason": None, "change": "fallow why-not WORKLOAD shows every gate"}
    return [
        row | {k: words.get(row["gate"], unlisted)[k] or row["gate"] for k in unlisted}
        for row in run_query(views, steps, None, filters).to_pylist()
    ]


def read_waiting(views: Views, filters: Filters) -> pa.Table:
    """Return pending approvals: id of the request, subject, verb, policy, requester and time.

    `planned`: the case is still in the plan; approved_by: the first approver where two are
    required.
    """
    return run_query(
        views, ("journal", "planned", "policy_actions/waiting"), None, filters, most=MOST
    )


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

"""A case that passes every gate, and the policy that acts on it; tests break one thing."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from actions.policy.budgets import BudgetUsage
from actions.policy.model import Allow, Match, Policy, Stage
from fallow.action_models import CaseHistory, Facts
from fallow.models import Finding, Recommendation, Subject
from fallow.window import Window

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)

WANTED = {
    "probability": 0.005, "within": "4h", "exposures": 99, "returns": 0, "own_days": 20,
    "own_returns": 0,
}  # fmt: skip
POLICY = Policy(
    name="idle-notebooks",
    mode="enforce",
    match=Match(analyzer=("idle",)),
    allow=Allow(namespaces=("team-*",)),
    stages=(
        Stage("observe"),
        Stage("notify"),
        Stage("grace", wait=24 * HOUR),
        Stage("act", do=("suspend",), verbs=("stop", "suspend")),
    ),
)
SPENT = BudgetUsage(
    fleet_gpus=512.0,
    fleet_workloads=100,
    fleet_owners=20,
    fleet_usd_per_hour=Decimal(1000),
    trusted=frozenset({"idle-notebooks"}),
)
TOLD = CaseHistory(first_seen=NOW - 30 * HOUR, notified_at=NOW - 25 * HOUR)


def finding(owner_kind: str = "Notebook", namespace: str = "team-a", **changes: Any) -> Finding:
    made = Finding(
        id="f" * 12,
        analyzer="idle",
        kind="idle_notebook",
        subject=Subject("c", namespace, owner_kind, "w"),
        window=Window(NOW - 48 * HOUR, NOW),
        verdict="idle",
        evidence="confirmed",
        confidence=1.0,
        gpu_hours=96.0,
        usd=Decimal("192.00"),
        details={"actionable": True, "reasons": [], "wanted": WANTED},
    )
    return msgspec.structs.replace(made, **changes)


def advice(verb: str = "stop", **changes: Any) -> Recommendation:
    made = Recommendation(
        verb=verb,
        target="Notebook/team-a/w",
        why="idle",
        reversible=True,
        undo="start it",
        gpu_hours_per_day=48.0,
        usd_per_day=Decimal("96.00"),
    )
    return msgspec.structs.replace(made, **changes)


def facts(**changes: Any) -> Facts:
    made = Facts(
        finding=finding(),
        recommendation=advice(),
        at=NOW,
        gpus=2.0,
        models=("H100",),
        uid="uid-1",
        owner="team-a",
        created_at=NOW - 72 * HOUR,
        seen_until=NOW - timedelta(seconds=30),
        interval_s=30.0,
        coverage=0.99,
        shared=False,
        owner_resolved=True,
        nodes_ready=True,
        skew_s=0.5,
        usd_per_day=Decimal("96.00"),
        waiting=(),
        history=TOLD,
    )
    return msgspec.structs.replace(made, **changes)


def policy(**changes: Any) -> Policy:
    return msgspec.structs.replace(POLICY, **changes)


def spent(**changes: Any) -> BudgetUsage:
    return msgspec.structs.replace(SPENT, **changes)


def history(**changes: Any) -> CaseHistory:
    return msgspec.structs.replace(TOLD, **changes)

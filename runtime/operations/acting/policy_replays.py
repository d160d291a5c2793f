"""Back-test several policies: with workers, a policy is a slice.

The cases of one policy stay together: budgets, `max_resources` and demotion join its workloads.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from actions.policy.model import Policy
from fallow.settings import Settings
from fallow.window import Window
from runtime.operations.acting.plans import load_policies, run_backtest
from warehouse.runners.choice import is_sliced, open_runner
from warehouse.runners.slices import Runner
from warehouse.stages.pinned import open_snapshot, read_snapshot

if TYPE_CHECKING:
    from actions.backtest import Backtest, BacktestStop
    from warehouse.lake import Warehouse


class ReplaySpan(msgspec.Struct, frozen=True):
    """What each policy is replayed over; see `plans.run_backtest`."""

    since: str
    now: datetime
    cluster: str | None
    step: timedelta | None = None
    within: timedelta | None = None


class PolicySlice(msgspec.Struct, frozen=True):
    """One policy of several."""

    policy: Policy

    def __str__(self) -> str:
        return f"policy {self.policy.name}"


def list_policy_stops(
    warehouse: "Warehouse",
    settings: Settings,
    file: Path,
    window: Window,
    *,
    now: datetime,
    cluster: str | None,
) -> "tuple[BacktestStop, ...]":
    """Return the stops of all policies of a file or folder in a window, by their back-tests.

    Raises: as `plans.load_policies` and `replay_policies`.
    """
    span = ReplaySpan(f"{window.start.isoformat()}/{window.end.isoformat()}", now, cluster)
    results = replay_policies(warehouse, settings, load_policies(settings, [file]), span)
    return tuple(stop for result in results for stop in result.stops)


def replay_policies(
    warehouse: "Warehouse",
    settings: Settings,
    policies: Sequence[Policy],
    span: ReplaySpan,
    runner: Callable[[Settings], Runner] | None = None,
) -> "list[Backtest]":
    """Return the back-test of each policy, in their order, from one snapshot.

    Raises:
        UsageError: as `plans.run_backtest`.
        StageError: the replay of a policy failed three times.
        TemporaryError: the workers cannot be reached.
    """
    if len(policies) <= 1 or (runner is None and not is_sliced(settings)):
        return [replay_policy(warehouse, settings, policy, span) for policy in policies]
    task = partial(replay_slice, settings, read_snapshot(warehouse), span)
    slices = [PolicySlice(policy) for policy in policies]
    if runner is not None:
        return runner(settings).map(task, slices)
    with open_runner(settings) as workers:
        return workers.map(task, slices)


def replay_slice(
    settings: Settings, snapshot: int, span: ReplaySpan, part: PolicySlice
) -> "Backtest":
    """Return the back-test of one policy, from one snapshot."""
    with open_snapshot(settings, snapshot, lambda: span.now) as warehouse:
        return replay_policy(warehouse, settings, part.policy, span)


def replay_policy(
    warehouse: "Warehouse", settings: Settings, policy: Policy, span: ReplaySpan
) -> "Backtest":
    """Return the back-test of one policy; see `plans.run_backtest`."""
    return run_backtest(
        warehouse,
        settings,
        policy,
        since=span.since,
        step=span.step,
        within=span.within,
        now=span.now,
        cluster=span.cluster,
    )

"""The protocols of the loop's dependencies: transport, evidence, notices, snapshots."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol

import msgspec

from actions.cluster.write_results import WriteResult
from actions.loop.recheck import Recheck
from actions.plan import ActionPlan
from actions.policy.budgets import BudgetUsage
from actions.policy.model import Policy
from fallow.action_models import (
    Action,
    CaseHistory,
    Change,
    Decision,
    Facts,
    Intent,
    Outcome,
    Reason,
    Target,
)
from fallow.plugin_runs import PluginRun
from fallow.protocols import ClusterReader, Executor

CaseKey = tuple[str, str]
"""policy, finding"""


class Transport(Protocol):
    """The destination of changes: sends each once, and reads the result."""

    def get(self, path: str) -> Mapping[str, Any] | None:
        """Return one object; None = it does not exist."""
        ...

    def send(self, change: Change, *, dry_run: bool) -> WriteResult:
        """Send one change and return what its answer means. It is never retried here."""
        ...


class ClusterClient(Transport, ClusterReader, Protocol):
    """A cluster that executors read and the loop writes."""

    def review(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Post a SelfSubjectAccessReview and return the answer."""
        ...


class EvidenceSource(Protocol):
    """The source of cases, and of the renewed evaluation of one case."""

    def read_sources(self, now: datetime) -> None:
        """Read the sources again, unless they were read recently."""
        ...

    def cases(self, now: datetime) -> Sequence[Facts]:
        """Return the facts of all cases."""
        ...

    def again(self, facts: Facts, now: datetime) -> Facts | None:
        """Read the sources again and return the case's facts; None = it is no case any more."""
        ...

    def recheck(self, facts: Facts, now: datetime) -> Recheck:
        """Read every signal of an idle workload again, and return what is active or stale."""
        ...

    def fleet(self, now: datetime) -> BudgetUsage:
        """Return the size of the fleet, for budgets that are a share of it."""
        ...

    def incident(self, now: datetime) -> str | None:
        """Return why telemetry as a whole is unreliable; None = it is reliable."""
        ...


class OtherClusters(Protocol):
    """The actors of other clusters that share the catalog, for budgets of the whole fleet."""

    def add_usage(self, usage: BudgetUsage, since: datetime) -> BudgetUsage:
        """Return the usage with the actions in other clusters, or why they are unknown."""
        ...

    def alone(self) -> AbstractContextManager[None]:
        """Let no other cluster spend from a budget of the whole fleet meanwhile.

        Raises:
            TemporaryError: another cluster's actor does so now, or the catalog is away.
        """
        ...


class Notice(msgspec.Struct, frozen=True):
    """One case for its owner, or one message for the operators."""

    key: str
    """The finding, or the subject of the message."""
    policy: str
    text: str
    owner: str | None = None
    channels: tuple[str, ...] = ()
    """Names of the channels that labels and annotations select."""
    operators: bool = False


class NoticeProof(msgspec.Struct, frozen=True):
    """The result of one notice: the channels that delivered it, or why it was not delivered."""

    notice: Notice
    delivered: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    waits_until: datetime | None = None
    """Quiet hours or a digest: it is not sent yet, which is no failure."""


class Notifier(Protocol):
    """Delivers notices to people."""

    def tell(self, notices: Sequence[Notice], now: datetime) -> list[NoticeProof]:
        """Deliver notices, one digest per channel, and return the result of each."""
        ...


class VerifiedSnapshot(Protocol):
    """A snapshot."""

    @property
    def id(self) -> str:
        """Its name."""
        ...

    @property
    def verified(self) -> bool:
        """Return whether it was read back completely."""
        ...

    @property
    def missing(self) -> tuple[str, ...]:
        """Return what could not be kept, and why."""
        ...


class SnapshotTaker(Protocol):
    """Keeps what a workload would lose when it is stopped."""

    def take(self, intent: Intent, kinds: Sequence[str]) -> VerifiedSnapshot:
        """Keep the requested parts of every pod that the intent would stop."""
        ...

    def restore(self, snapshot: Any, target: Target) -> Sequence[Any]:
        """Restore a snapshot to the target's running pods (`actions.snapshots`)."""
        ...


Planner = Callable[
    [Sequence[Policy], Sequence[Facts], BudgetUsage, datetime, Mapping[CaseKey, CaseHistory]],
    ActionPlan,
]
Decider = Callable[[Policy, Facts, BudgetUsage, datetime], Decision]
ExecutorChooser = Callable[[Decision], Executor]
Guard = Callable[[Intent, Mapping[str, Any], ClusterReader, datetime], tuple[Reason, ...]]
"""Returns why an object in its current state must not be changed: protections, obstacles."""


Reviewer = Callable[[Action, datetime], tuple[Reason, ...] | None]
"""Returns why an action did harm; () = it did not; None = too early, or unknown."""


class StepResult(msgspec.Struct, frozen=True):
    """The result of one decision in an evaluation."""

    decision: Decision
    result: str
    """would act | acted | notified | kept a snapshot | held | refused"""
    reasons: tuple[Reason, ...] = ()
    action: str | None = None
    intent: Intent | None = None
    run: PluginRun | None = None
    """The run of the executor; None = no executor was called."""


class TurnReport(msgspec.Struct, frozen=True):
    """The results of one evaluation."""

    at: datetime
    dry_run: bool
    halted: tuple[Reason, ...] = ()
    """Why no new action was taken: a freeze, another actor, unreliable telemetry."""
    plan: ActionPlan | None = None
    steps: tuple[StepResult, ...] = ()
    closed: tuple[Outcome, ...] = ()
    """Actions whose outcome became known."""
    open: tuple[str, ...] = ()
    """Actions whose outcome is still open."""
    notes: tuple[str, ...] = ()

"""What the loop needs from others: a door that writes, fresh evidence, notices, snapshots."""

from collections.abc import Callable, Mapping, Sequence
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
    """Where changes are sent, once each, and what they did is read."""

    def get(self, path: str) -> Mapping[str, Any] | None:
        """Return one object; None = it is not there."""
        ...

    def send(self, change: Change, *, dry_run: bool) -> WriteResult:
        """Send one change and say what its answer means. It is never tried again here."""
        ...


class ClusterClient(Transport, ClusterReader, Protocol):
    """A cluster that can be read as executors read it, and written to."""


class EvidenceSource(Protocol):
    """Where cases come from, and one of them evaluated again."""

    def read_sources(self, now: datetime) -> None:
        """Read the sources anew, unless they were read just now."""
        ...

    def cases(self, now: datetime) -> Sequence[Facts]:
        """Return the facts of every case there is."""
        ...

    def again(self, facts: Facts, now: datetime) -> Facts | None:
        """Look at the sources anew and return the case's facts; None = it is no case any more."""
        ...

    def recheck(self, facts: Facts, now: datetime) -> Recheck:
        """Read every signal of an idle workload once more, and say what is active or old."""
        ...

    def fleet(self, now: datetime) -> BudgetUsage:
        """Return the size of the fleet, for budgets that are a share of it."""
        ...

    def incident(self, now: datetime) -> str | None:
        """Say why telemetry as a whole is not to be trusted, None = it may be."""
        ...


class Notice(msgspec.Struct, frozen=True):
    """One case to tell its owner about, or one thing to tell the operators."""

    key: str
    """The finding, or what it is about."""
    policy: str
    text: str
    owner: str | None = None
    channels: tuple[str, ...] = ()
    """Names of channels that labels and annotations ask for."""
    operators: bool = False


class NoticeProof(msgspec.Struct, frozen=True):
    """What came of a notice: delivered by which channels, or why it was not."""

    notice: Notice
    delivered: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    waits_until: datetime | None = None
    """Quiet hours or a digest: it is not sent yet, and nobody's fault."""


class Notifier(Protocol):
    """Tells people."""

    def tell(self, notices: Sequence[Notice], now: datetime) -> list[NoticeProof]:
        """Deliver notices, one digest per channel, and return what came of each."""
        ...


class VerifiedSnapshot(Protocol):
    """A snapshot."""

    @property
    def id(self) -> str:
        """Its name."""
        ...

    @property
    def verified(self) -> bool:
        """Was it read back whole?"""
        ...

    @property
    def missing(self) -> tuple[str, ...]:
        """What could not be kept, and why."""
        ...


class SnapshotTaker(Protocol):
    """Keeps what a workload would lose."""

    def take(self, intent: Intent, what: Sequence[str]) -> VerifiedSnapshot:
        """Keep what is asked for of every pod that the intent would stop."""
        ...

    def restore(self, snapshot: Any, target: Target) -> Sequence[Any]:
        """Give back to the target's running pods what was kept (`actions.snapshots`)."""
        ...


Planner = Callable[
    [Sequence[Policy], Sequence[Facts], BudgetUsage, datetime, Mapping[CaseKey, CaseHistory]],
    ActionPlan,
]
Decider = Callable[[Policy, Facts, BudgetUsage, datetime], Decision]
ExecutorChooser = Callable[[Decision], Executor]
Guard = Callable[[Intent, Mapping[str, Any], ClusterReader, datetime], tuple[Reason, ...]]
"""Says why an object, as it is now, is not to be touched: protections, rivals."""


Reviewer = Callable[[Action, datetime], tuple[Reason, ...] | None]
"""Says why an action did harm; () = it did not; None = too early to say, or nobody can."""


class StepResult(msgspec.Struct, frozen=True):
    """What a turn did about one decision."""

    decision: Decision
    result: str
    """would act | acted | notified | kept a snapshot | held | refused"""
    reasons: tuple[Reason, ...] = ()
    action: str | None = None
    intent: Intent | None = None
    run: PluginRun | None = None
    """What came of the executor that was called; None = none was."""


class TurnReport(msgspec.Struct, frozen=True):
    """What one turn saw and did."""

    at: datetime
    dry_run: bool
    halted: tuple[Reason, ...] = ()
    """Why nothing new was done: frozen, another actor, telemetry."""
    plan: ActionPlan | None = None
    taken: tuple[StepResult, ...] = ()
    closed: tuple[Outcome, ...] = ()
    """Actions whose outcome became known."""
    open: tuple[str, ...] = ()
    """Actions whose outcome is still to come."""
    notes: tuple[str, ...] = ()

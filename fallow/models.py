"""Define the models that users see: a finding, its evidence, and what would remove the waste.

Everything else is a row of a table (`fallow.tables`). Models are frozen and typed; money is
decimal; time is UTC; ids are content hashes, so that the same waste is the same finding tomorrow.
"""

import hashlib
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

import msgspec

from fallow.window import Window

Verdict = Literal["busy", "idle", "partly idle", "unknown", "wasteful"]
Evidence = Literal["suspected", "confirmed"]
State = Literal[
    "unavailable",
    "stranded",
    "free",
    "startup",
    "idle",
    "low",
    "productive",
    "lost",
    "unknown",
]
STATES: tuple[State, ...] = State.__args__  # type: ignore[attr-defined]
UNRESOLVED = "unresolved"
"""Workload kind of a workload whose top owner no inventory names: its real kind is not known."""
STALLED_JOB = "stalled_job"
"""Kind of the findings of analyzers/stalled: a job that hangs."""
CLUSTER_SCOPED = frozenset({"workload", "namespace", "pool", "node"})
"""Keys whose equal names in two clusters are two things."""
PLATFORM = "(platform)"
"""The owner of unallocated time, in figures by team, namespace and workload."""
WASTED: tuple[State, ...] = ("idle", "lost", "free", "stranded", "unavailable")
"""The states that are waste. Low use is not among them, and unknown time is never waste."""
Saving = Literal["cash", "capacity", "commitment"]
Effort = Literal["quick win", "advanced", "continuous"]


class Subject(msgspec.Struct, frozen=True, omit_defaults=True):
    """The workload (never the single pod or GPU) a finding is about."""

    cluster: str
    namespace: str
    workload_kind: str
    workload: str
    team: str | None = None
    nodes: tuple[str, ...] = ()
    models: tuple[str, ...] = ()


class Claim(msgspec.Struct, frozen=True, omit_defaults=True):
    """GPU-hours of the ledger that a recommendation would save: of which owner, in which state.

    None = any. The waterfall never credits more than the ledger has there.
    """

    cluster: str
    namespace: str | None
    workload_kind: str | None
    workload: str | None
    pool: str | None
    state: State
    gpu_hours: float
    usd: Decimal | None = None
    node: str | None = None
    model: str | None = None
    granted_gpu_hours: float | None = None
    """The hours that the waterfall credits to it; None = no waterfall had it."""


class Recommendation(msgspec.Struct, frozen=True, omit_defaults=True):
    """What would remove the waste, how it is undone, and what it would free.

    `saving`: the bill becomes smaller (cash), others get the GPUs (capacity), or they are paid for
    in any case (commitment). `claims` are the ledger's cells that the waterfall may credit to it.
    The waterfall fills in what the recommendation would save by itself (gross), what it saves in
    addition to the stages before it (marginal), and the bound of hours in use (at most).
    """

    verb: str
    target: str
    why: str
    reversible: bool
    undo: str | None = None
    gpu_hours_per_day: float | None = None
    usd_per_day: Decimal | None = None
    caution: str | None = None
    saving: Saving = "capacity"
    effort: Effort = "quick win"
    claims: tuple[Claim, ...] = ()
    gross_gpu_hours: float | None = None
    gross_usd: Decimal | None = None
    marginal_gpu_hours: float | None = None
    marginal_usd: Decimal | None = None
    marginal_idle_gpu_hours: float | None = None
    """Of `marginal_gpu_hours`, those that are idle in the ledger."""
    marginal_in_use_gpu_hours: float | None = None
    """Of `marginal_gpu_hours`, those that the ledger does not call waste (`WASTED`)."""
    marginal_in_use_usd: Decimal | None = None
    at_most_gpu_hours: float | None = None
    """Hours in use that it could free at most: in no saving."""
    at_most_usd: Decimal | None = None
    parameters: dict[str, Any] = {}
    """What an executor needs, as machine-readable values: a size, a profile, a node, amounts."""

    @property
    def is_bound(self) -> bool:
        """Whether it is about hours in use alone: its dollars are the most that it could free."""
        states = {claim.state for claim in self.claims}
        return self.saving != "cash" and bool(states) and states.isdisjoint(WASTED)


class Finding(msgspec.Struct, frozen=True):
    """Waste that Fallow can prove: its owner, time and amount, with the evidence."""

    id: str
    analyzer: str
    kind: str
    subject: Subject
    window: Window
    verdict: Verdict
    evidence: Evidence
    confidence: float
    gpu_hours: float
    usd: Decimal | None
    details: dict[str, Any]
    recommendations: tuple[Recommendation, ...] = ()


class FindingKey(msgspec.Struct, frozen=True):
    """What identifies a finding, with its window."""

    analyzer: str
    kind: str
    subject: Subject
    window: Window

    def build(
        self,
        *,
        evidence: Evidence,
        confidence: float,
        details: dict[str, Any],
        verdict: Verdict = "wasteful",
        gpu_hours: float = 0.0,
        usd: Decimal | None = Decimal(0),
        recommendations: tuple[Recommendation, ...] = (),
    ) -> Finding:
        """Return the finding; without hours it claims none."""
        return Finding(
            compute_finding_id(self.analyzer, self.kind, self.subject, self.window.start),
            self.analyzer, self.kind, self.subject, self.window, verdict, evidence, confidence,
            gpu_hours, usd, details, recommendations,
        )  # fmt: skip


class Unjudged(msgspec.Struct, frozen=True):
    """A workload that seemed idle or could not be observed, and why there is no verdict."""

    subject: Subject
    gpu_hours: float
    reasons: tuple[str, ...]
    window: Window | None = None


def compute_finding_id(analyzer: str, kind: str, subject: Subject, start: datetime) -> str:
    """Hash what identifies a finding: the analyzer, the subject and the start."""
    parts = (
        analyzer,
        kind,
        subject.cluster,
        subject.namespace,
        subject.workload_kind,
        subject.workload,
        start.isoformat(),
    )
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:12]

"""The data model of a policy. `parser.py` builds it from YAML; `docs/policies.md` has every key.

Policy ─► Match (which findings) · Allow (where it may act) · Stages (how far, in which order)
       ─► Budgets, blackouts, approvals, cool-down, reversals (how often, and when not)
"""

import hashlib
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

import msgspec

from fallow.action_models import Step
from fallow.models import Evidence
from fallow.renamed import read_renames

Mode = Literal["notify", "enforce"]
When = Literal["none", "first", "always"]
Each = Literal["", "namespace", "owner", "cluster"]
Counts = Literal["policy", "all"]
Scope = Literal["cluster", "fleet"]


class RecurringWindow(msgspec.Struct, frozen=True):
    """Windows that a cron schedule opens, in the local time of a time zone."""

    schedule: str
    duration: timedelta
    timezone: str = "UTC"


class Match(msgspec.Struct, frozen=True):
    """Which findings a policy matches: all conditions must hold. Empty = any.

    Texts are globs. Numbers are minimums.
    """

    analyzer: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    verb: tuple[str, ...] = ()
    workload_kind: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    not_namespaces: tuple[str, ...] = ()
    queue: tuple[str, ...] = ()
    owner: tuple[str, ...] = ()
    gpu_model: tuple[str, ...] = ()
    labels: dict[str, tuple[str, ...]] = {}
    namespace_labels: dict[str, tuple[str, ...]] = {}
    over_quota: bool = False
    """Only workloads of a queue or namespace that holds more than its nominal quota."""
    evidence: Evidence = "suspected"
    confidence: float = 0.0
    gpus: float = 0.0
    min_duration: timedelta = timedelta(0)
    """How long the same idle stretch has lasted; other findings have no such age."""
    gpu_hours: float = 0.0
    gpu_hours_per_day: float = 0.0
    usd_per_day: Decimal = Decimal(0)


class Allow(msgspec.Struct, frozen=True):
    """Where a policy may act. Everything not listed is forbidden."""

    namespaces: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    """Kinds of workloads; empty = any that match, but kinds that serve must be named."""
    production: bool = False
    """True: it may act on production (`production.csv`)."""
    held_by: tuple[str, ...] = ()
    """What may be stopped although it is held: budgets (namespace/name), labels, containers."""
    cluster_objects: bool = False
    """True: it may act on objects without a namespace: nodes, pools, groups of quotas."""


class Stage(msgspec.Struct, frozen=True):
    """One of a policy's stages, in their order."""

    step: Step
    wait: timedelta = timedelta(0)
    """For grace: the wait after the proved notice."""
    parts: tuple[str, ...] = msgspec.field(name="what", default=())
    """For snapshot: manifest, volume, home."""
    required: bool = False
    """For snapshot: without a verified snapshot there is no act."""
    do: tuple[str, ...] = ()
    """For act: capabilities of executors, or verbs of recommendations."""
    verbs: tuple[str, ...] = ()
    """For act: globs of the verbs that `do` stands for, by the executors installed when read."""
    parameters: dict[str, Any] = {}
    """For act: the executor's parameters besides the finding's own figures."""


class PolicyAmount(msgspec.Struct, frozen=True):
    """A number, or a share (0 to 1) of the fleet."""

    value: Decimal
    share: bool = False

    def __str__(self) -> str:
        return f"{(self.value * 100).normalize():f}%" if self.share else f"{self.value:f}"


class ActionBudget(msgspec.Struct, frozen=True):
    """The maximum in any stretch of `per`, always or while a schedule is open."""

    workloads: PolicyAmount | None = None
    gpus: PolicyAmount | None = None
    owners: PolicyAmount | None = None
    usd_per_hour: PolicyAmount | None = None
    per: timedelta = timedelta(days=1)
    each: Each = ""
    """Counted separately for each namespace, owner or cluster; empty = together."""
    counts: Counts = "policy"
    """Which actions count: this policy's, or those of all policies."""
    scope: Scope = "cluster"
    """Whose actions count: this cluster's, or those of all clusters of the catalog."""
    window: RecurringWindow | None = None
    """When it is in force; None = always. All budgets in force at a time count."""


class Blackout(msgspec.Struct, frozen=True):
    """When nothing is done: between two times, or while a schedule is open."""

    name: str
    start: datetime | None = None
    end: datetime | None = None
    window: RecurringWindow | None = None


class Approvals(msgspec.Struct, frozen=True):
    """Whether people must approve each action."""

    when: When = "none"
    first: int = 0
    """The number of the policy's first actions that need approval (`when` = first)."""
    four_eyes: bool = False
    """Two different people must approve."""


class ReversalLimit(msgspec.Struct, frozen=True):
    """How often owners may reverse its actions before the policy demotes itself."""

    rate: float = 0.05
    within: timedelta = timedelta(hours=24)


class Policy(msgspec.Struct, frozen=True):
    """One rule of a site."""

    name: str
    description: str = ""
    mode: Mode = "notify"
    match: Match = Match()
    allow: Allow = Allow()
    stages: tuple[Stage, ...] = (Stage("observe"),)
    budgets: tuple[ActionBudget, ...] = ()
    concurrent: int = 2
    """Maximum number of actions under way at once."""
    blackouts: tuple[Blackout, ...] = ()
    act_window: RecurringWindow | None = None
    """It acts only while this is open, and its notices announce when that is; None = always."""
    approvals: Approvals = Approvals()
    on_pressure: bool = False
    """Only if a pending workload would really be admitted on the freed GPUs."""
    on_benefit: bool = False
    """Only if so, or if a node would become empty and removable: else an act saves nothing."""
    min_age: timedelta = timedelta(hours=1)
    checkpoint_age: timedelta | None = None
    """A stop may lose this much work since a checkpoint that was seen; None = not asked."""
    cool_down: timedelta = timedelta(hours=6)
    """Time between two actions on one object; each reversal by its owner doubles it."""
    reversals: ReversalLimit = ReversalLimit()
    max_resources: PolicyAmount = PolicyAmount(Decimal("0.2"), share=True)
    """If more cases than this are ready for an act in one run, the whole run is aborted."""
    source: str = ""
    """File and line of the policy."""

    @property
    def fingerprint(self) -> str:
        """Hash of the content (not of the source line).

        Trust in one text does not apply to another.

        The hash uses the key names of before 0.1.0: a renamed key takes no trust away, and neither
        does a new key that a policy does not use.
        """
        bare = msgspec.to_builtins(msgspec.structs.replace(self, source=""))
        if self.checkpoint_age is None:
            del bare["checkpoint_age"]
        if not self.allow.held_by:
            del bare["allow"]["held_by"]
        old_names = {new: old for old, new in read_renames("policy").items()}
        named = {old_names.get(key, key): value for key, value in bare.items()}
        return hashlib.sha256(msgspec.json.encode(named, order="sorted")).hexdigest()[:12]

    def stage(self, step: Step) -> Stage | None:
        """Return its stage of this step; None = it has none."""
        return next((candidate for candidate in self.stages if candidate.step == step), None)

"""A policy as a record. `reading.py` makes it from YAML; `docs/policies.md` explains every key.

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


class RecurringWindow(msgspec.Struct, frozen=True):
    """Windows that a cron schedule opens, in the wall's time of a time zone."""

    schedule: str
    duration: timedelta
    timezone: str = "UTC"


class Match(msgspec.Struct, frozen=True):
    """Which findings a policy is about: all that is asked has to hold. Empty = any.

    Texts are globs. Numbers are the least that will do.
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
    """Only what belongs to a queue or namespace that holds more than it is guaranteed."""
    evidence: Evidence = "suspected"
    confidence: float = 0.0
    gpus: float = 0.0
    min_duration: timedelta = timedelta(0)
    """How long the same idle stretch has lasted; other findings have none."""
    gpu_hours: float = 0.0
    gpu_hours_per_day: float = 0.0
    usd_per_day: Decimal = Decimal(0)


class Allow(msgspec.Struct, frozen=True):
    """Where a policy may act. Nothing is allowed until it is listed."""

    namespaces: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    """Kinds of workloads; empty = any that match, but those that serve need to be named."""
    production: bool = False
    """May it act on what looks like production (`production.csv`)?"""
    cluster_objects: bool = False
    """May it act on what belongs to no namespace: nodes, pools, groups of quotas?"""


class Stage(msgspec.Struct, frozen=True):
    """One of a policy's stages, in their order."""

    step: Step
    wait: timedelta = timedelta(0)
    """Of grace: from the proved notice on."""
    what: tuple[str, ...] = ()
    """Of snapshot: manifest, volume, home."""
    required: bool = False
    """Of snapshot: without a verified one, no act."""
    do: tuple[str, ...] = ()
    """Of act: capabilities of executors, or verbs of recommendations."""
    verbs: tuple[str, ...] = ()
    """Of act: globs of the verbs that `do` stands for, by the executors installed when read."""
    parameters: dict[str, Any] = {}
    """Of act: what the executor is told besides the finding's own figures."""


class PolicyAmount(msgspec.Struct, frozen=True):
    """So many, or a share (0 to 1) of the fleet."""

    value: Decimal
    share: bool = False

    def __str__(self) -> str:
        return f"{(self.value * 100).normalize():f}%" if self.share else f"{self.value:f}"


class ActionBudget(msgspec.Struct, frozen=True):
    """The most that may be done in any stretch of `per`, always or while a schedule is open."""

    workloads: PolicyAmount | None = None
    gpus: PolicyAmount | None = None
    owners: PolicyAmount | None = None
    usd_per_hour: PolicyAmount | None = None
    per: timedelta = timedelta(days=1)
    each: Each = ""
    """Counted apart for each namespace, owner or cluster; empty = together."""
    counts: Counts = "policy"
    """Whose actions count: this policy's, or those of all policies."""
    window: RecurringWindow | None = None
    """When it holds; None = always. Budgets that hold at once all count."""


class Blackout(msgspec.Struct, frozen=True):
    """When nothing is done: between two moments, or while a schedule is open."""

    name: str
    start: datetime | None = None
    end: datetime | None = None
    window: RecurringWindow | None = None


class Approvals(msgspec.Struct, frozen=True):
    """Whether people have to agree to each action."""

    when: When = "none"
    first: int = 0
    """So many first actions of the policy need it (`when` = first)."""
    four_eyes: bool = False
    """Two different people."""


class ReversalLimit(msgspec.Struct, frozen=True):
    """How often owners may take back what was stopped before the policy demotes itself."""

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
    """Actions under way at once."""
    blackouts: tuple[Blackout, ...] = ()
    act_window: RecurringWindow | None = None
    """It acts only while this is open, and its notices announce when that is; None = always."""
    approvals: Approvals = Approvals()
    on_pressure: bool = False
    """Only if somebody waits whom the freed GPUs really admit."""
    on_benefit: bool = False
    """Only if so, or if a node would be empty and could go: else acting saves nothing."""
    min_age: timedelta = timedelta(hours=1)
    cool_down: timedelta = timedelta(hours=6)
    """Between two actions on one object; doubles with each time its owner took it back."""
    reversals: ReversalLimit = ReversalLimit()
    max_resources: PolicyAmount = PolicyAmount(Decimal("0.2"), share=True)
    """More cases ready to be acted upon in one run than this abort the whole run."""
    source: str = ""
    """File and line it was read from."""

    @property
    def fingerprint(self) -> str:
        """Hash of all it says (not where it stands): trust in one text is none in another.

        The names of before 0.1.0 stay in the hash: a renamed key takes no trust away.
        """
        bare = msgspec.to_builtins(msgspec.structs.replace(self, source=""))
        old_names = {new: old for old, new in read_renames("policy").items()}
        named = {old_names.get(key, key): value for key, value in bare.items()}
        return hashlib.sha256(msgspec.json.encode(named, order="sorted")).hexdigest()[:12]

    def stage(self, step: Step) -> Stage | None:
        """Return its stage of this step, None = it has none."""
        return next((candidate for candidate in self.stages if candidate.step == step), None)

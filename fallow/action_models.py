"""Define the models of actions: facts of a case, decision, intent, action, outcome and saving.

    finding ─► Facts ─► Decision ─► Intent (Changes and their undo) ─► Action ─► Outcome ─► saving

Facts are stored rows. A decision is a pure function of facts, a policy, budgets and the time. An
executor turns an allowed decision into an intent: the writes, and the writes that undo them, as
data. The executor sends nothing. One loop journals the intent and sends the writes, so that dry
run, preconditions, journal, undo and repair after a crash are the same for every kind of workload.
"""

import hashlib
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, get_args

import msgspec

from fallow.disruptions import CoveringBudget
from fallow.models import Finding, Recommendation

Step = Literal["observe", "notify", "grace", "snapshot", "act"]
Ruling = Literal["allow", "hold", "deny"]
"""allow: take the step now. hold: not now, but perhaps later. deny: not while the case is as it
is."""
Result = Literal["done", "refused", "failed", "reverted", "not sticking", "undone", "unknown"]
SavingKind = Literal["cash", "served", "released", "sunk"]


class Reason(msgspec.Struct, frozen=True):
    """Why a gate decides as it does: the gate's name (`actions/gates.csv`) and a sentence."""

    gate: str
    text: str


class PendingResume(msgspec.Struct, frozen=True):
    """An owner's request to resume what an action suspended, once it has room."""

    by: str
    at: datetime


class Waiter(msgspec.Struct, frozen=True):
    """A pending workload, and whether the GPUs that a case would free would really admit it."""

    namespace: str
    workload_kind: str
    workload: str
    gpus: float
    since: datetime
    admitted: bool | None
    why: str = ""


class CaseHistory(msgspec.Struct, frozen=True):
    """What the journal knows about a case under a policy."""

    first_seen: datetime | None = None
    """When a pass first saw the finding: the first pass never acts."""
    notified_at: datetime | None = None
    """When the delivery of a notice was confirmed."""
    announced: dict[str, datetime] = {}
    """What the last notices announced, and since when, by verb. Old journals have no verbs."""
    approved_by: tuple[str, ...] = ()
    approved_subjects: tuple[str, ...] = ()
    """The subject of each approver's sign-in; empty where nobody signed in, and in old journals."""
    kept_until: datetime | None = None
    snapshot_at: datetime | None = None
    """When a snapshot of this case was verified."""
    last_action_at: datetime | None = None
    restored_at: tuple[datetime, ...] = ()
    """When owners reversed the action (reversals)."""
    contested_until: datetime | None = None
    """A controller reverted the action: Fallow does not act again before this time."""
    open_action: str | None = None
    """An action on the same object whose outcome is not known yet."""


class PodRef(msgspec.Struct, frozen=True):
    """A pod by its name in the workload's namespace and its uid; no uid = the source has none."""

    pod: str
    uid: str = ""
    node: str = ""
    """Where its devices are; empty = not known."""


class IncidentAdvice(msgspec.Struct, frozen=True):
    """What the newest stored incident of a workload says (the table `incident`)."""

    id: str
    cause: str
    step: str
    """The one step, or hold (analyzers/reliability/incidents/steps.csv)."""
    why: str
    nodes: tuple[str, ...]
    room: bool | None = None
    """Whether all of its pods fit on other nodes once it has stopped; None = not known."""


class Facts(msgspec.Struct, frozen=True):
    """All that stored rows contain about one case at one time. None is unknown, never false."""

    finding: Finding
    recommendation: Recommendation
    at: datetime
    """The time that the facts are of; no later row is in them."""
    gpus: float
    pods: tuple[PodRef, ...] | None = None
    """Pods that hold its devices in the evidence; None = not known."""
    models: tuple[str, ...] = ()
    uid: str | None = None
    """The workload's uid as the evidence saw it."""
    generation: int | None = None
    owner: str | None = None
    """Team, or another owner who is notified and counted in budgets."""
    queue: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    namespace_labels: dict[str, str] = {}
    namespace_annotations: dict[str, str] = {}
    priority_class: str | None = None
    created_at: datetime | None = None
    seen_until: datetime | None = None
    """End of the last device sample of the device that was sampled longest ago."""
    interval_s: float | None = None
    coverage: float | None = None
    conflicts: tuple[str, ...] = ()
    shared: bool | None = None
    """Another workload holds part of its devices, or its share is an estimate."""
    owner_resolved: bool | None = None
    unidentified: str = ""
    """Why the object is not known; empty = it is known, or no lookup was made."""
    nodes_ready: bool | None = None
    skew_s: float | None = None
    """Largest difference between the clocks of the sources, in seconds."""
    vetoes: tuple[str, ...] = ()
    budgets: tuple[CoveringBudget, ...] | None = None
    """The disruption budgets that cover its pods; None = nobody polled them."""
    budgets_unread: bool = False
    """Whether the last poll could not read all budgets of its cluster."""
    autoscaled_by: tuple[str, ...] = ()
    """GitOps tools, HPAs and other controllers that would revert a change, from the inventory."""
    usd_per_day: Decimal | None = None
    waiting: tuple[Waiter, ...] | None = None
    """The pending workloads; None = the pending queue is not known."""
    over_quota: bool | None = None
    """Whether its queue or namespace holds more GPUs than its nominal quota; None = not known."""
    pool_others: int | None = None
    """For a node: how many other nodes of its pool are ready and schedulable; None = not known."""
    removes_node: bool | None = None
    """Whether a node would be empty, and removed, without it; None = not known."""
    history: CaseHistory = CaseHistory()
    incident: IncidentAdvice | None = None
    """Of a job that hangs; None = no incident of it is stored."""


class Decision(msgspec.Struct, frozen=True):
    """What a policy decides about a case now: the step, and every reason for it."""

    id: str
    policy: str
    finding: str
    subject: tuple[str, str, str, str]
    """cluster, kind, namespace, name"""
    verb: str
    """The verb of the recommendation, which the last stage carries out."""
    step: Step
    ruling: Ruling
    reasons: tuple[Reason, ...]
    at: datetime
    next_at: datetime | None = None
    """When a held case may continue by itself; None = another event has to release it."""
    gpus: float = 0.0
    owner: str | None = None
    gpu_hours_per_day: float | None = None
    usd_per_day: Decimal | None = None
    uid: str | None = None
    generation: int | None = None
    seen_until: datetime | None = None
    parameters: dict[str, Any] = {}
    """What the executor gets from the stage and the recommendation: a size, a profile, amounts.

    Two keys are always there when a policy acts. `capabilities`: the words of the policy's `act`;
    an intent whose capability and verb are both missing there must not be carried out.
    `allowed_namespaces`: globs that the namespaces of an intent must match if it touches several.
    """


class Target(msgspec.Struct, frozen=True):
    """An object of an API, as it was just read."""

    cluster: str
    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str | None = None
    generation: int | None = None


class FreedPod(msgspec.Struct, frozen=True):
    """A pod of the target that should be deleted, with its GPUs free, after the changes."""

    namespace: str
    pod: str
    uid: str
    node: str | None
    gpus: float


class Change(msgspec.Struct, frozen=True):
    """One write as data. `deleted` is not a verb: Fallow never deletes anything."""

    target: Target
    method: Literal["PATCH", "POST"]
    path: str
    """The API's path, with the subresource."""
    body: Any
    content_type: str = "application/merge-patch+json"
    client: str = msgspec.field(name="door", default="kubernetes")
    """The client that sends it: kubernetes, jupyterhub, aws."""
    read: str = ""
    """Path of the object that shows whether the change took effect; empty = `path`."""
    was: dict[str, Any] = {}
    """JSON pointers of that object and their values before the change; null = absent."""
    becomes: dict[str, Any] = {}
    """The same pointers with their values after the change; null = absent."""
    when: dict[str, Any] = {}
    """Pointers of that object and the values they must have before this write is sent; until then
    the write waits, and the action stays open."""
    vacant: str = ""
    """A node on which no pod may hold GPUs when this write is sent; until then it waits."""
    after: tuple[FreedPod, ...] = ()
    """Pods that must be gone when this write is sent; until then it waits."""
    guarded: bool = True
    """Send uid and resourceVersion as preconditions (not for POST)."""
    depends: bool = False
    """Valid only after the changes before it took effect: no dry run of it alone is possible."""


class Intent(msgspec.Struct, frozen=True):
    """What an executor would do: the writes and the writes that undo them, both in order."""

    target: Target
    capability: str
    """suspend, scale, evict, resize, quota, node, annotate, …"""
    changes: tuple[Change, ...]
    undo: tuple[Change, ...]
    frees: tuple[FreedPod, ...] = ()
    lost: str = ""
    """What cannot be restored, as a sentence."""
    notes: tuple[str, ...] = ()


class Action(msgspec.Struct, frozen=True):
    """An intent that was journalled before the first write."""

    id: str
    decision: Decision
    intent: Intent
    at: datetime
    actor: str
    approved_by: tuple[str, ...] = ()
    snapshot: str | None = None


class Outcome(msgspec.Struct, frozen=True):
    """The result of an action."""

    action: str
    result: Result
    at: datetime
    reasons: tuple[Reason, ...] = ()
    reverted_by: str | None = None
    """The field manager that reverted our change."""
    freed_gpus: float | None = None


class LedgerEntry(msgspec.Struct, frozen=True):
    """What an action really saved until its workload came back: one entry per kind of dollars."""

    action: str
    policy: str
    kind: SavingKind
    start: datetime
    end: datetime
    predicted_gpu_hours: float
    gpu_hours: float
    predicted_usd: Decimal | None
    usd: Decimal | None
    restart_usd: Decimal | None = None
    """Cost of the restart and cold start, already subtracted from `usd`."""
    is_reversed: bool = False
    unknown_gpu_hours: float = 0.0
    """Of devices whose telemetry ended although no source reports that their node was deleted:
    counted neither as saved nor as spent. In the entry of the largest kind."""
    held_gpu_hours: float = 0.0
    """GPU-hours since the action of the devices that the workload had held; in the entry of the
    largest kind. The saved GPU-hours are a part of them, and no hour of a device counts for two
    actions."""
    held_usd: Decimal | None = None
    """The cost of these GPU-hours."""


def compute_decision_id(policy: str, finding: str, step: Step) -> str:
    """Hash what identifies a decision: the policy, the case and the stage."""
    return _hash(policy, finding, step)


def list_case_ids(policy: str, finding: str) -> list[str]:
    """Return the ids that lists have of a policy's case: its finding's, and its decisions'."""
    return [finding, *(compute_decision_id(policy, finding, step) for step in get_args(Step))]


def action_id(decision: str, uid: str, at: datetime) -> str:
    """Hash what identifies an action: the decision, the object and the time."""
    return _hash(decision, uid, at.isoformat())


def _hash(*parts: str) -> str:
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:12]

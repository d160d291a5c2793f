"""The nouns of acting: the facts of a case, the decision, the writes it needs, what came of them.

    finding ─► Facts ─► Decision ─► Intent (Changes and their undo) ─► Action ─► Outcome ─► saving

Facts are stored rows; a decision is a pure function of facts, a policy, budgets and the moment. An
executor turns an allowed decision into an intent: writes as data, and the writes that undo them. It
sends nothing. One loop journals the intent and makes the writes, so that dry run, preconditions,
journal, undo and repair after a crash are the same for every kind of workload.
"""

import hashlib
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

import msgspec

from fallow.models import Finding, Recommendation

Step = Literal["observe", "notify", "grace", "snapshot", "act"]
Ruling = Literal["allow", "hold", "deny"]
"""allow: take the step now. hold: not now, it may pass. deny: not while the case is what it is."""
Result = Literal["done", "refused", "failed", "reverted", "not sticking", "undone", "unknown"]
SavingKind = Literal["cash", "served", "released", "sunk"]


class Reason(msgspec.Struct, frozen=True):
    """Why a gate says what it says: the gate's name (`actions/gates.csv`) and words to read."""

    gate: str
    text: str


class Waiter(msgspec.Struct, frozen=True):
    """A waiting workload and whether the GPUs that a case would free really admit it."""

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
    """When a turn first saw the finding: first sight never acts."""
    notified_at: datetime | None = None
    """When a notice was proved to be delivered."""
    announced: dict[str, datetime] = {}
    """What the last notices announced, since when, by verb. Journals of before name none."""
    approved_by: tuple[str, ...] = ()
    kept_until: datetime | None = None
    snapshot_at: datetime | None = None
    """When a snapshot of this case was verified."""
    last_action_at: datetime | None = None
    restored_at: tuple[datetime, ...] = ()
    """When owners took back what was stopped (reversals)."""
    contested_until: datetime | None = None
    """Somebody reverted us: we stop fighting until then."""
    open_action: str | None = None
    """An action on the same object whose outcome is not known yet."""


class PodRef(msgspec.Struct, frozen=True):
    """A pod by its name in the workload's namespace and its uid; no uid = the source names none."""

    pod: str
    uid: str = ""
    node: str = ""
    """Where its devices are; empty = not known."""


class Facts(msgspec.Struct, frozen=True):
    """All that stored rows say about one case at one moment. None is unknown, never false."""

    finding: Finding
    recommendation: Recommendation
    at: datetime
    """The moment the facts are of; nothing later is in them."""
    gpus: float
    pods: tuple[PodRef, ...] | None = None
    """Pods that hold its devices in the evidence; None = not known."""
    models: tuple[str, ...] = ()
    uid: str | None = None
    """The workload's uid as the evidence saw it."""
    generation: int | None = None
    owner: str | None = None
    """Team, or who else is told and counted in budgets."""
    queue: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    namespace_labels: dict[str, str] = {}
    namespace_annotations: dict[str, str] = {}
    priority_class: str | None = None
    created_at: datetime | None = None
    seen_until: datetime | None = None
    """End of the last look at every one of its devices."""
    interval_s: float | None = None
    coverage: float | None = None
    conflicts: tuple[str, ...] = ()
    shared: bool | None = None
    """Somebody else holds part of its devices, or its share is an estimate."""
    owner_resolved: bool | None = None
    unidentified: str = ""
    """Why it is not known which object it is; empty = known, or nobody was asked."""
    nodes_ready: bool | None = None
    skew_s: float | None = None
    """Largest difference between the clocks of the sources, in seconds."""
    vetoes: tuple[str, ...] = ()
    autoscaled_by: tuple[str, ...] = ()
    """GitOps tools, HPAs and the like that would fight back, as the inventory shows them."""
    usd_per_day: Decimal | None = None
    waiting: tuple[Waiter, ...] | None = None
    """Who waits; None = the line is not known."""
    over_quota: bool | None = None
    """Does its queue or namespace hold more GPUs than it is guaranteed? None = not known."""
    pool_others: int | None = None
    """Of a node: how many other nodes of its pool are ready and schedulable. None = not known."""
    removes_node: bool | None = None
    """Would a node be empty, and gone, without it? None = not known."""
    history: CaseHistory = CaseHistory()


class Decision(msgspec.Struct, frozen=True):
    """What a policy says about a case now: the step, and every reason for it."""

    id: str
    policy: str
    finding: str
    subject: tuple[str, str, str, str]
    """cluster, kind, namespace, name"""
    verb: str
    """What the last stage does: the recommendation's verb."""
    step: Step
    ruling: Ruling
    reasons: tuple[Reason, ...]
    at: datetime
    next_at: datetime | None = None
    """When a held case may go on by itself; None = only something else can free it."""
    gpus: float = 0.0
    owner: str | None = None
    gpu_hours_per_day: float | None = None
    usd_per_day: Decimal | None = None
    uid: str | None = None
    generation: int | None = None
    seen_until: datetime | None = None
    parameters: dict[str, Any] = {}
    """What the stage and the recommendation give the executor: a size, a profile, amounts.

    Always there when a policy acts: `capabilities`, the words of its `act` (an intent whose
    capability is none of them, and whose verb is none either, must not be carried out), and
    `allowed_namespaces`, globs that an intent which touches several namespaces has to keep to.
    """


class Target(msgspec.Struct, frozen=True):
    """An object of an API, as it was read just now."""

    cluster: str
    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str | None = None
    generation: int | None = None


class Change(msgspec.Struct, frozen=True):
    """One write as data. `deleted` is no verb: nothing is ever deleted."""

    target: Target
    method: Literal["PATCH", "POST"]
    path: str
    """The API's path, with the subresource."""
    body: Any
    content_type: str = "application/merge-patch+json"
    door: str = "kubernetes"
    """Who sends it: kubernetes, jupyterhub, aws."""
    read: str = ""
    """Path whose object shows whether the change took; empty = `path`."""
    was: dict[str, Any] = {}
    """JSON pointers of that object and what they showed before; null = absent."""
    becomes: dict[str, Any] = {}
    """The same pointers once the change took; null = absent."""
    when: dict[str, Any] = {}
    """Pointers of that object and what they must show before this write is sent; until then it
    waits, and the action stays open."""
    vacant: str = ""
    """A node on which no pod may hold GPUs when this write is sent; until then it waits."""
    guarded: bool = True
    """Carry uid and resourceVersion as preconditions (not for POST)."""
    depends: bool = False
    """Valid only once the changes before it took: alone it cannot be rehearsed."""


class FreedPod(msgspec.Struct, frozen=True):
    """A pod of the target that should be gone, and its GPUs free, once the changes took."""

    namespace: str
    pod: str
    uid: str
    node: str | None
    gpus: float


class Intent(msgspec.Struct, frozen=True):
    """What an executor would do: the writes in order, and the writes that undo them, in order."""

    target: Target
    capability: str
    """suspend, scale, evict, resize, quota, node, annotate, …"""
    changes: tuple[Change, ...]
    undo: tuple[Change, ...]
    frees: tuple[FreedPod, ...] = ()
    lost: str = ""
    """What cannot be brought back, in words."""
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
    """What came of an action."""

    action: str
    result: Result
    at: datetime
    reasons: tuple[Reason, ...] = ()
    reverted_by: str | None = None
    """The field manager that took our change back."""
    freed_gpus: float | None = None


class LedgerEntry(msgspec.Struct, frozen=True):
    """What an action really saved until its workload came back, in one kind of dollars each."""

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
    """Cost of coming back: restart and cold start, already taken off `usd`."""
    is_reversed: bool = False
    unknown_gpu_hours: float = 0.0
    """Of devices whose telemetry ended while nothing says that their node is gone: counted neither
    as saved nor as spent. With the largest kind."""
    held_gpu_hours: float = 0.0
    """GPU-hours of the devices that it had held, from the act on; with the largest kind. What is
    saved is a part of them, and no hour of a device is two actions'."""
    held_usd: Decimal | None = None
    """What these cost."""


def decision_id(policy: str, finding: str, step: Step) -> str:
    """Hash what makes a decision the same decision: whose rule, about what, which stage."""
    return _hash(policy, finding, step)


def action_id(decision: str, uid: str, at: datetime) -> str:
    """Hash what makes an action the same action: which decision, on which object, when."""
    return _hash(decision, uid, at.isoformat())


def _hash(*parts: str) -> str:
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:12]

"""The record of one waiting workload, and what it is composed of."""

from datetime import datetime
from decimal import Decimal
from typing import Literal

import msgspec

from capacity.placement.fleet_state import WorkloadKey
from capacity.placement.pending_places import PendingAnswer

Reason = Literal[
    "no_fit", "quota", "priority", "gang", "taint", "topology", "dra", "image", "volume",
    "node_selector", "gate", "unknown",
]  # fmt: skip
WayKind = Literal[
    "free",
    "borrow",
    "reclaim_idle",
    "after_moves",
    "elsewhere",
    "combined",
    "preempt",
    "raise_quota",
]
WayState = Literal["holds", "refused", "unknown"]
Hold = Literal["idle", "lower_priority"]


class WaitReason(msgspec.Struct, frozen=True):
    """One reason why a workload waits, with the text that shows it."""

    reason: Reason
    text: str
    source: str
    """event, condition, placement or container."""
    at: datetime | None = None

    @property
    def words(self) -> str:
        """The reason as people read it."""
        return "no room" if self.reason == "no_fit" else self.reason.replace("_", " ")


class QueueBlocker(msgspec.Struct, frozen=True):
    """A workload that holds GPUs which a waiting one could use, idle or at a lower priority."""

    key: WorkloadKey
    gpus: int
    """Devices of the requested type on nodes that take the waiting pods."""
    holds: tuple[Hold, ...]
    why: str
    idle_gpu_hours: float
    """GPU-hours of the ledger's state idle since the other one waits, in whole hours."""


class WorkAtRisk(msgspec.Struct, frozen=True):
    """Work that stopping a workload loses at most; None = not known.

    It is `estimated` where no checkpoint of it is seen.
    """

    gpu_hours: float | None
    why: str
    estimated: bool = False


NO_LOSS = WorkAtRisk(0.0, "none by the signals of its devices; what it holds in memory is lost")
"""Of an idle workload."""


class WayIn(msgspec.Struct, frozen=True):
    """One way to let a workload in, with a placement that holds against real nodes.

    `refused`: it does not let it in, and `why` says what is missing. `unknown`: it depends on what
    nobody knows.
    """

    kind: WayKind
    state: WayState
    why: str = ""
    cluster: str = ""
    nodes: tuple[str, ...] = ()
    workloads: tuple[WorkloadKey, ...] = ()
    """Whose GPUs or nodes it takes."""
    lenders: tuple[str, ...] = ()
    gpus: int = 0
    """Devices that it frees."""
    lost: WorkAtRisk = WorkAtRisk(0.0, "")
    moves: tuple[str, ...] = ()
    """Pods that move first: namespace/pod: node to node."""
    touched: tuple[str, ...] = ()
    """The nodes from and to which they move."""
    parts: tuple["WayIn", ...] = ()
    """The ways that a combined one consists of, in their order; its nodes are those of the last."""

    def describe(self) -> str:
        """Return a way that holds in words."""
        names = ", ".join(f"{kind}/{ns}/{name}" for _, ns, kind, name in self.workloads)
        nodes = f" on {', '.join(self.nodes)}" if self.nodes else ""
        words: dict[WayKind, str] = {
            "free": f"free GPUs{nodes}",
            "borrow": f"borrow quota of {', '.join(self.lenders) or 'its cohort'}{nodes}",
            "reclaim_idle": f"reclaim the idle {names}{nodes}",
            "after_moves": f"move {'; '.join(self.moves)}: then{nodes}",
            "elsewhere": f"cluster {self.cluster}{nodes}",
            "combined": "; ".join(part.describe() for part in self.parts),
            "raise_quota": f"raise the quota ({self.why}){nodes}",
            "preempt": f"preempt {names}{nodes}: {self._describe_loss()}",
        }
        return words[self.kind]

    def _describe_loss(self) -> str:
        hours = self.lost.gpu_hours
        if hours is None:
            return "what it loses is not known"
        return f"loses up to {hours:,.1f} GPU-h{' (estimated)' if self.lost.estimated else ''}"


class QueuedWorkload(msgspec.Struct, frozen=True):
    """A workload that waits for GPUs.

    `gpu_hours` = GPUs times hours of each waiting pod; null with its reason in `unknown` where the
    clock or the request is not known. `waiting_cost` prices them at `usd_h`, the mean price of a
    GPU-hour of the nodes of its cluster that take it. It is not part of the bill: what a workload
    asks for is not paid while it waits.
    """

    key: WorkloadKey
    pods: int
    gpus: float | None
    since: datetime
    team: str | None
    queue: str | None
    priority_class: str | None
    priority: int | None
    hours: float | None
    gpu_hours: float | None
    usd_h: Decimal | None
    waiting_cost: Decimal | None
    reasons: tuple[WaitReason, ...]
    blocked_by: tuple[QueueBlocker, ...]
    held_by_others: str
    """What is said of the GPUs that it could use and that nobody in `blocked_by` holds."""
    ways: tuple[WayIn, ...]
    """The cheapest that holds comes first."""
    unknown: tuple[str, ...] = ()
    """What is not known about it, and why."""
    answer: PendingAnswer | None = None
    at_once: bool | None = None
    """Whether one of its ways holds beside those of the workloads before it in the queue; null of
    one that was read alone."""
    objects: tuple[str, ...] = ()
    """By which it waits where it has no pods yet: Kind/namespace/name; empty = by its pods."""

    @property
    def cheapest_way(self) -> WayIn | None:
        """Return the cheapest way that holds; None = none was found."""
        return next((way for way in self.ways if way.state == "holds"), None)

    def describe_way(self) -> str:
        """Return the cheapest way that holds in words, or why a raised quota is none either."""
        if self.cheapest_way is not None:
            return self.cheapest_way.describe()
        raised = next((f", {way.why}" for way in self.ways if way.kind == "raise_quota"), "")
        return f"none{raised}" if raised else "none was found"

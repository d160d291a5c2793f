"""The records of a replay: nodes, queues and units of work go in, runs and waits come out.

Times are seconds since 1970, amounts of GPUs thousandths of a device.
"""

from functools import cached_property
from math import inf
from typing import Literal

import msgspec

from capacity.history.queue_history import NodeOutage
from capacity.placement.node_fleet import WHOLE, FleetNode, FleetPod

SchedulerKind = Literal["plain", "kueue", "volcano"]


class ReplayNode(msgspec.Struct, frozen=True):
    """A node, and when pods could be placed on it."""

    capacity: FleetNode
    opens_s: float = -inf
    closes_s: float = inf
    outages: tuple[NodeOutage, ...] = ()
    """In between; what ran there ended as it was recorded."""

    @property
    def gpu_milli(self) -> int:
        """Its GPUs."""
        return self.capacity.gpus * WHOLE


class ReplayQueue(msgspec.Struct, frozen=True):
    """A queue with a quota of GPUs: Kueue's nominal quota, Volcano's and KAI's deserved."""

    name: str
    nominal_milli: int
    limit_milli: int | None = None
    """None = it may borrow all that others leave."""
    lending_milli: int | None = None
    """None = it lends all."""
    cohort: str = ""
    """Empty = it neither borrows nor lends."""
    is_cohort: bool = False
    """Whether it is a cohort of queues, with a quota that they share."""


class ReplayPause(msgspec.Struct, frozen=True):
    """A stop by a policy, and for how long the unit needs no GPU after it."""

    after_s: float
    """Run time before the stop, earlier pauses included."""
    pause_s: float = inf
    """Infinite: its workload was not used again, so its work ends with the stop."""
    usd_h: float | None = None
    """What a GPU-hour of the workload cost; None = unknown."""


class ReplayUnit(msgspec.Struct, frozen=True, dict=True):
    """A pod, or pods that run together or not at all."""

    name: str
    team: str
    queue: str
    """Empty = no quota applies to it."""
    priority: int
    arrival_s: float
    members: tuple[FleetPod, ...]
    run_s: tuple[float, ...]
    """How long each member runs from its placement; infinite = it did not end in the window."""
    leave_s: float = inf
    """When it was withdrawn, if it still waits then."""
    nodes: tuple[str, ...] = ()
    """The nodes on which it ran when the window began; empty = it was not placed yet."""
    first_nodes: tuple[str, ...] = ()
    """Those on which it was placed as the window began: it is replayed, and goes there again."""
    estimated: bool = False
    """Whether its run time is that of others, because it never ran."""
    workload: tuple[str, str, str] = ("", "", "")
    """namespace, kind, name"""
    recorded_s: float | None = None
    """When it was placed in fact; None = it was not."""
    pauses: tuple[ReplayPause, ...] = ()
    """In the order of time."""
    checkpoint_s: float | None = None
    """Time between two checkpoints; None = none is known, and it starts from its beginning."""

    @cached_property
    def gpu_milli(self) -> int:
        """The GPUs of all members."""
        return sum(pod.gpus * pod.gpu_milli for pod in self.members)


class ReplaySite(msgspec.Struct, frozen=True):
    """A site in a window: what a replay needs, whatever the settings."""

    start_s: float
    end_s: float
    nodes: tuple[ReplayNode, ...]
    units: tuple[ReplayUnit, ...]
    scheduler: SchedulerKind = "plain"
    queues: tuple[ReplayQueue, ...] = ()
    preempts: bool = True
    """Whether quotas reclaim and higher priorities evict."""


class PodRun(msgspec.Struct, frozen=True):
    """A pod on devices of a node in [start, end); `end_s` is at most the end of the window."""

    unit: str
    uid: str
    node: str
    devices: tuple[int, ...]
    device_milli: int
    start_s: float
    end_s: float

    @property
    def gpu_seconds(self) -> float:
        """GPU-seconds of the run."""
        return (self.end_s - self.start_s) * len(self.devices) * self.device_milli / 1000


class UnitResult(msgspec.Struct, frozen=True):
    """What became of a unit."""

    unit: ReplayUnit
    start_s: float | None
    """First placement; None = it still waited at the end, or was withdrawn."""
    end_s: float | None
    """None = it had not ended at the end of the window."""
    preemptions: int = 0
    lost_gpu_seconds: float = 0.0
    """Work that has to be repeated after preemptions."""
    return_waits_s: tuple[float, ...] = ()
    """After each stop by a policy: from the next use until it ran again."""


class ReplayStop(msgspec.Struct, frozen=True):
    """A stop by a policy that took place in the replay."""

    unit: str
    at_s: float
    gpu_seconds: float
    """What the unit would have held until its next use, its end, or the end of the window."""
    usd: float | None
    """These at the workload's rate; None = that is unknown."""


class ReplayResult(msgspec.Struct, frozen=True):
    """All units, runs and stops of a replay."""

    site: ReplaySite
    units: tuple[UnitResult, ...]
    runs: tuple[PodRun, ...]
    stops: tuple[ReplayStop, ...] = ()

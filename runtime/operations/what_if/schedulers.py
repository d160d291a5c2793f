"""Decide which waiting unit is next, whether its quota admits it, and who yields to it.

plain: kube-scheduler: priority, then age; a higher priority evicts a lower one.
kueue: nominal quota, borrowing within the cohort, reclaim of what others borrowed; kube-scheduler
places what was admitted, and a unit that does not fit holds its quota while it waits.
volcano: the queue with the least of its deserved share first; a queue below it reclaims from those
above it. KAI's queues are replayed in the same way.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from runtime.operations.what_if.records import ReplayQueue, ReplaySite, ReplayUnit
from runtime.operations.what_if.waiting_units import build_key
from simulator.cluster.quotas.claims import Admit, QuotaClaim, Refuse, Verdict
from simulator.cluster.quotas.cohort import ClusterQueue, Quota
from simulator.cluster.quotas.kueue import Cohorts

RESOURCE, FLAVOR = "nvidia.com/gpu", "default"
Rank = tuple[float, int, float, str]
Yields = Callable[[ReplayUnit], bool]


class ReplayScheduler(Protocol):
    """What the replay asks."""

    def needs_quota(self, unit: ReplayUnit) -> bool:
        """Return whether a queue has to admit the unit before it may be placed."""

    def judge(self, unit: ReplayUnit) -> Verdict:
        """Return whether its quota lets the unit in now, and whom it evicts if it must."""

    def hold(self, unit: ReplayUnit, now_s: float) -> None:
        """Count an admitted unit."""

    def release(self, unit: ReplayUnit) -> None:
        """Stop counting a unit that ended or that its quota evicted."""

    def rank(self, unit: ReplayUnit) -> Rank:
        """Return the unit's place among those that may be placed: the least is tried first."""

    def choose_yielding(self, unit: ReplayUnit) -> Yields | None:
        """Return which running units yield their nodes to this one; None = none does."""

    def select_vain(self, vain: Mapping[int, int], ended: ReplayUnit) -> dict[int, int]:
        """Return the forms, with their priority, that evictions help no more than before."""

    def place(self, unit: ReplayUnit) -> None:
        """Count a unit that was placed."""

    def leave(self, unit: ReplayUnit) -> None:
        """Stop counting a unit that left its nodes."""


class PlainScheduler:
    """kube-scheduler: priority, then age."""

    def __init__(self, *, preempts: bool = True) -> None:
        self._preempts = preempts
        self._priorities: Counter[int] = Counter()

    def needs_quota(self, unit: ReplayUnit) -> bool:  # noqa: ARG002
        """Return that there is no quota."""
        return False

    def judge(self, unit: ReplayUnit) -> Verdict:  # noqa: ARG002
        """Admit."""
        return Admit()

    def hold(self, unit: ReplayUnit, now_s: float) -> None:
        """Count no quota."""

    def release(self, unit: ReplayUnit) -> None:
        """Count no quota."""

    def rank(self, unit: ReplayUnit) -> Rank:
        """Return the unit's place in the order."""
        return (0.0, *build_key(unit))

    def choose_yielding(self, unit: ReplayUnit) -> Yields | None:
        """Return that those of lower priority yield, if any runs."""
        lower = self._preempts and any(
            count and priority < unit.priority for priority, count in self._priorities.items()
        )
        return (lambda other: other.priority < unit.priority) if lower else None

    def select_vain(self, vain: Mapping[int, int], ended: ReplayUnit) -> dict[int, int]:
        """Return those to whom the unit that ended would have yielded."""
        return {form: priority for form, priority in vain.items() if priority > ended.priority}

    def place(self, unit: ReplayUnit) -> None:
        """Count its priority."""
        self._priorities[unit.priority] += 1

    def leave(self, unit: ReplayUnit) -> None:
        """Stop counting its priority."""
        self._priorities[unit.priority] -= 1


class KueueScheduler(PlainScheduler):
    """Queues of cohorts admit, kube-scheduler places."""

    def __init__(self, queues: Iterable[ReplayQueue], *, preempts: bool) -> None:
        super().__init__(preempts=preempts)
        self._cohorts = Cohorts(_build_cluster_queue(queue, preempts=preempts) for queue in queues)

    def needs_quota(self, unit: ReplayUnit) -> bool:
        """Return whether it has a queue."""
        return bool(unit.queue)

    def judge(self, unit: ReplayUnit) -> Verdict:
        """Return the verdict of the unit's queue."""
        return self._cohorts.admit(_build_claim(unit)) if unit.queue else Admit()

    def hold(self, unit: ReplayUnit, now_s: float) -> None:
        """Count its quota."""
        self._cohorts.hold(_build_claim(unit), {RESOURCE: FLAVOR}, now_s)

    def release(self, unit: ReplayUnit) -> None:
        """Give its quota back."""
        self._cohorts.release(unit.name)


class VolcanoScheduler(PlainScheduler):
    """Queues with a deserved share."""

    def __init__(self, queues: Iterable[ReplayQueue], *, preempts: bool) -> None:
        super().__init__(preempts=preempts)
        self._queues = {queue.name: queue for queue in queues}
        self._allocated: Counter[str] = Counter()

    def rank(self, unit: ReplayUnit) -> Rank:
        """Return the unit's place: the queue with the least of its deserved share first."""
        queue = self._queues.get(unit.queue)
        share = self._allocated[unit.queue] / max(queue.nominal_milli, 1) if queue else 0.0
        return (share, *build_key(unit))

    def judge(self, unit: ReplayUnit) -> Verdict:
        """Refuse what exceeds the queue's limit."""
        queue = self._queues.get(unit.queue)
        if queue is None or queue.limit_milli is None:
            return Admit()
        if self._allocated[unit.queue] + unit.gpu_milli > queue.limit_milli:
            return Refuse(f"queue {unit.queue} is at its limit")
        return Admit()

    def choose_yielding(self, unit: ReplayUnit) -> Yields | None:
        """Return that units yield whose queue has its deserved share without them."""
        queue = self._queues.get(unit.queue)
        if not self._preempts or queue is None:
            return None
        if self._allocated[unit.queue] + unit.gpu_milli > queue.nominal_milli:
            return lambda other: other.queue == unit.queue and other.priority < unit.priority
        return lambda other: self._is_reclaimable(other, unit)

    def _is_reclaimable(self, other: ReplayUnit, unit: ReplayUnit) -> bool:
        if other.queue == unit.queue:
            return other.priority < unit.priority
        theirs = self._queues.get(other.queue)
        if theirs is None:
            return False
        return self._allocated[other.queue] - other.gpu_milli >= theirs.nominal_milli

    def select_vain(self, vain: Mapping[int, int], ended: ReplayUnit) -> dict[int, int]:  # noqa: ARG002
        """Return none: shares have changed."""
        return {}

    def place(self, unit: ReplayUnit) -> None:
        """Count its GPUs."""
        self._allocated[unit.queue] += unit.gpu_milli

    def leave(self, unit: ReplayUnit) -> None:
        """Stop counting its GPUs."""
        self._allocated[unit.queue] -= unit.gpu_milli


def build_scheduler(site: ReplaySite) -> ReplayScheduler:
    """Return the scheduler of a site."""
    if site.scheduler == "kueue":
        return KueueScheduler(site.queues, preempts=site.preempts)
    if site.scheduler == "volcano":
        return VolcanoScheduler(site.queues, preempts=site.preempts)
    return PlainScheduler(preempts=site.preempts)


def _build_cluster_queue(queue: ReplayQueue, *, preempts: bool) -> ClusterQueue:
    extra = None if queue.limit_milli is None else max(0, queue.limit_milli - queue.nominal_milli)
    quota = Quota(queue.nominal_milli, extra, queue.lending_milli)
    return ClusterQueue(
        queue.name,
        {FLAVOR: {RESOURCE: quota}},
        cohort=queue.cohort,
        within_queue="LowerPriority" if preempts else "Never",
        reclaim="Any" if preempts else "Never",
    )


def _build_claim(unit: ReplayUnit) -> QuotaClaim:
    return QuotaClaim(
        unit.name, unit.queue, {RESOURCE: unit.gpu_milli}, unit.priority, unit.arrival_s
    )

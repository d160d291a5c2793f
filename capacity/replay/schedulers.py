"""Decide which waiting unit is next, whether its quota admits it, and who yields to it.

plain: kube-scheduler: priority, then age; a higher priority evicts a lower one.
kueue: nominal quota, borrowing within the cohort, reclaim of what others borrowed; kube-scheduler
places what was admitted, and a unit that does not fit holds its quota while it waits.
volcano: the queue with the least of its deserved share first; a queue below it reclaims from those
above it. KAI's queues are replayed in the same way.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Protocol

from capacity.quota.admission import REFUSED, AdmissionVerdict, QueueClaim, QuotaAdmission
from capacity.quota.tree import QuotaNode
from capacity.replay.records import ReplayQueue, ReplaySite, ReplayUnit
from capacity.replay.waiting_units import build_key

ADMITTED = AdmissionVerdict(admits=True)
Rank = tuple[float, int, float, str]
Yields = Callable[[ReplayUnit], bool]


class ReplayScheduler(Protocol):
    """What the replay asks."""

    def needs_quota(self, unit: ReplayUnit) -> bool:
        """Return whether a queue has to admit the unit before it may be placed."""

    def judge(self, unit: ReplayUnit) -> AdmissionVerdict:
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

    def judge(self, unit: ReplayUnit) -> AdmissionVerdict:  # noqa: ARG002
        """Admit."""
        return ADMITTED

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
        nodes = {
            _name_cohort(queue.name) if queue.is_cohort else queue.name: _build_node(queue)
            for queue in queues
        }
        self._cohorts = QuotaAdmission(nodes, preempts=preempts)

    def needs_quota(self, unit: ReplayUnit) -> bool:
        """Return whether it has a queue."""
        return bool(unit.queue)

    def judge(self, unit: ReplayUnit) -> AdmissionVerdict:
        """Return the verdict of the unit's queue."""
        return self._cohorts.admit(_build_claim(unit)) if unit.queue else ADMITTED

    def hold(self, unit: ReplayUnit, now_s: float) -> None:
        """Count its quota."""
        self._cohorts.hold(_build_claim(unit), now_s)

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

    def judge(self, unit: ReplayUnit) -> AdmissionVerdict:
        """Refuse what exceeds the queue's limit."""
        queue = self._queues.get(unit.queue)
        if queue is None or queue.limit_milli is None:
            return ADMITTED
        if self._allocated[unit.queue] + unit.gpu_milli > queue.limit_milli:
            return REFUSED
        return ADMITTED

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


def _build_node(queue: ReplayQueue) -> QuotaNode:
    limit, lending = queue.limit_milli, queue.lending_milli
    return QuotaNode(
        queue.nominal_milli,
        inf if limit is None else max(0, limit - queue.nominal_milli),
        inf if lending is None else lending,
        _name_cohort(queue.cohort) if queue.cohort else "",
    )


def _name_cohort(name: str) -> str:
    return f"cohort {name}"


def _build_claim(unit: ReplayUnit) -> QueueClaim:
    return QueueClaim(unit.name, unit.queue, unit.gpu_milli, unit.priority)

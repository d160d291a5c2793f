"""What the inventory says that cases hold, and what of it the devices in evidence cover."""

from collections.abc import Sequence
from datetime import datetime

from actions.facts.ground import Key, key_of, micros
from fallow.nouns import Finding
from fallow.seams import Views
from warehouse.workload_gpus import Stretch, WorkloadGpus, records, workload_gpus


class Coverage:
    """The GPUs that the workloads of findings hold, by the finding's id."""

    def __init__(self, views: Views, findings: Sequence[Finding], now: datetime) -> None:
        about = [f for f in findings if f.subject.namespace]
        stretches = [_stretch(n, f, now) for n, f in enumerate(about)]
        rows = records(workload_gpus(views, stretches)) if stretches else {}
        self._by_finding = {f.id: rows[n] for n, f in enumerate(about)}

    def of(self, finding: Finding) -> WorkloadGpus | None:
        """Return what a finding's workload holds; None = it is about no workload's pods."""
        return self._by_finding.get(finding.id)


def lowered(coverage: float | None, held: WorkloadGpus | None) -> float | None:
    """Return the coverage of a case's devices, lowered by what its workload holds beyond them.

    Both count: the whole stretch, and the pods that are bound at its end.
    """
    if held is None or coverage is None:
        return coverage
    parts = [coverage]
    if held.coverage is not None:
        parts.append(held.coverage)
    if held.gpus:
        parts.append(held.gpus_seen / held.gpus)
    return min(parts)


def partly_seen(
    views: Views, keys: Sequence[Key], since: datetime, until: datetime
) -> frozenset[Key]:
    """Return the workloads of which any pod was unseen between two timestamps.

    Only these need a second query for each moment of a replay.
    """
    start, end = micros(since), micros(until)
    stretches = [Stretch(n, *key, start, end) for n, key in enumerate(keys) if key[1]]
    if not stretches:
        return frozenset()
    found = records(workload_gpus(views, stretches))
    return frozenset(key for n, key in enumerate(keys) if n in found and found[n].pods_unseen)


def _stretch(span: int, finding: Finding, now: datetime) -> Stretch:
    window = finding.window
    return Stretch(
        span, *key_of(finding.subject), micros(window.start), micros(min(window.end, now))
    )

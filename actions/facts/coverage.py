"""Compare what cases hold by the inventory with the devices that their evidence covers."""

from collections.abc import Sequence
from datetime import datetime

from fallow.models import Finding
from fallow.protocols import Views
from warehouse.placement.fleet_state import WorkloadKey, get_workload_key, to_micros
from warehouse.workload_gpus import WorkloadGpus, WorkloadStretch, build_records, read_workload_gpus


class WorkloadCoverage:
    """The GPUs that the workloads of findings hold, by the finding's id."""

    def __init__(self, views: Views, findings: Sequence[Finding], now: datetime) -> None:
        with_pods = [f for f in findings if f.subject.namespace]
        stretches = [_build_stretch(n, f, now) for n, f in enumerate(with_pods)]
        rows = build_records(read_workload_gpus(views, stretches)) if stretches else {}
        self._by_finding = {f.id: rows[n] for n, f in enumerate(with_pods)}

    def of(self, finding: Finding) -> WorkloadGpus | None:
        """Return the allocation of a finding's workload; None = the finding is about no pods."""
        return self._by_finding.get(finding.id)


def limit_coverage(coverage: float | None, held_gpus: WorkloadGpus | None) -> float | None:
    """Return the coverage of a case's devices, lowered for the other GPUs of its workload.

    Both the whole stretch and the pods bound at its end are compared.
    """
    if held_gpus is None or coverage is None:
        return coverage
    parts = [coverage]
    if held_gpus.coverage is not None:
        parts.append(held_gpus.coverage)
    if held_gpus.gpus:
        parts.append(held_gpus.gpus_seen / held_gpus.gpus)
    return min(parts)


def find_partly_seen(
    views: Views, keys: Sequence[WorkloadKey], since: datetime, until: datetime
) -> frozenset[WorkloadKey]:
    """Return the workloads with a pod without evidence between two timestamps.

    Only these workloads need a second query for each time of a replay.
    """
    start, end = to_micros(since), to_micros(until)
    stretches = [WorkloadStretch(n, *key, start, end) for n, key in enumerate(keys) if key[1]]
    if not stretches:
        return frozenset()
    coverage = build_records(read_workload_gpus(views, stretches))
    return frozenset(key for n, key in enumerate(keys) if n in coverage and coverage[n].pods_unseen)


def _build_stretch(span: int, finding: Finding, now: datetime) -> WorkloadStretch:
    window = finding.window
    return WorkloadStretch(
        span,
        *get_workload_key(finding.subject),
        to_micros(window.start),
        to_micros(min(window.end, now)),
    )

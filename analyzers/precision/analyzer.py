"""Find FP32 work without tensor cores, 16 bits where 8 would suffice, and waits for weights.

Profiling counters are one signal, and no other kind shows the precision of the work: nothing here
is ever confirmed. The low end of each range is counted.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from analyzers.precision.allocator import find_fragmented
from analyzers.precision.bottlenecks import find_bottleneck, is_tensor_idle, read_archs
from analyzers.precision.findings import build_format_finding
from analyzers.precision.gains import list_formats
from analyzers.precision.rows import WorkloadPipes, read_pipes
from analyzers.work import (
    WORKED,
    StateCost,
    WorkloadCosts,
    build_subject,
    compute_share,
    list_counters,
    read_costs,
)
from analyzers.workload_rows import Owner
from fallow.models import Finding, Unjudged
from fallow.protocols import Views
from fallow.settings.workloads import PrecisionSettings
from fallow.window import Window

NO_COUNTERS = (
    "profiling counters are off, so the pipes that it uses are unknown: dcgm-exporter's counters "
    "ConfigMap needs the lines "
)
NO_FP32 = (
    "tensor cores are idle while it computes, but the FP32 pipe is not measured: dcgm-exporter's "
    "counters ConfigMap needs the line "
)


class PrecisionAnalyzer:
    """Find work that a smaller number format speeds up (telemetry-and-waste.md#precision)."""

    def __init__(self, settings: PrecisionSettings | None = None) -> None:
        self.settings = settings or PrecisionSettings()

    def find(self, views: Views, window: Window) -> list[Finding]:
        """Return workloads with the savings of other formats, the most GPU-hours first.

        Also return those whose framework reserves much memory outside of tensors.
        """
        findings = [*self._formats(views, window), *find_fragmented(views, window, self.settings)]
        return sorted(findings, key=lambda f: (-f.gpu_hours, f.id))

    def _formats(self, views: Views, window: Window) -> list[Finding]:
        rows = read_pipes(views, window, self.settings.least_gpu_hours)
        bottlenecks = [b for row in rows if (b := find_bottleneck(row, self.settings)) is not None]
        if not bottlenecks:
            return []
        costs = read_costs(views, window)
        hours = _sum_hours(rows)
        return [
            build_format_finding(b, _compute_cost(b.pipes, costs, hours), window, costs)
            for b in bottlenecks
        ]

    def unjudged(self, views: Views, window: Window) -> list[Unjudged]:
        """Return workloads with unmeasured pipes, and the lines that turn the counters on."""
        unjudged = []
        for row in read_pipes(views, window, self.settings.least_gpu_hours):
            arch = read_archs().get(row.model or "")
            if arch is None or not list_formats("fp32_asleep", arch):
                continue
            if row.tensor is None or row.sm is None:
                lines = list_counters("sm", "tensor", "fp32", "dram")
                unjudged.append(Unjudged(build_subject(row), row.work_h, (NO_COUNTERS + lines,)))
            elif row.fp32 is None and is_tensor_idle(row.tensor, row.sm, self.settings):
                why = NO_FP32 + list_counters("fp32")
                unjudged.append(Unjudged(build_subject(row), row.work_h, (why,)))
        return unjudged


def _sum_hours(rows: Iterable[WorkloadPipes]) -> Mapping[Owner, float]:
    """Return the hours at work of each workload over all of its GPU models."""
    hours: dict[Owner, float] = defaultdict(float)
    for row in rows:
        hours[row.owner] += row.work_h
    return hours


def _compute_cost(
    row: WorkloadPipes, costs: WorkloadCosts, hours: Mapping[Owner, float]
) -> StateCost:
    """Return the ledger's hours of a workload on this model; telemetry's if there are none."""
    total = costs.total(row.owner, WORKED)
    if total is None:
        return StateCost(row.work_h, None)
    share = row.work_h / hours[row.owner]
    return StateCost(
        total.gpu_hours * share, None if total.usd is None else compute_share(total.usd, share)
    )

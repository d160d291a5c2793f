"""Find under-use and the right size: what workloads do with their devices, and what would suffice.

Every step is a frame or a row, and each symptom has the share of the hours that it wastes.

rollup_1h ─► hours at work ─► one row per workload ─┐
pod_sample ─► CPU, throttling, network (2 days) ────┼─► a symptom ─► a finding ─► smaller sizes
container_sample ─► CPU and memory (14 days) ───────┼─► requests that are too large
ledger ─► hours, dollars, prices per model ─────────┘
"""

from collections.abc import Iterable

import polars as pl

from analyzers.sizing import rows
from analyzers.sizing.blocking_requests import Free, find_blocking
from analyzers.sizing.diagnosis import diagnose
from analyzers.sizing.findings import build_finding
from analyzers.sizing.host_use import add_hosts, sum_hosts
from analyzers.sizing.limits import get_limit
from analyzers.sizing.requests import find_oversized, find_unknown, list_settled, sum_containers
from analyzers.sizing.shared_gpus import bound_savings
from analyzers.sizing.usage import sum_shared, sum_workloads
from analyzers.work import (
    ALLOCATED,
    WorkloadCosts,
    build_subject,
    list_counters,
    read_costs,
    read_work,
)
from analyzers.workload_rows import OWNER
from fallow.models import Finding, Unjudged
from fallow.protocols import Views
from fallow.settings.workloads import SizingSettings
from fallow.window import Window

NO_DEPTH = (
    "profiling counters are off, so how deeply it computes is unknown: dcgm-exporter's counters "
    "ConfigMap needs the lines " + list_counters("sm", "tensor", "fp32", "dram")
)
RESERVED = (
    "little is computed, but the memory in use is what the framework reserved at once and says "
    "nothing of the need: export torch.cuda.max_memory_allocated or vLLM's KV-cache use"
)
NO_HOSTS = {name: pl.lit(None, dtype=pl.Float64) for name in ("throttled", "cpu_full", "net_bps")}
SHARED = "several pods share the device: which pod's activity it shows is not known"


class SizingAnalyzer:
    """Find workloads that use little of their allocation.

    Source: telemetry-and-waste.md#signals and #use-below-the-allocation.
    """

    def __init__(self, settings: SizingSettings | None = None) -> None:
        self.settings = settings or SizingSettings()

    def find(self, views: Views, window: Window) -> list[Finding]:
        """Return under-used workloads and excessive requests, the most GPU-hours first."""
        costs = read_costs(views, window)
        judged = self._judged(read_work(views, window), costs)
        pods = rows.read_pods(views, window)
        findings: list[Finding] = []
        if judged.height or pods.height:
            pods = add_hosts(views, window, pods, judged)
            findings += self._signs(views, window, judged, pods, costs)
            gpu_pods, free = rows.list_pods(pods), _read_free(views, window)
            containers = sum_containers(views, window)
            findings += find_oversized(containers, gpu_pods, free, window)
            findings += find_blocking(gpu_pods, free, window, list_settled(containers))
        return sorted(findings, key=lambda f: (-f.gpu_hours, f.id))

    def unjudged(self, views: Views, window: Window) -> list[Unjudged]:
        """Return the workloads with unknown depth or memory need, and the reasons."""
        work = read_work(views, window)
        judged = self._judged(work, read_costs(views, window))
        unjudged = []
        for row in rows.list_workloads(judged.with_columns(**NO_HOSTS)):
            reasons = []
            if row.sm is None:
                reasons.append(NO_DEPTH)
            if row.reserved and row.eff is not None and row.eff < get_limit("low_eff"):
                reasons.append(RESERVED)
            unjudged += [Unjudged(build_subject(row), row.work_h, (why,)) for why in reasons]
        unjudged += [
            Unjudged(build_subject(shared), shared.hours, (SHARED,))
            for shared in rows.list_shared(sum_shared(work))
            if shared.hours > 0
        ]
        return [*unjudged, *find_unknown(sum_containers(views, window))]

    def _judged(self, work: pl.DataFrame, costs: WorkloadCosts) -> pl.DataFrame:
        """Return workloads with enough work to judge; `thin`: allocated longer than used."""
        least = self.settings.least_gpu_hours
        workloads = sum_workloads(work)
        ledger = (costs.total(owner, ALLOCATED) for owner in workloads.select(OWNER).iter_rows())
        allocated = pl.Series(
            "allocated_h", [a.gpu_hours if a else None for a in ledger], pl.Float64
        )
        workloads = workloads.with_columns(allocated).with_columns(
            allocated_h=pl.max_horizontal("allocated_h", "work_h")
        )
        worked = pl.col("longest_s") >= min(least, get_limit("thin_hours")) * 3600
        enough = (pl.col("allocated_h") >= least) & worked & (pl.col("work_h") > 0)
        return workloads.filter(enough).with_columns(thin=pl.col("work_h") < least)

    def _signs(
        self,
        views: Views,
        window: Window,
        judged: pl.DataFrame,
        pods: pl.DataFrame,
        costs: WorkloadCosts,
    ) -> Iterable[Finding]:
        prices = rows.read_prices(views, window)
        both = judged.join(sum_hosts(pods), on=OWNER, how="left", maintain_order="left")
        judged_rows = [
            (row, diagnose(row, prices.get(row.cluster, {}), self.settings))
            for row in rows.list_workloads(both)
        ]
        for row, symptom in bound_savings(judged_rows):
            if symptom is not None:
                yield build_finding(row, symptom, window, costs, bool(row.reserved))


def _read_free(views: Views, window: Window) -> Free:
    return {
        (row.cluster, row.node): (row.gpu_hours, row.usd if row.priced else None)
        for row in rows.read_free_hours(views, window)
    }

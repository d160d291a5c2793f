"""Find under-use and the right size: what workloads do with their devices, and what would suffice.

Every step is a frame or a row, and each symptom has the share of the hours that it wastes.

rollup_1h ─► hours at work ─► one row per workload ─┐
pod_sample ─► CPU, throttling, network (2 days) ────┼─► a symptom ─► a finding ─► smaller sizes
container_sample ─► CPU and memory (14 days) ───────┼─► requests that are too large
ledger ─► hours, dollars, prices per model ─────────┘
"""

from collections.abc import Iterable
from datetime import timedelta

import msgspec
import polars as pl

from analyzers.sizing import fault_symptoms, rows, underuse
from analyzers.sizing.blocking_requests import Free, find_blocking
from analyzers.sizing.findings import build_finding
from analyzers.sizing.fitting import compute_need, list_options
from analyzers.sizing.limits import get_limit
from analyzers.sizing.requests import find_oversized, find_unknown, list_settled, sum_containers
from analyzers.sizing.rows import WorkloadUse
from analyzers.sizing.symptoms import Symptom
from analyzers.sizing.usage import sum_shared, sum_workloads
from analyzers.work import (
    ALLOCATED,
    WorkloadCosts,
    build_subject,
    list_counters,
    read_costs,
    read_work,
)
from analyzers.workload_kinds import is_interactive
from analyzers.workload_rows import OWNER
from fallow.models import Finding, Unjudged
from fallow.protocols import Views
from fallow.window import Window
from fallow.workload_settings import SizingSettings

HOST_DAYS = 2
"""Host samples are read for the last days only: raw samples are many and soon archived."""
NO_DEPTH = (
    "profiling counters are off, so how deeply it computes is unknown: dcgm-exporter's counters "
    "ConfigMap needs the lines " + list_counters("sm", "tensor", "fp32", "dram")
)
RESERVED = (
    "little is computed, but the memory in use is what the framework reserved at once and says "
    "nothing of the need: export torch.cuda.max_memory_allocated or vLLM's KV-cache use"
)
NO_HOSTS = {name: pl.lit(None, dtype=pl.Float64) for name in ("throttled", "cpu_full", "net_bps")}
SHARED = "several pods share the device: whose activity it shows is not known"


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
            pods = _add_hosts(views, window, pods, judged)
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
        weight = pl.col("hours")
        hosts = pods.group_by(OWNER).agg(
            throttled=(pl.col("throttled") * weight).sum()
            / weight.filter(pl.col("throttled").is_not_null()).sum(),
            cpu_full=(pl.col("cpu_cores") * 1000 / pl.col("cpu_limit_milli")).mean(),
            net_bps=pl.col("net_bps").mean(),
        )
        hosts = hosts.with_columns(pl.col("throttled").fill_nan(None))
        both = judged.join(hosts, on=OWNER, how="left", maintain_order="left")
        for row in rows.list_workloads(both):
            sign = self._sign(row, prices.get(row.cluster, {}))
            if sign is not None and 0 < sign.share <= 1:
                if row.thin and sign.kind != "busy_hang":
                    sign = msgspec.structs.replace(sign, evidence="suspected")
                yield build_finding(row, sign, window, costs, bool(row.reserved))

    def _sign(self, row: WorkloadUse, prices: dict[str, float]) -> Symptom | None:
        first = (
            fault_symptoms.detect_hang(row)
            or fault_symptoms.detect_straggler(row)
            or fault_symptoms.detect_starved(row, self.settings)
            or fault_symptoms.detect_input_bound(row)
            or fault_symptoms.detect_comm_bound(row)
        )
        if first is not None or (row.dram or 0) >= get_limit("memory_bound"):
            return first
        need = compute_need(row, self.settings)
        small = row.eff is not None and row.eff < get_limit("low_eff")
        if need is not None and small and row.sm_peak is not None:
            options = list_options(row, need, prices, self.settings)
            if options:
                return underuse.build_smaller(row, options)
        if is_interactive(row.workload_kind):
            return None
        if row.sm is not None and row.sm < self.settings.low_depth:
            shallow = underuse.detect_shallow(row)
            if shallow is not None:
                return shallow
        if row.act is not None and row.act < self.settings.low_duty:
            return underuse.detect_seldom(row, self.settings)
        return None


def _add_hosts(
    views: Views, window: Window, pods: pl.DataFrame, judged: pl.DataFrame
) -> pl.DataFrame:
    """Join host data of pods: of judged workloads, and of those with large requests."""
    chosen = pods.filter(
        pl.struct(OWNER).is_in(judged.select(pl.struct(OWNER).alias("key"))["key"].implode())
        | (pl.col("cpu_request_milli") > pl.col("gpus") * pl.col("fair_milli"))
        | (pl.col("memory_request_bytes") > pl.col("gpus") * pl.col("fair_bytes"))
    )
    names = ["cluster", "namespace", "pod"]
    since = max(window.start, window.end - timedelta(days=HOST_DAYS))
    hosts = rows.read_pod_hosts(views, since, window.end, chosen.select(names))
    return pods.join(hosts, on=names, how="left", maintain_order="left")


def _read_free(views: Views, window: Window) -> Free:
    return {
        (row.cluster, row.node): (row.gpu_hours, row.usd if row.priced else None)
        for row in rows.read_free_hours(views, window)
    }

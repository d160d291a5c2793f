"""Build the findings of formats and of reserved memory: hours, dollars, evidence, remedy."""

from datetime import UTC, timedelta
from decimal import Decimal
from typing import Any

from analyzers.precision.bottlenecks import Bottleneck
from analyzers.precision.gains import FormatGain
from analyzers.precision.rows import AllocatorMemory, WorkloadPipes
from analyzers.work import (
    WORKED,
    StateCost,
    WorkloadCosts,
    build_subject,
    compute_per_day,
    compute_share,
)
from fallow.models import Finding, FindingKey, Recommendation, Subject
from fallow.window import Window

ANALYZER = "precision"
HOUR = timedelta(hours=1)
GIB = 2**30
CONFIDENCE = 0.45
"""Half of the confidence of a confirmed finding: there is one signal."""
ASSUMED = {
    "fp32_asleep": [
        "half to all of the FP32 pipe's time is matrix work that tensor cores can do",
        "0.65 to 0.8 of the ratio of the peak rates is reached",
    ],
    "fp8": [
        "it computes in 16 bits now: the counters do not tell FP8 from BF16",
        "half to all of the tensor pipe's time can be FP8",
        "0.65 to 0.8 of the ratio of the peak rates is reached",
    ],
    "low_bit_weights": [
        "its weights have 16 bits now",
        "0.5 to 0.9 of the memory traffic is weights, the rest KV cache and activations",
    ],
}


def build_format_finding(
    bottleneck: Bottleneck, cost: StateCost, window: Window, costs: WorkloadCosts
) -> Finding:
    """Return the finding of a workload that smaller formats speed up; the first gain counts."""
    row, kind, gains = bottleneck.pipes, bottleneck.kind, bottleneck.gains
    subject = build_subject(row)
    start = max(window.start, row.first_hour.replace(tzinfo=UTC))
    end = min(window.end, row.last_hour.replace(tzinfo=UTC) + HOUR)
    low = gains[0].shares[0]
    activities = {"sm": row.sm, "tensor": row.tensor, "fp32": row.fp32, "dram": row.dram}
    figures = {n: round(value, 4) for n, value in activities.items() if value is not None}
    assumed = list(ASSUMED[kind])
    if row.dram is None:
        assumed.append("memory bandwidth is not measured, and taken not to be the limit")
    if not bottleneck.peaks.sure:
        assumed.append(f"peak rates of {row.model} are from memory: {bottleneck.peaks.source}")
    if cost.usd is None:
        assumed.append("some of its hours have no price: no dollars")
    return FindingKey(ANALYZER, kind, subject, Window(start, end)).build(
        evidence="suspected",
        confidence=CONFIDENCE,
        gpu_hours=round(cost.gpu_hours * low, 6),
        usd=None if cost.usd is None else compute_share(cost.usd, low),
        details={
            "why": f"{kind.replace('_', ' ')}: {gains[0].format.format} could be "
            f"{gains[0].low:.2f} to {gains[0].high:.2f} times as fast",
            "signals": {"compute": ", ".join(f"{n} {v:.2f}" for n, v in figures.items())},
            "figures": figures,
            "hours_at_work": round(cost.gpu_hours, 6),
            "ranges": [_describe_range(gain, cost) for gain in gains],
            "counted": "the low end of the first range",
            "assumptions": assumed,
        },
        recommendations=tuple(
            _recommend(row, gain, cost, subject, window, costs) for gain in gains
        ),
    )


def _describe_range(gain: FormatGain, cost: StateCost) -> dict[str, Any]:
    low, high = gain.shares
    usd = (
        None if cost.usd is None else [compute_share(cost.usd, low), compute_share(cost.usd, high)]
    )
    return {
        "format": gain.format.format,
        "times_as_fast": [round(gain.low, 3), round(gain.high, 3)],
        "gpu_hours": [round(cost.gpu_hours * low, 3), round(cost.gpu_hours * high, 3)],
        "usd": usd,
        "bytes": gain.format.bytes,
    }


def _recommend(  # noqa: PLR0917  (one call)
    row: WorkloadPipes,
    gain: FormatGain,
    cost: StateCost,
    subject: Subject,
    window: Window,
    costs: WorkloadCosts,
) -> Recommendation:
    share, number_format = gain.shares[0], gain.format
    worked = costs.total(row.owner, WORKED)
    of_model = cost.gpu_hours / worked.gpu_hours if worked and worked.gpu_hours else 1.0
    usd: Decimal | None = None if cost.usd is None else compute_share(cost.usd, share)
    words = {"fp32": row.fp32 or 0.0, "tensor": row.tensor or 0.0, "dram": row.dram or 0.0}
    return Recommendation(
        verb=number_format.verb,
        target=f"{subject.workload_kind}/{subject.namespace}/{subject.workload}",
        why=number_format.why.format(**words),
        reversible=True,
        undo=number_format.undo,
        gpu_hours_per_day=round(cost.gpu_hours * share * 86_400 / window.seconds, 4),
        usd_per_day=compute_per_day(usd, window),
        caution=number_format.caution,
        effort=number_format.effort,
        claims=costs.claims(row.owner, share * min(1.0, of_model), WORKED),
    )


def build_fragmentation_finding(row: AllocatorMemory, window: Window) -> Finding:
    """Return the finding of a workload with reserved memory that no tensor uses."""
    about = Subject(*row.owner, team=row.team)
    unused = (row.reserved - row.allocated) / GIB
    why = (
        f"{row.fragmented:.0%} of the memory that its allocator reserves is in no tensor: "
        f"{unused:,.1f} GiB of each pod's {row.reserved / GIB:,.1f}"
    )
    return FindingKey(ANALYZER, "allocator_fragmentation", about, window).build(
        evidence="suspected",
        confidence=0.45,
        details={
            "why": why,
            "fragmentation": round(row.fragmented, 4),
            "least_fragmentation": round(row.least_fragmented, 4),
            "reserved_gib": round(row.reserved / GIB, 3),
            "allocated_gib": round(row.allocated / GIB, 3),
            "most_allocated_gib": round(row.most_allocated / GIB, 3),
            "pod_hours": round(row.pod_hours or 0.0, 2),
            "signals": {"framework": "step_sample"},
            "assumed": [
                "tensors come and go within a step, and samples fall anywhere in it",
                "no GPU-hour is freed by it alone, and none is claimed",
            ],
        },
        recommendations=(
            Recommendation(
                verb="let its allocator grow segments",
                target=f"{about.workload_kind}/{about.namespace}/{about.workload}",
                why=why,
                reversible=True,
                undo="take the setting back",
                caution="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; then try a larger batch",
                saving="capacity",
                effort="quick win",
            ),
        ),
    )

"""Find memory that a framework's allocator reserves and does not use for tensors.

    fragmentation = 1 - allocated / reserved        (summed over samples)

It frees no GPU-hour by itself: the finding states how much memory a larger batch, or a smaller
device, could have. So nothing is claimed. Source: torch.cuda.memory_allocated and memory_reserved;
PyTorch's own out-of-memory message advises on "reserved >> allocated".
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from analyzers.queries import OWNERS, compose_steps
from fallow.models import Finding, Recommendation, Subject, finding_id
from fallow.protocols import Views
from fallow.settings import PrecisionSettings
from fallow.window import Window

ANALYZER = "precision"
KIND = "allocator_fragmentation"
LEAST_HOURS = 4.0
"""Minimum pod-hours of samples for a judgement: while a model loads, memory seems fragmented."""
GIB = 2**30


def find_fragmented(views: Views, window: Window, settings: PrecisionSettings) -> Iterator[Finding]:
    """Yield workloads with a large share of reserved memory outside of tensors."""
    parameters = {"since": window.start, "until": window.end}
    for row in views.query(compose_steps(OWNERS, "precision/allocators"), parameters).to_pylist():
        if row["pod_hours"] >= LEAST_HOURS and row["fragmented"] >= settings.fragmented:
            yield _build_finding(row, window)


def _build_finding(row: Mapping[str, Any], window: Window) -> Finding:
    about = Subject(
        row["cluster"], row["namespace"], row["workload_kind"], row["workload"], team=row["team"]
    )
    unused = (row["reserved"] - row["allocated"]) / GIB
    why = (
        f"{row['fragmented']:.0%} of the memory that its allocator reserves is in no tensor: "
        f"{unused:,.1f} GiB of each pod's {row['reserved'] / GIB:,.1f}"
    )
    return Finding(
        id=finding_id(ANALYZER, KIND, about, window.start),
        analyzer=ANALYZER,
        kind=KIND,
        subject=about,
        window=window,
        verdict="wasteful",
        evidence="suspected",
        confidence=0.45,
        gpu_hours=0.0,
        usd=Decimal(0),
        details={
            "why": why,
            "fragmentation": round(row["fragmented"], 4),
            "least_fragmentation": round(row["least_fragmented"], 4),
            "reserved_gib": round(row["reserved"] / GIB, 3),
            "allocated_gib": round(row["allocated"] / GIB, 3),
            "most_allocated_gib": round(row["most_allocated"] / GIB, 3),
            "pod_hours": round(row["pod_hours"], 2),
            "witnesses": {"framework": "step_sample"},
            "assumed": [
                "tensors come and go within a step, and looks fall anywhere in it",
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

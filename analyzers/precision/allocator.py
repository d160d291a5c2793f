"""Find memory that a framework's allocator reserves and does not use for tensors.

    fragmentation = 1 - allocated / reserved        (summed over samples)

It frees no GPU-hour by itself: the finding states how much memory a larger batch, or a smaller
device, could have. So nothing is claimed. Source: torch.cuda.memory_allocated and memory_reserved;
PyTorch's own out-of-memory message advises on "reserved >> allocated".
"""

from collections.abc import Iterator

from analyzers.precision.findings import build_fragmentation_finding
from analyzers.precision.rows import read_allocators
from fallow.models import Finding
from fallow.protocols import Views
from fallow.settings.workloads import PrecisionSettings
from fallow.window import Window

LEAST_HOURS = 4.0
"""Minimum pod-hours of samples for a judgement: while a model loads, memory seems fragmented."""


def find_fragmented(views: Views, window: Window, settings: PrecisionSettings) -> Iterator[Finding]:
    """Yield workloads with a large share of reserved memory outside of tensors."""
    for row in read_allocators(views, window):
        long = row.pod_hours is not None and row.pod_hours >= LEAST_HOURS
        if long and row.fragmented >= settings.fragmented:
            yield build_fragmentation_finding(row, window)

"""Compare jobs that differ only in their size by throughput per GPU.

    efficiency(N) = (X(N) / N) / (X(M) / M)        X: samples or tokens per second, M: smallest size

With M = 1 and a fixed batch this is T(1) / (N T(N)), strong scaling. With a batch that grows with N
it is weak scaling: throughput has the same meaning in both. Steps per second alone do not show the
size of a step: then the batch is assumed to grow with N (efficiency = s(N) / s(M)), the assumption
with the least waste.
"""

import re
from collections.abc import Sequence

import msgspec

from analyzers.scaling.rows import JobPace

Key = tuple[str, ...]
STEPS = "steps_per_s"
_TAIL = re.compile(r"(?:-(?:\d+|(?=[0-9a-f]*\d)[0-9a-f]{6,}))+$")
"""The suffix of a name that separates runs: numbers and hashes, not sizes such as 7b."""


class JobThroughput(msgspec.Struct, frozen=True):
    """One job at one size, beside the smallest size of its family."""

    row: JobPace
    family: str
    per_gpu: float
    base_gpus: int
    base_hours: int
    base_per_gpu: float
    unit: str

    @property
    def efficiency(self) -> float:
        """Return throughput per GPU over that of the smallest size, at most 1."""
        return min(1.0, self.per_gpu / self.base_per_gpu)


def strip_run_suffix(workload: str) -> str:
    """Return a name without the suffix that separates one run from another."""
    return _TAIL.sub("", workload) or workload


def compare_sizes(rows: Sequence[JobPace]) -> tuple[list[JobThroughput], list[JobPace]]:
    """Return the jobs of families with several sizes, and the rows of those with one."""
    families: dict[Key, list[JobPace]] = {}
    for row in rows:
        families.setdefault(_get_key(row), []).append(row)
    throughputs: list[JobThroughput] = []
    alone: list[JobPace] = []
    for key, members in families.items():
        base = min(row.gpus for row in members)
        if all(row.gpus == base for row in members):
            alone += members
            continue
        smallest = [row for row in members if row.gpus == base]
        hours = sum(row.hours for row in smallest)
        mean = sum(_compute_per_gpu(row) * row.hours for row in smallest) / hours
        throughputs += [
            JobThroughput(row, key[-3], _compute_per_gpu(row), base, hours, mean, key[-1])
            for row in members
            if row.gpus > base
        ]
    return throughputs, alone


def _get_key(row: JobPace) -> Key:
    unit = STEPS if row.work_per_s is None else row.work or "work_per_s"
    if row.family:
        return (row.cluster, row.family, row.model, unit)
    place = (row.cluster, row.namespace, row.workload_kind)
    return (*place, strip_run_suffix(row.workload), row.model, unit)


def _compute_per_gpu(row: JobPace) -> float:
    if row.work_per_s is None:
        return row.steps_per_s or 0.0
    return row.work_per_s / row.gpus

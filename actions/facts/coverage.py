"""Compare what cases hold by the inventory with the devices that their evidence covers."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import numpy as np
import polars as pl

from capacity.placement.fleet_state import WorkloadKey, get_workload_key, to_micros
from fallow.models import Finding
from fallow.protocols import Views
from warehouse.workload_gpus import (
    WHOLE,
    WorkloadGpus,
    WorkloadStretch,
    build_frame,
    build_records,
    read_workload_gpus,
)

MOST_STRETCHES = 10_000
"""Stretches of past findings that one query compares with the inventory."""
_KEY = ("cluster", "namespace", "workload_kind", "workload")


class WorkloadCoverage:
    """The GPUs that the workloads of findings hold, by the finding's id."""

    def __init__(self, views: Views, findings: Sequence[Finding], now: datetime) -> None:
        with_pods = [f for f in findings if f.subject.namespace]
        stretches = [_build_stretch(n, f, now) for n, f in enumerate(with_pods)]
        rows = build_records(read_workload_gpus(views, build_frame(stretches))) if stretches else {}
        self._by_finding = {f.id: rows[n] for n, f in enumerate(with_pods)}

    def of(self, finding: Finding) -> WorkloadGpus | None:
        """Return the allocation of a finding's workload; None = the finding is about no pods."""
        return self._by_finding.get(finding.id)


class PastCoverage:
    """The GPUs that workloads held at each evaluation of a replay, by the row of a past finding.

    One query reads several evaluations.
    """

    def __init__(
        self,
        views: Views,
        rows: pl.DataFrame,
        workloads: Collection[WorkloadKey],
        at: Sequence[int],
    ) -> None:
        """`rows` has row, k, the names of the workload, start and end; `at` is the time of each k.

        Only the rows of these workloads are read.
        """
        keys = pl.DataFrame([*workloads], schema=dict.fromkeys(_KEY, pl.String), orient="row")
        covered_rows = rows.join(keys, on=_KEY, how="semi", nulls_equal=True)
        covered_rows = covered_rows.filter(pl.col("namespace") != "").sort("k", "row")
        ends = pl.min_horizontal("end", pl.Series(at, dtype=pl.Int64).gather(covered_rows["k"]))
        self._rows = covered_rows.select("row", *_KEY, "start", end=ends)
        self._k = covered_rows["k"].to_numpy()
        self._views, self._read = views, 0
        self._by_row: dict[int, WorkloadGpus] = {}

    def get(self, row: int, k: int) -> WorkloadGpus | None:
        """Return the allocation behind a row of evaluation `k`; None = it is not among them.

        Evaluations come in order.
        """
        if self._read < len(self._k) and self._k[self._read] <= k:
            begin = int(np.searchsorted(self._k, k))
            last = self._k[min(begin + MOST_STRETCHES, len(self._k)) - 1]
            self._read = int(np.searchsorted(self._k, max(last, k), side="right"))
            part = self._rows[begin : self._read]
            rows = read_workload_gpus(self._views, part.rename({"row": "span"}))
            self._by_row = build_records(rows)
        return self._by_row.get(row)


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


def find_shortest(rows: pl.DataFrame, at: Sequence[int]) -> dict[WorkloadKey, int]:
    """Return the length in microseconds of the shortest finding of each workload with pods.

    `rows` has k, the names of the workload, start and end; `at` is the time of each k. A finding
    that goes on after its evaluation counts until then.
    """
    ends = pl.min_horizontal("end", pl.Series(at, dtype=pl.Int64).gather(rows["k"]))
    with_pods = rows.with_columns(length=ends - pl.col("start")).filter(pl.col("namespace") != "")
    shortest = with_pods.group_by(_KEY, maintain_order=True).agg(pl.col("length").min())
    return {row[:-1]: row[-1] for row in shortest.iter_rows()}


def find_partly_seen(
    views: Views, shortest: Mapping[WorkloadKey, int], since: datetime, until: datetime
) -> frozenset[WorkloadKey]:
    """Return the workloads with a pod that had no evidence for a part of one of their findings.

    Only these workloads need a second query for each time of a replay. A mean over the replay hides
    a gap of a day, so the time without evidence counts: from (1 - WHOLE) of the shortest finding
    on, whose lengths in microseconds are `shortest`.
    """
    start, end = to_micros(since), to_micros(until)
    keys = [*shortest]
    stretches = [WorkloadStretch(n, *key, start, end) for n, key in enumerate(keys)]
    if not stretches:
        return frozenset()
    coverage = build_records(read_workload_gpus(views, build_frame(stretches)))
    return frozenset(
        key
        for n, key in enumerate(keys)
        if n in coverage and coverage[n].unseen_us > (1 - WHOLE) * shortest[key]
    )


def _build_stretch(span: int, finding: Finding, now: datetime) -> WorkloadStretch:
    window = finding.window
    return WorkloadStretch(
        span,
        *get_workload_key(finding.subject),
        to_micros(window.start),
        to_micros(min(window.end, now)),
    )

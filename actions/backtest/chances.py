"""Rows of an analyzer's past that a policy may be about, and the moments at which one may change.

Vectorised, so that `decide` is only asked where its answer can differ: when a case is first seen,
when anything about it changes that does not merely grow, and when it passes a number that the
policy asks for.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from actions.policy.matching import any_of
from actions.policy.model import Match

DAY_US = 86_400 * 1_000_000
_STATIC = ("cluster", "namespace", "workload_kind", "kind")


class Chances:
    """The rows of a policy's cases: where each begins, what row it has when, when it changes."""

    def __init__(self, rows: pa.Table, wanted: Match, moments: int) -> None:
        found: pl.DataFrame = pl.DataFrame(rows).with_row_index("row")
        found = found.join(_static(found, wanted), on=list(_STATIC), how="semi", nulls_equal=True)
        found = _changing(found.sort("case", "k"), wanted)
        self.row = found["row"].to_numpy().astype(np.int64)
        self.k = found["k"].to_numpy()
        self._frame = found
        ids = found["case"].to_numpy()
        begins = np.flatnonzero(np.diff(ids, prepend=-1)) if len(ids) else np.empty(0, np.int64)
        self.count = len(begins)
        self._low = begins
        self._high = np.append(begins[1:], len(ids)) if len(begins) else begins
        number = np.repeat(np.arange(self.count), self._high - self._low)
        changed = found["changed"].to_numpy()
        self.at: list[list[int]] = [[] for _ in range(moments)]
        for k, case in zip(self.k[changed].tolist(), number[changed].tolist(), strict=True):
            self.at[k].append(case)

    def row_at(self, case: int, k: int) -> int | None:
        """Return the row of a case at a moment; None = it was not found then."""
        low, high = self._low[case], self._high[case]
        place = low + int(np.searchsorted(self.k[low:high], k))
        return int(self.row[place]) if place < high and self.k[place] == k else None

    def lasts(self) -> pl.DataFrame:
        """Return of each case whom it is about and until when it lasted."""
        last = self._frame[self._high - 1] if self.count else self._frame
        return last.select(
            "cluster", "namespace", "workload_kind", "workload", since="end"
        ).with_row_index("case_id")


def _static(found: pl.DataFrame, wanted: Match) -> pl.DataFrame:
    """Return the kinds of cases that the policy may be about: what it asks never changes."""
    each = found.select(_STATIC).unique(maintain_order=True)
    return each.filter(pl.Series([possible(row, wanted) for row in each.iter_rows(named=True)],
                                 dtype=pl.Boolean))  # fmt: skip


def possible(row: dict[str, Any], wanted: Match) -> bool:
    """Say whether a policy may be about cases of a cluster, namespace, workload kind and kind."""
    asked: Sequence[tuple[tuple[str, ...], Any]] = (
        (wanted.cluster, row["cluster"]),
        (wanted.namespaces, row["namespace"]),
        (wanted.workload_kind, row["workload_kind"]),
        (wanted.kind, row["kind"]),
    )
    if wanted.not_namespaces and any_of(wanted.not_namespaces, row["namespace"]):
        return False
    return all(not globs or any_of(globs, text) for globs, text in asked)


def _changing(found: pl.DataFrame, wanted: Match) -> pl.DataFrame:
    """Add `changed`: the first row of a case, and each that differs from the row before it."""
    per_day = DAY_US / (pl.col("end") - pl.col("start"))
    least_us = round(wanted.min_duration.total_seconds() * 1_000_000)
    usd = (pl.col("usd") * per_day).fill_null(-1.0)
    found = found.with_columns(
        _least=pl.struct(
            pl.col("confidence") >= wanted.confidence,
            lasts=pl.col("end") - pl.col("start") >= least_us,
            gpu_hours=pl.col("gpu_hours") >= wanted.gpu_hours,
            per_day=(pl.col("gpu_hours") * per_day).round(4) >= wanted.gpu_hours_per_day,
            usd=usd >= float(wanted.usd_per_day),
            seen=(pl.col("coverage") * 100).floor(),
        )
    )
    same = ["case", "mark", "evidence", "_least"]
    differs = pl.any_horizontal(pl.col(c).ne_missing(pl.col(c).shift(1)) for c in same)
    gap = pl.col("k") != pl.col("k").shift(1) + 1
    return found.with_columns(changed=(differs | gap).fill_null(True)).drop("_least")

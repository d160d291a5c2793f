"""Select an analyzer's past rows that match a policy, and the times at which a decision may change.

The selection is vectorised. `decide` is then called only where its result can differ: when a case
is first found, when one of its values changes other than by growing, and when a value passes a
threshold of the policy.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from actions.policy.matching import is_any_match
from actions.policy.model import Match, Policy

DAY_US = 86_400 * 1_000_000
_STATIC = ("cluster", "namespace", "workload_kind", "kind")


class CaseRows:
    """The rows of a policy's cases: where each case begins, its row at each time, its changes."""

    def __init__(self, rows: pa.Table, policy: Policy, turn_count: int) -> None:
        match = policy.match
        frame: pl.DataFrame = pl.DataFrame(rows).with_row_index("row")
        frame = frame.join(
            _select_possible_kinds(frame, match), on=list(_STATIC), how="semi", nulls_equal=True
        )
        if "wanted" not in frame.columns:
            frame = frame.with_columns(wanted=pl.lit(None, dtype=pl.Float64))
        frame = _mark_changes(frame.sort("case", "k"), match, policy.reversals.rate)
        self.row = frame["row"].to_numpy().astype(np.int64)
        self.k = frame["k"].to_numpy()
        self._frame = frame
        ids = frame["case"].to_numpy()
        starts = np.flatnonzero(np.diff(ids, prepend=-1)) if len(ids) else np.empty(0, np.int64)
        self.count = len(starts)
        self._low = starts
        self._high = np.append(starts[1:], len(ids)) if len(starts) else starts
        number = np.repeat(np.arange(self.count), self._high - self._low)
        changed = frame["changed"].to_numpy()
        self.at: list[list[int]] = [[] for _ in range(turn_count)]
        for turn, case in zip(self.k[changed].tolist(), number[changed].tolist(), strict=True):
            self.at[turn].append(case)

    def row_at(self, case: int, k: int) -> int | None:
        """Return the row of a case at an evaluation; None = the case was not found then."""
        low, high = self._low[case], self._high[case]
        position = low + int(np.searchsorted(self.k[low:high], k))
        return int(self.row[position]) if position < high and self.k[position] == k else None

    def spans(self) -> pl.DataFrame:
        """Return each row's number, evaluation, workload, and window in microseconds."""
        return self._frame.select(
            "row", "k", "cluster", "namespace", "workload_kind", "workload", "start", "end"
        )

    def lasts(self) -> pl.DataFrame:
        """Return for each case its workload and the time at which it ended."""
        last = self._frame[self._high - 1] if self.count else self._frame
        return last.select(
            "cluster", "namespace", "workload_kind", "workload", since="end"
        ).with_row_index("case_id")


def _select_possible_kinds(frame: pl.DataFrame, match: Match) -> pl.DataFrame:
    """Return the kinds of cases that the policy may match; these columns never change in a case."""
    kinds = frame.select(_STATIC).unique(maintain_order=True)
    return kinds.filter(pl.Series([may_match(row, match) for row in kinds.iter_rows(named=True)],
                                 dtype=pl.Boolean))  # fmt: skip


def may_match(row: dict[str, Any], match: Match) -> bool:
    """Return whether a policy may match cases of a cluster, namespace, workload kind and kind."""
    checks: Sequence[tuple[tuple[str, ...], Any]] = (
        (match.cluster, row["cluster"]),
        (match.namespaces, row["namespace"]),
        (match.workload_kind, row["workload_kind"]),
        (match.kind, row["kind"]),
    )
    if match.not_namespaces and is_any_match(match.not_namespaces, row["namespace"]):
        return False
    return all(not globs or is_any_match(globs, text) for globs, text in checks)


def _mark_changes(frame: pl.DataFrame, match: Match, rate: float) -> pl.DataFrame:
    """Add `changed`: the first row of a case, and each row that differs from the row before it.

    `rate`: up to this probability of a return the policy acts.
    """
    per_day = DAY_US / (pl.col("end") - pl.col("start"))
    least_us = round(match.min_duration.total_seconds() * 1_000_000)
    usd = (pl.col("usd") * per_day).fill_null(-1.0)
    frame = frame.with_columns(
        _least=pl.struct(
            pl.col("confidence") >= match.confidence,
            lasts=pl.col("end") - pl.col("start") >= least_us,
            gpu_hours=pl.col("gpu_hours") >= match.gpu_hours,
            per_day=(pl.col("gpu_hours") * per_day).round(4) >= match.gpu_hours_per_day,
            usd=usd >= float(match.usd_per_day),
            seen=(pl.col("coverage") * 100).floor(),
            wanted=pl.col("wanted") <= rate,
        )
    )
    same = ["case", "mark", "evidence", "_least"]
    differs = pl.any_horizontal(pl.col(c).ne_missing(pl.col(c).shift(1)) for c in same)
    gap = pl.col("k") != pl.col("k").shift(1) + 1
    return frame.with_columns(changed=(differs | gap).fill_null(True)).drop("_least")

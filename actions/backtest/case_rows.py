"""The rows of analyzers' pasts that policies may match, and when a decision about them may change.

The selection is vectorised. A replay of one policy then decides only where its answer can differ:
when a case is first found, when one of its values changes other than by growing, and when a value
passes a threshold of the policy.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from actions.policy.matching import is_any_match
from actions.policy.model import Match, Policy
from capacity.placement.fleet_state import WorkloadKey
from fallow.protocols import PastFindings

DAY_US = 86_400 * 1_000_000
KEY = ("cluster", "namespace", "workload_kind", "workload")
_STATIC = (*KEY[:3], "kind")
_COLUMNS = (
    "case", "k", "mark", *KEY, "kind", "evidence", "confidence", "coverage", "gpu_hours", "usd",
    "start", "end", "wanted",
)  # fmt: skip


class CaseRows:
    """The rows of cases that any policy may match, by workload and evaluation.

    A row's number is its place in `frame`. `changes`: the workloads (by number) with a row that is
    new or differs, for each evaluation; without `sparse`, those with any row.
    """

    def __init__(
        self,
        pasts: Mapping[str, PastFindings],
        policies: Sequence[Policy],
        turn_count: int,
        *,
        sparse: bool,
    ) -> None:
        self._pasts = [*pasts.values()]
        matches = [policy.match for policy in policies]
        frame = pl.concat(
            [_select_possible(past, n, matches) for n, past in enumerate(self._pasts)],
            how="vertical_relaxed",
        )
        frame = frame.with_columns(case=pl.struct("past", "case").rank("dense"))
        frame = frame.sort("case", "k")
        if sparse:
            (policy,) = policies
            frame = _mark_changes(frame, policy.match, policy.reversals.rate)
        else:
            frame = frame.with_columns(changed=pl.lit(value=True))
        named = frame.select(KEY).unique(maintain_order=True).with_row_index("number")
        frame = frame.join(named, on=KEY, how="left", nulls_equal=True, maintain_order="left")
        frame = frame.sort("number", "k", "case").with_row_index("n")
        self.frame = frame
        self.count: int = frame["case"].n_unique()
        self.workloads: list[WorkloadKey] = [
            (cluster, namespace or "", kind or "", name or "")
            for _, cluster, namespace, kind, name in named.iter_rows()
        ]
        """Each workload by its number."""
        self._k = frame["k"].to_numpy()
        self._row, self._past = frame["row"].to_numpy(), frame["past"].to_numpy()
        numbers = frame["number"].to_numpy()
        edges = np.searchsorted(numbers, np.arange(len(self.workloads) + 1))
        self._low, self._high = edges[:-1].tolist(), edges[1:].tolist()
        self.changes: list[set[int]] = [set() for _ in range(turn_count)]
        changed = frame["changed"].to_numpy()
        for k, number in zip(self._k[changed].tolist(), numbers[changed].tolist(), strict=True):
            self.changes[k].add(number)

    def rows_at(self, number: int, k: int) -> range:
        """Return the numbers of a workload's rows at an evaluation."""
        low, high = self._low[number], self._high[number]
        first, last = np.searchsorted(self._k[low:high], (k, k + 1))
        return range(low + int(first), low + int(last))

    def finding(self, row: int) -> Any:
        """Return the finding of a row."""
        return self._pasts[self._past[row]].finding(int(self._row[row]))

    def spans(self) -> pl.DataFrame:
        """Return each row's number, evaluation, workload, and window in microseconds."""
        return self.frame.select(*KEY, "k", "start", "end", row=pl.col("n").cast(pl.Int64))

    def lasts(self) -> pl.DataFrame:
        """Return for each case (`case_id`) its workload and the time at which it ended."""
        last = self.frame.sort("case", "k").group_by("case", maintain_order=True).last()
        return last.select(*KEY, since="end", case_id=pl.col("case").cast(pl.Int64))

    def case(self, row: int) -> int:
        """Return the case of a row, as in `lasts`."""
        return int(self.frame["case"][row])


def _select_possible(past: PastFindings, number: int, matches: Sequence[Match]) -> pl.DataFrame:
    """Return the rows of a past whose kinds a policy may match; a kind never changes in a case."""
    frame: pl.DataFrame = pl.DataFrame(past.rows).with_row_index("row")
    if "wanted" not in frame.columns:
        frame = frame.with_columns(wanted=pl.lit(None, dtype=pl.Float64))
    kinds = frame.select(_STATIC).unique(maintain_order=True)
    is_possible = [
        any(may_match(row, match) for match in matches) for row in kinds.iter_rows(named=True)
    ]
    kinds = kinds.filter(pl.Series(is_possible, dtype=pl.Boolean))
    frame = frame.join(kinds, on=list(_STATIC), how="semi", nulls_equal=True)
    return frame.select("row", *_COLUMNS, past=pl.lit(number))


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

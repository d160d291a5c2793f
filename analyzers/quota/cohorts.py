"""Kueue's cohorts as a tree: what a queue could borrow, by the lending of each member.

Source: kueue, pkg/cache/scheduler/resource_node.go (`available`): a queue has its own unlent quota,
and the rest of its parent, up to what it lends there plus its borrowing limit.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from analyzers.arrays import Doubles

Limits = tuple[Doubles, Doubles, Doubles]
"""Nominal, limit (nominal plus what may be borrowed) and lending, by hour."""


class CohortTree(msgspec.Struct, frozen=True):
    """One cohort tree of a resource: members are the columns of a group, cohorts stand above."""

    parents: tuple[str, ...]
    """Of each member."""
    up: Mapping[str, str]
    """The parent of each cohort; the root has none."""
    own: Mapping[str, Limits]
    """The quota and the limits of the cohorts themselves; most have none."""
    nominal: Doubles
    limit: Doubles
    lending: Doubles

    def room(self, used: Doubles) -> Doubles:
        """Return how much more each member could have, hour by hour."""
        unlent = np.maximum(self.nominal - self.lending, 0)
        size = len(self.nominal)
        total: dict[str, Doubles] = {}
        usage: dict[str, Doubles] = {}
        for n, parent in enumerate(self.parents):
            _add_amount(total, parent, self.nominal[:, n] - unlent[:, n])
            _add_amount(usage, parent, np.maximum(used[:, n] - unlent[:, n], 0))
        keeps: dict[str, Doubles] = {}
        for cohort in self._upwards():
            nominal, _, lending = self.own.get(cohort, _make_empty(size))
            total[cohort] = total.get(cohort, np.zeros(size)) + nominal
            keeps[cohort] = np.maximum(total[cohort] - lending, 0)
            if cohort in self.up:
                _add_amount(total, self.up[cohort], total[cohort] - keeps[cohort])
                cohort_usage = usage.get(cohort, np.zeros(size))
                _add_amount(usage, self.up[cohort], np.maximum(cohort_usage - keeps[cohort], 0))
        left: dict[str, Doubles] = {}
        for cohort in reversed(self._upwards()):
            cohort_usage = usage.get(cohort, np.zeros(size))
            if cohort not in self.up:
                left[cohort] = total[cohort] - cohort_usage
                continue
            nominal, limit, _ = self.own.get(cohort, _make_empty(size))
            left[cohort] = _compute_available(
                left[self.up[cohort]], total[cohort], keeps[cohort], cohort_usage, limit - nominal
            )
        columns = [
            _compute_available(
                left[parent],
                self.nominal[:, n],
                unlent[:, n],
                used[:, n],
                self.limit[:, n] - self.nominal[:, n],
            )
            for n, parent in enumerate(self.parents)
        ]
        return np.maximum(np.stack(columns, axis=1), 0)

    def _upwards(self) -> list[str]:
        """Return the cohorts, each before its parent."""
        there = set(self.parents)
        for cohort in list(there):
            there.update(_list_path(cohort, self.up))
        return sorted(there, key=lambda c: (-len(_list_path(c, self.up)), c))


class CohortTrees:
    """The cohorts of all clusters in their last observed state, and their own quotas by hour."""

    def __init__(self, rows: pl.DataFrame) -> None:
        self._rows = rows.sort("hour")
        self._up: dict[str, dict[str, str]] = {}
        for cluster, name, parent in self._rows.select("cluster", "name", "parent").iter_rows():
            above = self._up.setdefault(cluster, {})
            if parent:
                above[name] = parent
            else:
                above.pop(name, None)

    def rooted(self, quotas: pl.DataFrame) -> pl.DataFrame:
        """Store each ClusterQueue's cohort as `cohort`, and the root of its tree as `parent`."""
        pairs = quotas.select("cluster", "parent").unique().drop_nulls()
        roots = [_list_path(parent, self._up.get(c, {}))[-1] for c, parent in pairs.iter_rows()]
        named = pairs.with_columns(root=pl.Series(roots, dtype=pl.String))
        queue = pl.col("kind") == "ClusterQueue"
        return (
            quotas.join(named, on=["cluster", "parent"], how="left")
            .with_columns(cohort=pl.col("parent"))
            .with_columns(parent=pl.when(queue).then("root").otherwise("parent"))
            .drop("root")
        )

    def over(  # noqa: PLR0917  (one caller)
        self,
        cluster: str,
        parents: Sequence[str],
        resource: str,
        hours: npt.NDArray[np.int64],
        nominal: Doubles,
        limit: Doubles,
        lending: Doubles,
    ) -> CohortTree:
        """Return the tree over the members of a group."""
        name, _, flavor = resource.partition("@")
        mine = self._rows.filter(
            (pl.col("cluster") == cluster)
            & (pl.col("resource") == name)
            & (pl.col("flavor") == flavor)
        )
        own = {
            str(cohort[0]): (
                _fill_forward(rows, "nominal", hours, 0.0),
                _fill_forward(rows, "limit", hours, np.inf),
                _fill_forward(rows, "lending", hours, np.inf),
            )
            for cohort, rows in mine.group_by("name")
        }
        return CohortTree(tuple(parents), self._up.get(cluster, {}), own, nominal, limit, lending)


def build_trees(rows: pl.DataFrame) -> CohortTrees:
    """Return the trees of the `Cohort` rows of `quotas.sql`."""
    return CohortTrees(rows)


def _compute_available(
    above: Doubles, total: Doubles, unlent: Doubles, usage: Doubles, borrowing: Doubles
) -> Doubles:
    lent = (total - unlent) - np.maximum(usage - unlent, 0)
    return np.maximum(unlent - usage, 0) + np.minimum(lent + borrowing, above)


def _list_path(cohort: str, up: Mapping[str, str]) -> list[str]:
    """Return a cohort and all above it; a circle, which Kueue refuses, ends the list."""
    path = [cohort]
    while (above := up.get(path[-1])) is not None and above not in path:
        path.append(above)
    return path


def _add_amount(sums: dict[str, Doubles], name: str, more: Doubles) -> None:
    sums[name] = sums[name] + more if name in sums else more


def _make_empty(size: int) -> Limits:
    return np.zeros(size), np.full(size, np.inf), np.full(size, np.inf)


def _fill_forward(
    rows: pl.DataFrame, column: str, hours: npt.NDArray[np.int64], empty: float
) -> Doubles:
    """Return a column by hour.

    Between polls the last value is used, and before the first poll the first value.
    """
    ordered = rows.sort("hour")
    at = np.searchsorted(ordered["hour"].to_numpy(), hours, side="right") - 1
    values = ordered[column].cast(pl.Float64).fill_null(empty).to_numpy()
    filled: Doubles = values[np.maximum(at, 0)]
    return filled

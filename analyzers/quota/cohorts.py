"""Read Kueue's cohorts, and what their queues could have in addition, hour by hour."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf

import numpy as np
import numpy.typing as npt
import polars as pl

from analyzers.arrays import Doubles
from capacity.quota.tree import QuotaNode, QuotaTree, list_path


def measure_room(tree: QuotaTree, used: Doubles) -> Doubles:
    """Return how much more each member could have; a member is the node of its column."""
    tree = tree.copy()
    columns = range(used.shape[1])
    for column in columns:
        tree.use(str(column), used[:, column])
    rooms = [np.broadcast_to(tree.room(str(column)), used.shape[0]) for column in columns]
    room: Doubles = np.maximum(np.stack(rooms, axis=1), 0)
    return room


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
        roots = [list_path(parent, self._up.get(c, {}))[-1] for c, parent in pairs.iter_rows()]
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
    ) -> QuotaTree:
        """Return the tree over the members of a group, each under the number of its column."""
        name, _, flavor = resource.partition("@")
        up = self._up.get(cluster, {})
        nodes = {cohort: QuotaNode(parent=parent) for cohort, parent in _name_cohorts(up)}
        mine = self._rows.filter(
            (pl.col("cluster") == cluster)
            & (pl.col("resource") == name)
            & (pl.col("flavor") == flavor)
        )
        for (cohort,), rows in mine.group_by("name"):
            own = _fill_forward(rows, "nominal", hours, 0.0)
            borrowing = _fill_forward(rows, "limit", hours, inf) - own
            lent = _fill_forward(rows, "lending", hours, inf)
            parent = f"cohort {up[str(cohort)]}" if cohort in up else ""
            nodes[f"cohort {cohort}"] = QuotaNode(own, borrowing, lent, parent)
        for n, parent in enumerate(parents):
            own = nominal[:, n]
            nodes[str(n)] = QuotaNode(own, limit[:, n] - own, lending[:, n], f"cohort {parent}")
        return QuotaTree(nodes)


def build_trees(rows: pl.DataFrame) -> CohortTrees:
    """Return the trees of the `Cohort` rows of `quotas.sql`."""
    return CohortTrees(rows)


def _name_cohorts(up: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    return ((f"cohort {name}", f"cohort {parent}") for name, parent in up.items())


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

"""Compute how large the fleet was at each time: budgets in percent are shares of this size."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl

from actions.facts import read_fleet
from actions.policy.budgets import BudgetUsage, FleetSize, build_usage
from actions.policy.model import Policy
from capacity.placement.fleet_state import FleetState, to_micros
from fallow.protocols import Views


class _SizesOverTime(NamedTuple):
    """The sizes of a cluster, or of all, at each time."""

    gpus: np.ndarray
    workloads: np.ndarray
    owners: np.ndarray
    largest: np.ndarray


class FleetSizes:
    """The fleet's size at each time, from the allocations just before that time."""

    def __init__(
        self, views: Views, fleet_state: FleetState, policy: Policy, turns: Sequence[datetime]
    ) -> None:
        self._views, self._turns = views, turns
        at = np.array([to_micros(m) for m in turns], dtype=np.int64)
        allocations = pl.DataFrame(
            {
                "cluster": [h.key[0] for h in fleet_state.allocations],
                "whom": ["\x1f".join(h.key) for h in fleet_state.allocations],
                "owner": [h.owner for h in fleet_state.allocations],
                "start": [h.start for h in fleet_state.allocations],
                "end": [h.end for h in fleet_state.allocations],
            },
            schema={
                "cluster": pl.String, "whom": pl.String, "owner": pl.String, "start": pl.Int64,
                "end": pl.Int64,
            },
        )  # fmt: skip
        self._all = _measure(fleet_state.devices.values(), allocations, at)
        self._clusters = {
            cluster: _measure(
                [d for node, d in fleet_state.devices.items() if node[0] == cluster],
                allocations.filter(pl.col("cluster") == cluster),
                at,
            )
            for cluster in sorted({node[0] for node in fleet_state.devices})
        }
        self._priced = any(b.usd_per_hour and b.usd_per_hour.share for b in policy.budgets)

    def at(self, k: int) -> BudgetUsage:
        """Return the fleet at a given time; dollars only where a budget is a share of them."""
        priced = read_fleet(self._views, self._turns[k]) if self._priced else BudgetUsage()
        fleet = _get_size(self._all, k, priced.get_size("fleet", ""))
        clusters = {
            cluster: _get_size(sizes, k, priced.clusters.get(cluster, FleetSize()))
            for cluster, sizes in self._clusters.items()
        }
        # A replay counts the actions of all its clusters together.
        return msgspec.structs.replace(build_usage(fleet, clusters), elsewhere=())


def _measure(
    nodes: Collection[Sequence[Mapping[str, Any]]], allocations: pl.DataFrame, at: np.ndarray
) -> _SizesOverTime:
    """Measure nodes (the devices of each) and allocations at each time."""
    first = np.sort([d["first_us"] for devices in nodes for d in devices])
    return _SizesOverTime(
        gpus=np.searchsorted(first, at, side="left"),
        workloads=_count_holders(allocations, "whom", at),
        owners=_count_holders(allocations.drop_nulls("owner"), "owner", at),
        largest=_find_largest_nodes(nodes, at),
    )


def _get_size(sizes: _SizesOverTime, k: int, priced: FleetSize) -> FleetSize:
    return FleetSize(
        gpus=float(sizes.gpus[k]),
        workloads=int(sizes.workloads[k]),
        owners=int(sizes.owners[k]),
        usd_per_hour=priced.usd_per_hour,
        largest_node_gpus=float(sizes.largest[k]),
        largest_node_usd_per_hour=priced.largest_node_usd_per_hour,
    )


def _find_largest_nodes(
    nodes: Collection[Sequence[Mapping[str, Any]]], at: np.ndarray
) -> np.ndarray:
    """Return, per time, the most devices that any node had shown by then."""
    counts = [
        np.searchsorted(np.sort([d["first_us"] for d in devices]), at, side="left")
        for devices in nodes
    ]
    return np.max(counts, axis=0) if counts else np.zeros(len(at), dtype=np.int64)


def _count_holders(allocations: pl.DataFrame, holder: str, at: np.ndarray) -> np.ndarray:
    """Count, per time, the workloads and owners with an allocation just before it."""
    edges = pl.concat(
        [
            allocations.select(holder, at="start", step=1),
            allocations.select(holder, at="end", step=-1),
        ]
    )
    edges = edges.group_by(holder, "at").agg(pl.col("step").sum()).sort(holder, "at")
    edges = edges.with_columns(held=(pl.col("step").cum_sum().over(holder) > 0).cast(pl.Int64))
    changes = edges.with_columns(
        turn=pl.col("held") - pl.col("held").shift(1, fill_value=0).over(holder)
    )
    changes = changes.filter(pl.col("turn") != 0)
    starts = np.sort(changes.filter(pl.col("turn") > 0)["at"].to_numpy())
    ends = np.sort(changes.filter(pl.col("turn") < 0)["at"].to_numpy())
    return np.searchsorted(starts, at, side="left") - np.searchsorted(ends, at, side="left")

"""Compute how large the fleet was at each time: budgets in percent are shares of this size."""

from collections.abc import Sequence
from datetime import datetime

import numpy as np
import polars as pl

from actions.facts import read_fleet
from actions.policy.budgets import BudgetUsage
from actions.policy.model import Policy
from fallow.protocols import Views
from warehouse.placement.fleet_state import FleetState, to_micros


class FleetSizes:
    """The fleet's size at each time, from the allocations just before that time."""

    def __init__(
        self, views: Views, fleet_state: FleetState, policy: Policy, turns: Sequence[datetime]
    ) -> None:
        self._views, self._turns = views, turns
        at = np.array([to_micros(m) for m in turns], dtype=np.int64)
        allocations = pl.DataFrame(
            {
                "whom": ["\x1f".join(h.key) for h in fleet_state.allocations],
                "owner": [h.owner for h in fleet_state.allocations],
                "device": ["\x1f".join((h.key[0], h.device)) for h in fleet_state.allocations],
                "start": [h.start for h in fleet_state.allocations],
                "end": [h.end for h in fleet_state.allocations],
            },
            schema={
                "whom": pl.String, "owner": pl.String, "device": pl.String, "start": pl.Int64,
                "end": pl.Int64,
            },
        )  # fmt: skip
        self._workloads = _count_holders(allocations, "whom", at)
        self._owners = _count_holders(allocations.drop_nulls("owner"), "owner", at)
        first = np.sort([d["first_us"] for each in fleet_state.devices.values() for d in each])
        self._gpus = np.searchsorted(first, at, side="left")
        self._largest = _find_largest_nodes(fleet_state, at)
        self._priced = any(b.usd_per_hour and b.usd_per_hour.share for b in policy.budgets)

    def at(self, k: int) -> BudgetUsage:
        """Return the fleet at a given time; dollars only where a budget is a share of them."""
        priced = read_fleet(self._views, self._turns[k]) if self._priced else BudgetUsage()
        return BudgetUsage(
            elsewhere=(),  # a replay counts the actions of all its clusters together
            fleet_gpus=float(self._gpus[k]),
            fleet_workloads=int(self._workloads[k]),
            fleet_owners=int(self._owners[k]),
            fleet_usd_per_hour=priced.fleet_usd_per_hour,
            largest_node_gpus=float(self._largest[k]),
            largest_node_usd_per_hour=priced.largest_node_usd_per_hour,
        )


def _find_largest_nodes(fleet_state: FleetState, at: np.ndarray) -> np.ndarray:
    """Return, per time, the most devices that any node had shown by then."""
    counts = [
        np.searchsorted(np.sort([d["first_us"] for d in devices]), at, side="left")
        for devices in fleet_state.devices.values()
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

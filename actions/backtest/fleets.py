"""How large the fleet was at each moment: budgets in percent are shares of it."""

from collections.abc import Sequence
from datetime import datetime

import numpy as np
import polars as pl

from actions.facts import fleet
from actions.facts.ground import Ground, micros
from actions.policy.budgets import Spent
from actions.policy.model import Policy
from fallow.seams import Views


class Fleets:
    """The fleet's size at each moment, from who held what just before it."""

    def __init__(
        self, views: Views, ground: Ground, policy: Policy, moments: Sequence[datetime]
    ) -> None:
        self._views, self._moments = views, moments
        at = np.array([micros(m) for m in moments], dtype=np.int64)
        holds = pl.DataFrame(
            {
                "whom": ["\x1f".join(h.key) for h in ground.holds],
                "owner": [h.owner for h in ground.holds],
                "device": ["\x1f".join((h.key[0], h.device)) for h in ground.holds],
                "start": [h.start for h in ground.holds],
                "end": [h.end for h in ground.holds],
            },
            schema={
                "whom": pl.String, "owner": pl.String, "device": pl.String, "start": pl.Int64,
                "end": pl.Int64,
            },
        )  # fmt: skip
        self._workloads = _held(holds, "whom", at)
        self._owners = _held(holds.drop_nulls("owner"), "owner", at)
        first = np.sort([d["first_us"] for each in ground.devices.values() for d in each])
        self._gpus = np.searchsorted(first, at, side="left")
        self._largest = _largest(ground, at)
        self._priced = any(b.usd_per_hour and b.usd_per_hour.share for b in policy.budgets)

    def at(self, k: int) -> Spent:
        """Return the fleet at a moment; dollars only where a budget is a share of them."""
        priced = fleet(self._views, self._moments[k]) if self._priced else Spent()
        return Spent(
            fleet_gpus=float(self._gpus[k]),
            fleet_workloads=int(self._workloads[k]),
            fleet_owners=int(self._owners[k]),
            fleet_usd_per_hour=priced.fleet_usd_per_hour,
            largest_node_gpus=float(self._largest[k]),
            largest_node_usd_per_hour=priced.largest_node_usd_per_hour,
        )


def _largest(ground: Ground, at: np.ndarray) -> np.ndarray:
    """Return, per moment, the most devices that any node had shown by then."""
    each = [
        np.searchsorted(np.sort([d["first_us"] for d in devices]), at, side="left")
        for devices in ground.devices.values()
    ]
    return np.max(each, axis=0) if each else np.zeros(len(at), dtype=np.int64)


def _held(holds: pl.DataFrame, whose: str, at: np.ndarray) -> np.ndarray:
    """Count, per moment, who held anything just before it."""
    edges = pl.concat(
        [
            holds.select(whose, at="start", step=1),
            holds.select(whose, at="end", step=-1),
        ]
    )
    edges = edges.group_by(whose, "at").agg(pl.col("step").sum()).sort(whose, "at")
    edges = edges.with_columns(held=(pl.col("step").cum_sum().over(whose) > 0).cast(pl.Int64))
    turn = edges.with_columns(
        turn=pl.col("held") - pl.col("held").shift(1, fill_value=0).over(whose)
    )
    turn = turn.filter(pl.col("turn") != 0)
    begun = np.sort(turn.filter(pl.col("turn") > 0)["at"].to_numpy())
    done = np.sort(turn.filter(pl.col("turn") < 0)["at"].to_numpy())
    return np.searchsorted(begun, at, side="left") - np.searchsorted(done, at, side="left")

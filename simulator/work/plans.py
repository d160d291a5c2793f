"""Define plans: which behaviour a pod has, with which numbers (`behaviours.csv`, `parameters.csv`).

A parameter that a plan does not name is drawn by the plan's seed between `low` and `high` of its
row (`overrides` of the behaviour first), evenly in the logarithm where low is above zero.
"""

import math
from collections.abc import Iterable
from functools import cache

import msgspec

from fallow.errors import UsageError
from simulator.work.chance import draw_uniform
from simulator.work.distributions import read

Range = tuple[float, float]


class WorkPlan(msgspec.Struct, frozen=True):
    """What a pod does with its devices."""

    behaviour: str
    seed: int
    ranks: int = 1
    """Devices of the whole gang."""
    gpu_model: str = "H100"
    work_s: float | None = None
    """Seconds at full speed until the work is done; None = without end. Training families only."""
    params: dict[str, float] = {}
    first_rank: int = 0
    """Rank of this pod's first device: pods of one gang share seed, start and ranks."""
    pod_ranks: int | None = None
    """Devices of this pod; None = the whole gang is one pod."""
    replay_s: float = 0.0
    """How much of `work_s` was done before and lost: its time is the state `lost`."""

    @property
    def own(self) -> range:
        """The ranks of this pod."""
        count = self.ranks if self.pod_ranks is None else self.pod_ranks
        return range(self.first_rank, self.first_rank + count)


class Behaviour(msgspec.Struct, frozen=True):
    """A row of `behaviours.csv` with all its parameters' ranges."""

    name: str
    family: str
    ranges: dict[str, Range]
    meaning: str


@cache
def read_behaviours() -> dict[str, Behaviour]:
    """Return every behaviour by name."""
    parameters = read("parameters.csv")
    out = {}
    for row in read("behaviours.csv"):
        families = ("all", row["family"])
        ranges = {
            r["parameter"]: (float(r["low"]), float(r["high"]))
            for family in families
            for r in parameters
            if r["family"] == family
        }
        for override in row["overrides"].split():
            name, _, value = override.partition("=")
            low, _, high = value.partition(":")
            ranges[name] = (float(low), float(high or low))
        out[row["behaviour"]] = Behaviour(row["behaviour"], row["family"], ranges, row["meaning"])
    return out


def get_behaviour(plan: WorkPlan) -> Behaviour:
    """Return the behaviour of a plan.

    Raises:
        UsageError: there is no such behaviour, or it has no such parameter.
    """
    by_name = read_behaviours()
    if plan.behaviour not in by_name:
        raise UsageError(
            f"no behaviour called {plan.behaviour!r}", hint=f"there are: {_list_names(by_name)}"
        )
    match = by_name[plan.behaviour]
    for name in plan.params:
        if name not in match.ranges:
            raise UsageError(
                f"behaviour {plan.behaviour!r} has no parameter {name!r}",
                hint=f"there are: {_list_names(match.ranges)}",
            )
    return match


def draw_numbers(plan: WorkPlan) -> dict[str, float]:
    """Return every parameter of a plan: named by it, else drawn by its seed.

    Raises:
        UsageError: there is no such behaviour, or it has no such parameter.
    """
    return {
        name: plan.params.get(name, _draw_between(low, high, plan.seed, name))
        for name, (low, high) in get_behaviour(plan).ranges.items()
    }


def _draw_between(low: float, high: float, seed: int, name: str) -> float:
    if low == high or math.isnan(low) or math.isinf(low):
        return low
    place = draw_uniform(seed, name)
    if low > 0:
        return float(math.exp(math.log(low) + place * math.log(high / low)))
    return low + place * (high - low)


def _list_names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))

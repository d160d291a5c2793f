"""Generate arrivals: which workloads are submitted when, drawn from tables.

The shares of capacity (`mix.csv`) are a choice of this world. Lifetimes are drawn from published
run times (`lives.csv`) by their quantiles, log-linear between them.
"""

from collections.abc import Mapping
from functools import cache

import msgspec
import numpy as np

from fallow.errors import UsageError
from fallow.resources import read_table
from simulator.work.chance import draw_uniform

DAY_S = 86_400.0
LEAST_LIFE_S = 60.0
WORK_HOURS = (9.0, 18.0)
BY_DAY = 4.0
"""How many times more jobs are submitted in a working hour than in another hour."""


class Category(msgspec.Struct, frozen=True):
    """One row of `mix.csv`: `share` of the fleet's GPUs."""

    category: str
    kind: str
    behaviour: str
    share: float
    gpus: int
    """Amount per replica, in units of `resource`."""
    replicas: int
    life: str
    priority: int
    namespace: str
    team: str
    resource: str = "nvidia.com/gpu"
    product: str = ""
    """Node label `nvidia.com/gpu.product` that its pods require; empty = any."""
    weight: float = 1.0
    """GPUs of one unit: an instance by its compute slices, a replica by its share."""
    on_volume: float = 1.0
    """Share of these workloads with their files on a volume; others' are deleted with the pod."""
    annotations: tuple[tuple[str, str], ...] = ()
    """What their owner states in annotations of the pods: names and values."""
    claim: str = ""
    """The volume claim that its pods mount; empty = none."""

    @property
    def size(self) -> float:
        """GPUs of the whole workload."""
        return self.gpus * self.replicas * self.weight


class Arrival(msgspec.Struct, frozen=True):
    """A workload that is submitted at a time, and what it will do (no server shows this)."""

    at_s: float
    category: Category
    name: str
    seed: int
    life_s: float
    """Seconds of work, or until its owner deletes it; infinite = as long as the world exists."""

    @property
    def on_volume(self) -> bool:
        """Whether its files are on a volume: by its own seed, so that nothing else changes."""
        return draw_uniform(self.seed, "volume") < self.category.on_volume


@cache
def read_categories() -> tuple[Category, ...]:
    """Return the rows of `mix.csv`."""
    return tuple(
        msgspec.convert(row, Category, strict=False) for row in read_table("simulator", "mix.csv")
    )


def replace_shares(shares: Mapping[str, float]) -> tuple[Category, ...]:
    """Return the categories with other shares; categories that are not named keep theirs.

    Raises:
        UsageError: a name is no category, or a share is not within 0 and 1.
    """
    by_category = {c.category: c for c in read_categories()}
    for name, share in shares.items():
        if name not in by_category:
            raise UsageError(
                f"there is no kind of work called {name!r}", hint=f"legal: {', '.join(by_category)}"
            )
        if not 0 <= share <= 1:
            raise UsageError(
                f"{name}={share:g} is no share of the fleet", hint="a number from 0 to 1"
            )
        by_category[name] = msgspec.structs.replace(by_category[name], share=share)
    return tuple(by_category.values())


def draw_arrivals(
    mix: tuple[Category, ...], gpus: float, start_s: float, end_s: float, seed: int
) -> list[Arrival]:
    """Return all arrivals in [start, end), oldest first.

    Workloads without end are there from the start, as many as their share needs. The others are
    there at the start in their steady state, and arrive after it as a Poisson process whose rate
    keeps their share of the GPUs allocated (Little's law), four times as often in working hours.
    """
    workloads: list[Arrival] = []
    for number, category in enumerate(mix):
        rng = np.random.default_rng([seed, number])
        standing = category.share * gpus / category.size
        count = int(standing) + int(rng.random() < standing % 1)
        if category.life == "forever":
            lifetimes = [float("inf")] * count
            times = [start_s] * count
        else:
            times, lifetimes = _flow(category.life, standing, start_s, end_s, rng)
        for place, (at_s, life_s) in enumerate(zip(times, lifetimes, strict=True)):
            name = f"{category.category}-{place + 1}"
            workloads.append(Arrival(at_s, category, name, int(rng.integers(2**31)), life_s))
    return sorted(workloads, key=lambda a: (a.at_s, a.name))


def _flow(
    lifetime: str, standing: float, start_s: float, end_s: float, rng: np.random.Generator
) -> tuple[list[float], list[float]]:
    """Return times and lifetimes: the steady state at the start, then the arrivals."""
    mean_s = float(_draw_lifetimes(lifetime, np.random.default_rng(0).random(20_000)).mean())
    # A workload found running has a lifetime in proportion to its length, and a part of it is left.
    many = _draw_lifetimes(lifetime, rng.random(4_000))
    met = rng.choice(many, size=rng.poisson(standing), p=many / many.sum())
    left = np.maximum(met * rng.random(len(met)), LEAST_LIFE_S)
    count_new = rng.poisson(standing * (end_s - start_s) / mean_s)
    times = _draw_times(count_new, start_s, end_s, rng)
    return (
        [start_s] * len(left) + times,
        left.tolist() + _draw_lifetimes(lifetime, rng.random(count_new)).tolist(),
    )


def _draw_times(count: int, start_s: float, end_s: float, rng: np.random.Generator) -> list[float]:
    accepted: list[float] = []
    while len(accepted) < count:
        tried = rng.uniform(start_s, end_s, max(count * 6, 16))
        hour = tried % DAY_S / 3600
        weekday = (tried // DAY_S + 3) % 7 < 5  # noqa: PLR2004  (1970-01-01 was a Thursday)
        working = (hour >= WORK_HOURS[0]) & (hour < WORK_HOURS[1]) & weekday
        come = rng.random(len(tried)) < np.where(working, 1.0, 1 / BY_DAY)
        accepted += np.floor(tried[come]).tolist()
    return sorted(accepted[:count])


def _draw_lifetimes(
    lifetime: str, u: "np.ndarray[tuple[int], np.dtype[np.float64]]"
) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    quantiles, seconds = _draw_all_lifetimes()[lifetime]
    lifetimes = np.exp(np.interp(u, quantiles, np.log(seconds)))
    return np.maximum(lifetimes, LEAST_LIFE_S)


@cache
def _draw_all_lifetimes() -> dict[str, tuple[list[float], list[float]]]:
    by_life: dict[str, tuple[list[float], list[float]]] = {}
    for row in read_table("simulator", "lives.csv"):
        quantiles, seconds = by_life.setdefault(row["life"], ([], []))
        quantiles.append(float(row["quantile"]))
        seconds.append(float(row["seconds"]))
    return by_life

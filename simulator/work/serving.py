"""Simulate serving: ON and OFF runs as measured on real serving pods, thinned by the hour."""

import math
from functools import cache

import numpy as np
import numpy.typing as npt

from simulator.work.chance import Array, build_generator, draw_uniform
from simulator.work.distributions import compute_mean, compute_quantile, compute_value, read_hours
from simulator.work.timeline import Phases, Source, follow_until

Numbers = dict[str, float]

DAY_S = 86_400.0
MOST_LEVEL = 0.95
MOST_SHARE = 0.97
BURST_LEVEL = (0.02, 0.12)
"""Engine-busy level of requests shorter than a scrape."""


def compute_base_share() -> float:
    """Return the share of time that a pod is ON in the busiest hour; other hours are thinned.

    Thinning puts whole ON runs off, so that OFF runs are as long as measured where the share is.
    """
    return float(read_hours().max())


def compute_off_scale(share: float) -> float:
    """Return the factor on OFF runs with which a pod is ON for a share of the time."""
    return (1 / share - 1) * compute_mean("on_s") / compute_mean("off_s")


def keep(local_hour: Array, *, diurnal: bool, steady: bool = False) -> Array:
    """Return the chance of a run in busy hours to happen at an hour of the day."""
    if steady:
        return np.ones(len(local_hour))
    if not diurnal:
        return np.full(len(local_hour), read_hours().mean() / compute_base_share())
    whole = read_hours() / compute_base_share()
    return whole[np.floor(local_hour).astype(np.intp) % 24]


@cache
def compute_natural_share(*, diurnal: bool, steady: bool) -> float:
    """Return the share of a whole day that a pod is ON."""
    chances = keep(np.arange(24.0), diurnal=diurnal, steady=steady)
    return float(chances.mean() * compute_base_share())


class Rhythm:
    """How often and how strongly a pod serves, so that its mean over days is as wanted."""

    def __init__(self, seed: int, numbers: Numbers) -> None:
        self.diurnal, self.steady = bool(numbers["diurnal"]), bool(numbers["steady"])
        place = draw_uniform(seed, "level")
        if numbers["burst"]:
            low, high = BURST_LEVEL
            self.level = low + (high - low) * place
        else:
            self.level = compute_value("on_level", place)
        natural = compute_natural_share(diurnal=self.diurnal, steady=self.steady)
        self.chance, self.off_scale = 1.0, compute_off_scale(compute_base_share())
        wanted = numbers["mean"]
        if math.isnan(wanted):
            return
        if wanted > self.level * natural:
            self.level = min(MOST_LEVEL, wanted / natural)
        share = wanted / self.level
        self.chance = min(1.0, share / natural)
        if share > natural:
            self.off_scale = compute_off_scale(
                min(MOST_SHARE, compute_base_share() * share / natural)
            )


def run_serving(seed: int, numbers: Numbers, start_s: float) -> Source:
    """Yield a server's phases: start, then runs of requests until they are forgotten."""
    begin = numbers["pull_s"] + numbers["load_s"]
    forgets = math.isfinite(numbers["forget_after_s"])
    if forgets and not numbers["forget_after_s"]:
        return follow_until(_run_server(seed, numbers, start_s), begin, "idle")
    source = _run_server(seed, numbers, start_s)
    if math.isfinite(numbers["wedge_after_s"]):
        source = follow_until(source, begin + numbers["wedge_after_s"], "spin", 1.0)
    return follow_until(source, begin + numbers["forget_after_s"], "idle") if forgets else source


def _run_server(seed: int, numbers: Numbers, start_s: float) -> Source:
    head = [numbers["pull_s"], numbers["load_s"]]
    yield Phases.of(["pull", "load"], head)
    rhythm = Rhythm(seed, numbers)
    name = "burst" if numbers["burst"] else "serve"
    now = start_s + sum(head)
    while True:
        midnight = math.floor((now / 3600 + numbers["tz_h"]) / 24) * DAY_S - numbers["tz_h"] * 3600
        rng = build_generator(seed, "served", int(midnight // DAY_S))
        on, off = draw_runs(rng, midnight + DAY_S - now, rhythm.off_scale)
        begins = now + np.cumsum(off + on) - on
        hour = (begins / 3600 + numbers["tz_h"]) % 24
        chances = keep(hour, diurnal=rhythm.diurnal, steady=rhythm.steady) * rhythm.chance
        is_kept = rng.random(len(on)) < chances
        edges = np.stack([begins[is_kept], begins[is_kept] + on[is_kept]], axis=1).ravel()
        bounds = np.clip([now, *edges, midnight + DAY_S], now, midnight + DAY_S)
        yield _build_phases(bounds, name, rhythm.level, numbers["rps"])
        now = midnight + DAY_S


def draw_runs(rng: np.random.Generator, seconds: float, scale: float) -> tuple[Array, Array]:
    """Return ON and OFF runs (s) that fill some seconds and more."""
    cycle = compute_mean("on_s") + scale * compute_mean("off_s")
    count = int(seconds / cycle * 1.6) + 24
    on, off = (compute_quantile(law, rng.random(count)) for law in ("on_s", "off_s"))
    return on, off * scale


def _build_phases(bounds: Array, name: str, level: float, rps: float) -> Phases:
    """Return phases between the bounds, OFF first."""
    length = np.diff(bounds)
    serves: npt.NDArray[np.bool_] = np.arange(len(length)) % 2 == 1
    names = [name if active else "idle" for active in serves.tolist()]
    return Phases.of(names, length, np.where(serves, level, 0), np.where(serves, rps, 0))

"""Draw a population of pods whose mean utilisation follows PAI's distribution (`mix.csv`).

A pod's quantile in the distribution gives its mean; the mean gives the possible behaviours and, if
the behaviour can be tuned, its levels. Which behaviours occur in which band, and how often, is an
estimate: the distribution shows how busy pods are, not why.
"""

from functools import cache

from simulator.work.chance import draw_uniform
from simulator.work.distributions import get_pai_mean, read
from simulator.work.plans import WorkPlan

UNTUNED = (
    "abandoned notebook",
    "open-tab notebook",
    "forgotten serving",
    "terminal notebook",
    "night batch",
)
"""Behaviours whose level cannot be tuned: their time at work decides the mean."""


def draw(seed: int, ranks: int = 1, gpu_model: str = "H100") -> WorkPlan:
    """Return the plan that a seed gives to a pod of the population."""
    wanted = get_pai_mean(draw_uniform(seed, "pai"))
    names, places = _parse_choices(wanted)
    place = draw_uniform(seed, "behaviour")
    name = next(n for n, upto in zip(names, places, strict=True) if place < upto)
    tuned = wanted > 0 and name not in UNTUNED
    return WorkPlan(name, seed, ranks, gpu_model, params={"mean": wanted} if tuned else {})


def _parse_choices(wanted: float) -> tuple[tuple[str, ...], tuple[float, ...]]:
    rows = [
        (name, weight)
        for low, high, name, weight in _parse_bands()
        if low < wanted <= high or low == high == wanted
    ]
    total, upto = sum(weight for _, weight in rows), 0.0
    places = []
    for _, weight in rows:
        upto += weight / total
        places.append(upto)
    return tuple(name for name, _ in rows), (*places[:-1], 1.0)


@cache
def _parse_bands() -> tuple[tuple[float, float, str, float], ...]:
    return tuple(
        (float(r["from_util"]), float(r["to_util"]), r["behaviour"], float(r["weight"]))
        for r in read("mix.csv")
    )

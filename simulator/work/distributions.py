"""Read published distributions as tables of quantiles, and draw from them.

    acme.csv           working A100s of Acme's Seren and Kalos (NSDI'24), more than 5 % busy:
                       sm_active, tensor_active, gpu_util, memory as ratios
    gentd26.csv        Alibaba GenAI serving pods 2026: ON and OFF runs begun in busy hours (s),
                       a pod's mean duty cycle while ON, and a tick's over that mean
    gentd26_hours.csv  share of those pods that are ON, by hour of the local day

`tools/fit.py` fits them.
"""

from functools import cache

import numpy as np

from fallow.resources import read_table
from simulator.work.chance import Array

FITTED = ("acme.csv", "gentd26.csv")


def read(name: str) -> list[dict[str, str]]:
    """Return the rows of one of this folder's tables."""
    return read_table("simulator.work", name)


@cache
def _read_quantiles() -> dict[str, tuple[Array, Array]]:
    points: dict[str, list[tuple[float, float]]] = {}
    for name in FITTED:
        for row in read(name):
            points.setdefault(row["law"], []).append((float(row["p"]), float(row["value"])))
    return {law: (np.array(p).T[0], np.array(p).T[1]) for law, p in points.items()}


def compute_quantile(law: str, p: Array) -> Array:
    """Return the law's values at `p` (0-1).

    Raises:
        KeyError: no such law.
    """
    at, values = _read_quantiles()[law]
    return np.interp(p, at, values)


def compute_value(law: str, p: float) -> float:
    """Return the law's value at one place `p` (0-1)."""
    at, values = _read_quantiles()[law]
    return float(np.interp(p, at, values))


@cache
def compute_mean(law: str) -> float:
    """Return the law's mean."""
    at, values = _read_quantiles()[law]
    return float(np.trapezoid(values, at))


def read_hours() -> Array:
    """Return the share of serving pods that are ON, by hour of the local day."""
    return np.array([float(row["on_share"]) for row in read("gentd26_hours.csv")])

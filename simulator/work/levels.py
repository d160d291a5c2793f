"""Compute service levels and speed: a server's latencies, a job's throughput and memory.

They are drawn under their own names, so that nothing else of a script changes. Latencies are
lognormal with the pod's own median and one spread for all; buckets are vLLM's. A job's throughput
per GPU decreases with the logarithm of its size:

    tokens/s = N x PER_GPU x speed / (1 + LOST x log2 N)
"""

import math
from collections.abc import Mapping

import msgspec
import numpy as np

from simulator.models import Histogram, TrainingMetrics
from simulator.work.behaviours import Script
from simulator.work.chance import Array, draw_uniform
from simulator.work.kinds import mark_kinds

MIB = 2**20


class Law(msgspec.Struct, frozen=True):
    """A lognormal latency: medians lie between these (s); so many observations per request."""

    low_s: float
    high_s: float
    per_request: float
    bounds: tuple[float, ...]


SPREAD = 0.6
LAWS: Mapping[str, Law] = {
    "e2e": Law(
        0.4,
        8.0,
        1.0,
        (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    ),
    "ttft": Law(
        0.05,
        0.6,
        1.0,
        (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10),
    ),
    "itl": Law(
        0.015, 0.08, 200.0, (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5)
    ),
}
PER_GPU = 9_000.0
LOST = 0.12
"""Loss of throughput per GPU at each doubling: an estimate; 16 GPUs do the work of 11."""
STEP_S = 10.0
IN_TENSORS = (0.5, 0.98)
"""Share of the memory reserved that is allocated, by job; most are near the upper end."""


def count_latencies(script: Script, ticks: Array, metric: str) -> tuple[Array, Array] | None:
    """Return cumulative counts [bound and infinity, tick] and their sum (s); None = no server."""
    served = script.requests_total(ticks)
    if served is None:
        return None
    law = LAWS[metric]
    place = draw_uniform(script.plan.seed, metric)
    median = law.low_s * (law.high_s / law.low_s) ** place
    share = _compute_normal_cdf(np.log(np.array(law.bounds) / median) / SPREAD)
    whole = np.floor(served * law.per_request)
    counts = np.floor(np.append(share, 1.0)[:, None] * whole)
    return counts, whole * median * math.exp(SPREAD**2 / 2)


def _compute_normal_cdf(values: Array) -> Array:
    # scipy.special has it too, and takes 0.2 s to import.
    return np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in values.tolist()])


def build_histograms(script: Script, at_s: float) -> tuple[Histogram, ...]:
    """Return a server's histograms at a moment (epoch s); none = it serves nothing."""
    tick = np.array([at_s])
    histograms = []
    for metric, law in LAWS.items():
        cumulative = count_latencies(script, tick, metric)
        if cumulative is not None:
            counts = tuple(cumulative[0][:, 0].tolist())
            histograms.append(Histogram(metric, law.bounds, counts, float(cumulative[1][0])))
    return tuple(histograms)


def compute_throughput(script: Script, ticks: Array) -> Array | None:
    """Return the tokens per second of the whole job, NaN before its first step; None = no job.

    A trainer's gauge keeps its last value while a checkpoint is written.
    """
    if script.family != "training":
        return None
    plan = script.plan
    place = script.timeline.at(ticks)
    kind, speed = script.timeline.kind[place], script.timeline.speed[place]
    at_work = script.numbers["straggle"]
    pace = np.where(speed > 0, speed, at_work)
    silent = mark_kinds(("pull", "rendezvous", "load", "cpu", "bare"))[kind]
    stopped = mark_kinds(("spin", "idle", "done"))[kind]
    whole = plan.ranks * PER_GPU / (1 + LOST * math.log2(plan.ranks))
    return np.where(silent, np.nan, np.where(stopped, 0.0, whole * pace))


def compute_memory(script: Script, ticks: Array) -> tuple[Array, Array]:
    """Return the bytes in tensors and reserved of all devices of a pod."""
    low, high = IN_TENSORS
    share = low + (high - low) * draw_uniform(script.plan.seed, "in tensors") ** 0.4
    reserved = script.memory_mib(ticks, script.plan.first_rank) * MIB * len(script.plan.own)
    return np.rint(share * reserved), np.rint(reserved)


def count_steps(script: Script, ticks: Array) -> Array:
    """Return a job's steps so far: one for each `STEP_S` of work at full speed."""
    return np.floor(script.timeline.progress_at(ticks) / STEP_S)


def compute_pace(script: Script, at_s: float) -> TrainingMetrics | None:
    """Return the metrics of a training loop at a time; None = it does not train yet."""
    tick = np.array([at_s])
    tokens = compute_throughput(script, tick)
    if tokens is None or np.isnan(tokens[0]):
        return None
    allocated, reserved = compute_memory(script, tick)
    return TrainingMetrics(
        tokens_per_s=float(tokens[0]) if script.plan.first_rank == 0 else None,
        allocated_bytes=float(allocated[0]),
        reserved_bytes=float(reserved[0]),
        steps=float(count_steps(script, tick)[0]) if script.plan.first_rank == 0 else None,
    )

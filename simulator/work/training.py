"""Simulate training, batch and night work: computing stretches with checkpoints in between."""

import math

import numpy as np

from simulator.work.chance import build_generator, draw_uniform
from simulator.work.distributions import compute_value
from simulator.work.timeline import Phases, Source, follow_until, follow_until_done

Numbers = dict[str, float]

CYCLES = 32
"""Stretches between checkpoints that are built at a time."""
DAY_S = 86_400.0
MOST = 0.995
"""No engine is busy for longer than this share of a stretch."""
INPUT_LEVEL = (0.2, 0.45)
"""Engine-busy level while waiting for the data loader.

Source: telemetry-and-waste.md#signals, input-bound.
"""
OFFLOAD_LEVEL = 0.17
"""A recorded FSDP job on H100s: utilisation 0 in 83 % of the readings, 166 to 190 W on average."""
WAITS = ("host save", "evaluate", "cpu")
"""Kinds of what the first rank, or every host, does after a checkpoint while the others wait."""
NIGHT_LEVEL = (0.55, 0.85)


def draw_busy_level(numbers: Numbers, seed: int) -> float:
    """Return the engine-busy level of computing stretches: Acme's law, or by the wanted mean."""
    wanted = numbers["mean"]
    if math.isnan(wanted):
        return min(MOST, compute_value("gpu_util", draw_uniform(seed, "busy")))
    starved = numbers["input_share"]
    if starved == 1:
        return MOST
    steady = wanted / _compute_level(numbers) - starved * sum(INPUT_LEVEL) / 2
    return min(MOST, steady / (1 - starved))


def run_training(seed: int, numbers: Numbers, work_s: float | None) -> Source:
    """Yield a job's phases: start, stretches and checkpoints, then done, kept or hung."""
    source = _run_job(seed, numbers)
    if not math.isinf(numbers["hang_after_s"]):
        hangs = ("spin", 1.0) if numbers["spin"] else ("idle", 0.0)
        source = follow_until(source, numbers["hang_after_s"], *hangs)
    if work_s is not None:
        source = follow_until_done(source, work_s, "idle" if numbers["kept"] else "done")
    return source


def run_night_job(seed: int, numbers: Numbers, start_s: float) -> Source:
    """Yield a pod that computes for some hours every night and holds its devices all day."""
    low, high = NIGHT_LEVEL
    level = low + (high - low) * draw_uniform(seed, "busy")
    head = [numbers["pull_s"], numbers["load_s"]]
    yield Phases.of(["pull", "load"], head)
    now = start_s + sum(head)
    while True:
        midnight = math.floor((now / 3600 + numbers["tz_h"]) / 24) * DAY_S - numbers["tz_h"] * 3600
        jitter = build_generator(seed, "night", int(midnight // DAY_S)).uniform(-600, 600, 2)
        begin = midnight + numbers["from_hour"] * 3600 + float(jitter[0])
        end = begin + numbers["hours"] * 3600 + float(jitter[1])
        edges = np.clip([begin, end, midnight + DAY_S], now, None)
        yield Phases.of(
            ["idle", "compute", "idle"], np.diff(edges, prepend=now), [0, level, 0], [0, 1, 0]
        )
        now = midnight + DAY_S


def _run_job(seed: int, numbers: Numbers) -> Source:
    yield Phases.of(
        ["pull", "rendezvous", "load", "cpu"],
        [numbers[name] for name in ("pull_s", "rendezvous_s", "load_s", "cpu_first_s")],
    )
    level, pace = draw_busy_level(numbers, seed), numbers["straggle"]
    level = OFFLOAD_LEVEL if numbers["offload"] else level
    endless = math.isinf(numbers["checkpoint_every_s"])
    every = DAY_S if endless else numbers["checkpoint_every_s"]
    saving = 0.0 if endless else numbers["checkpoint_s"]
    waiting = 0.0 if endless else numbers["wait_s"]
    wanted = numbers["mean"]
    always_starved = numbers["input_share"] == 1
    low, high = (wanted,) * 2 if always_starved and not math.isnan(wanted) else INPUT_LEVEL
    modes = {"fp32": "fp32 compute", "talk": "talk", "offload": "offload"}
    computes = next((kind for name, kind in modes.items() if numbers[name]), "compute")
    # Phases in which a gang waits for good reason: they resemble a hang.
    waits = ("host_save_s", "evaluate_s", "prepare_s")
    piece = 0
    while True:
        rng = build_generator(seed, "cycles", piece)
        starved = rng.random(CYCLES) < numbers["input_share"]
        names = [
            name
            for slow in starved
            for name in ("input" if slow else computes, "checkpoint", "wait", *WAITS)
        ]
        length = np.stack(
            [
                every * rng.uniform(0.95, 1.05, CYCLES),
                saving * rng.uniform(0.8, 1.25, CYCLES),
                waiting * rng.uniform(0.5, 1.5, CYCLES),
                *(np.full(CYCLES, numbers[name]) for name in waits),
            ],
            axis=1,
        )
        slow_level = np.minimum(rng.uniform(low, high, CYCLES), MOST)
        levels = np.zeros((CYCLES, 3 + len(waits)))
        levels[:, 0] = np.where(starved, slow_level, level)
        levels[:, 1] = 0.1
        levels[:, 3:] = 1.0
        speeds = np.zeros((CYCLES, 3 + len(waits)))
        speeds[:, 0] = np.where(starved, numbers["input_speed"], 1.0) * pace
        yield Phases.of(names, length.ravel(), levels.ravel(), speeds.ravel())
        piece += 1


def _compute_level(numbers: Numbers) -> float:
    every = numbers["checkpoint_every_s"]
    if math.isinf(every):
        return 1.0
    return every / (every + numbers["checkpoint_s"] + numbers["wait_s"])

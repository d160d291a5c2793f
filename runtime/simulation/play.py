"""Run the world twice, without enforcement and with it, and say what each came to."""

import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from fallow.window import Window
from runtime import pipeline
from runtime.accuracy.watching import isolated
from runtime.importing import price_rows
from runtime.showing import Progress
from runtime.simulation.enforcing import Applied, Enforcer
from runtime.simulation.options import Options
from runtime.simulation.tally import HOUR_S, Measures, Tally, document, measures
from simulator.nouns import STATES
from simulator.world import Stop, World

STEP_S = 6 * 3600.0
REGRET_S = 1800.0
"""Who starts it again within so long regrets the stop."""


class Enforced(msgspec.Struct, frozen=True):
    """What enforcement did, against the truth."""

    actions: int
    precision: float
    recall: float
    harm: dict[str, float]
    predicted_usd: float
    realised_usd: float
    released_gpu_hours: float


def simulate(options: Options, progress: Progress) -> dict[str, Any]:
    """Return the document of `fallow simulate` (docs/simulator.md)."""
    baseline, tally = _without(options, progress)
    world = World(options.spec, options.seed)
    enforced = Tally(world.devices)

    def now() -> datetime:
        return datetime.fromtimestamp(world.now_s, UTC)

    from warehouse.lake import Warehouse  # noqa: PLC0415  (the engine loads in 0.3 s)
    from warehouse.pricing import device_rates  # noqa: PLC0415

    end = datetime.fromtimestamp(options.end_s, UTC)
    with tempfile.TemporaryDirectory(prefix="fallow-simulate-") as folder:
        settings = isolated(Path(folder), threads=1)
        with Warehouse.open(settings, write=True, clock=now) as warehouse:
            pipeline.price(warehouse, price_rows(settings, end))
            enforcer = Enforcer(
                warehouse, world, options.quirks, settings.idle, look_s=options.look_s
            )
            while world.now_s < options.end_s:
                enforced.add(enforcer.turn(min(world.now_s + options.every_s, options.end_s)))
                progress("with enforcement", 0.2 + 0.8 * _part(world, options))
            window = Window(datetime.fromtimestamp(options.spec.start_s, UTC), end)
            rows = device_rates(warehouse, window).to_pylist()
    rates = {r["device"]: float(r["loaded_usd_h"]) for r in rows if r["loaded_usd_h"] is not None}
    did = _measured(world, enforcer.applied, enforced)
    return {
        "seed": options.seed,
        "days": options.days,
        "gpus": options.gpus,
        "start": window.start,
        "end": window.end,
        "baseline": document(measures(baseline, tally, rates)),
        "enforced": {
            **document(measures(world, enforced, rates)),
            "enforcer": msgspec.to_builtins(did),
        },
    }


def _without(options: Options, progress: Progress) -> tuple[World, Tally]:
    world = World(options.spec, options.seed)
    tally = Tally(world.devices)
    while world.now_s < options.end_s:
        tally.add(world.advance(min(world.now_s + STEP_S, options.end_s)))
        progress("without enforcement", 0.2 * _part(world, options))
    return world, tally


def _part(world: World, options: Options) -> float:
    return (world.now_s - options.spec.start_s) / (options.end_s - options.spec.start_s)


def _measured(world: World, applied: Sequence[Applied], tally: Tally) -> Enforced:
    """Lay what was done over the truth.

    Released are the GPU-hours from a stop until its owner started it again, would have taken it
    away, or the end: truly idle ones where the stop was right.
    """
    end_s = world.now_s
    done = {(stop.key, stop.at_s): stop for stop in world.stops}
    predicted = realised = released = idle = 0.0
    for one in applied:
        stop = done.get((one.key, one.at_s))
        if stop is None:  # the last moment's, which the world has not seen
            continue
        hours = (_until(world, stop, end_s) - stop.at_s) / HOUR_S
        rate = float(one.finding.usd or 0) / one.finding.gpu_hours
        predicted += rate * stop.gpus * (end_s - stop.at_s) / HOUR_S
        realised += rate * stop.gpus * hours
        released += stop.gpus * hours
        idle += stop.gpus * hours if _right(stop) else 0.0
    right = sum(_right(stop) for stop in world.stops)
    remaining = tally.hours("idle")
    return Enforced(
        actions=len(world.stops),
        precision=round(right / len(world.stops), 5) if world.stops else 1.0,
        recall=round(idle / (idle + remaining), 5) if idle + remaining else 1.0,
        harm={
            "harmful_stops": sum(stop.hurt for stop in world.stops),
            "lost_gpu_hours": round(sum(s.lost_gpu_s for s in world.stops) / HOUR_S, 3),
            "regretted_stops": sum(_regretted(stop) for stop in world.stops),
        },
        predicted_usd=round(predicted, 2),
        realised_usd=round(realised, 2),
        released_gpu_hours=round(released, 3),
    )


def _right(stop: Stop) -> bool:
    return stop.idle and not stop.hurt


def _regretted(stop: Stop) -> bool:
    return stop.back_s is not None and stop.back_s - stop.at_s < REGRET_S


def _until(world: World, stop: Stop, end_s: float) -> float:
    """Return until when a stopped workload would have held its devices for nothing."""
    role = world.cast.roles[stop.key]
    leaves = end_s if role.since_s is None else role.since_s + role.arrival.life_s
    back = end_s if stop.back_s is None else stop.back_s
    return max(min(back, leaves, end_s), stop.at_s)


def table(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the document as rows for eyes: a measure, without and with enforcement."""
    before, after = found["baseline"], found["enforced"]
    names = [n for n in Measures.__struct_fields__ if n != "states"]
    rows = [_row(name, before[name], after[name]) for name in names]
    rows += [
        _row(f"{state} GPU-hours", before["states"][state], after["states"][state])
        for state in STATES
    ]
    for name, value in after["enforcer"].items():
        parts = value.items() if isinstance(value, dict) else ((name, value),)
        rows += [_row(part, None, number) for part, number in parts]
    return rows


def _row(what: str, before: Any, after: Any) -> dict[str, Any]:
    return {"measure": what.replace("_", " "), "without": before, "with": after}

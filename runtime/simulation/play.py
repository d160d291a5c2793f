"""Run the world twice, without enforcement and with it, and say what each came to."""

import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from fallow.window import Window
from runtime import pipeline
from runtime.accuracy.watching import isolated
from runtime.importing import price_rows
from runtime.showing import Progress
from runtime.simulation.enforcing import OWN, Enforcer
from runtime.simulation.options import Options
from runtime.simulation.tally import HOUR_S, Measures, Tally, document, measures
from simulator.nouns import STATES
from simulator.world import Stop, World

if TYPE_CHECKING:
    from actions.policy.model import Policy

STEP_S = 6 * 3600.0
REGRET_S = 1800.0
"""Who starts it again within so long regrets the stop."""


class Enforced(msgspec.Struct, frozen=True):
    """What enforcement did: by the world's truth, and by its own books."""

    policies: tuple[str, ...]
    actions: int
    precision: float
    recall: float
    harm: dict[str, float]
    predicted_gpu_hours: float
    """By the books: what past stretches let expect."""
    saved_gpu_hours: float
    """By the books: what its devices did afterwards, the restart taken off."""
    saved_usd: dict[str, float]
    """The same in dollars, by kind."""
    true_gpu_hours: float
    """By the truth: until its owner would have had it back, or taken it away."""
    refused: int
    taken_back: int
    open: int
    freezes: int


def simulate(
    options: Options, progress: Progress, policies: "Sequence[Policy] | None" = None
) -> dict[str, Any]:
    """Return the document of `fallow simulate` (docs/simulator.md); no policies = its own."""
    from actions.policy.reading import read  # noqa: PLC0415

    policies = policies if policies is not None else read([OWN])
    baseline, tally = _without(options, progress)
    world = World(options.spec, options.seed)
    enforced = Tally(world.devices)

    def now() -> datetime:
        return datetime.fromtimestamp(world.now_s, UTC)

    from warehouse.lake import Warehouse  # noqa: PLC0415  (the engine loads in 0.3 s)

    end = datetime.fromtimestamp(options.end_s, UTC)
    window = Window(datetime.fromtimestamp(options.spec.start_s, UTC), end)
    with tempfile.TemporaryDirectory(prefix="fallow-simulate-") as folder:
        settings = isolated(Path(folder), threads=1)
        with (
            Warehouse.open(settings, write=True, clock=now) as warehouse,
            Enforcer(
                warehouse,
                world,
                options.quirks,
                settings,
                policies,
                look_s=options.look_s,
                warm_up_s=options.warm_up_s,
            ) as enforcer,
        ):
            pipeline.price(warehouse, price_rows(settings, end))
            while world.now_s < options.end_s:
                # A fresh look may have moved the world on since the last turn.
                turns = (world.now_s - options.spec.start_s) // options.every_s + 1
                until_s = options.spec.start_s + turns * options.every_s
                for block in enforcer.turn(min(until_s, options.end_s), options.end_s):
                    enforced.add(block)
                progress("with enforcement", 0.2 + 0.75 * _part(world, options))
            did, rates = _measured(world, enforcer, enforced, window)
            progress("its books", 1.0)
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


def _measured(
    world: World, enforcer: Enforcer, tally: Tally, window: Window
) -> tuple[Enforced, dict[str, float]]:
    """Lay what was done over the truth, and beside it what the books say was saved.

    True are the GPU-hours from a stop until its owner started it again, would have taken it away,
    or the end.
    """
    from actions.savings.measuring import measure  # noqa: PLC0415
    from actions.savings.standing import acted_of  # noqa: PLC0415
    from warehouse.pricing import device_rates  # noqa: PLC0415

    pipeline.account(enforcer.warehouse, window)
    end_s, now = world.now_s, enforcer.now()
    record = enforcer.record.catch_up()
    acted = acted_of(record)
    prices = device_rates(enforcer.warehouse, Window(window.start, now)).to_pylist()
    entries = measure(enforcer.warehouse, acted, prices, now)
    true = sum(s.gpus * (_until(world, s, end_s) - s.at_s) for s in world.stops) / HOUR_S
    idle = sum(
        s.gpus * (_until(world, s, end_s) - s.at_s) / HOUR_S for s in world.stops if _right(s)
    )
    usd: dict[str, float] = {}
    for entry in entries:
        usd[entry.kind] = round(usd.get(entry.kind, 0.0) + float(entry.usd or 0), 2)
    right, remaining = sum(_right(stop) for stop in world.stops), tally.hours("idle")
    told = list(record.actions.values())
    did = Enforced(
        policies=tuple(p.name for p in enforcer.policies),
        actions=len(world.stops),
        precision=round(right / len(world.stops), 5) if world.stops else 1.0,
        recall=round(idle / (idle + remaining), 5) if idle + remaining else 1.0,
        harm={
            "harmful_stops": sum(stop.hurt for stop in world.stops),
            "lost_gpu_hours": round(sum(s.lost_gpu_s for s in world.stops) / HOUR_S, 3),
            "regretted_stops": sum(_regretted(stop) for stop in world.stops),
        },
        predicted_gpu_hours=round(sum(e.predicted_gpu_hours for e in entries), 3),
        saved_gpu_hours=round(sum(e.gpu_hours for e in entries), 3),
        saved_usd=dict(sorted(usd.items())),
        true_gpu_hours=round(true, 3),
        refused=sum(not t.touched for t in told),
        taken_back=sum(t.restored is not None for t in told),
        open=sum(t.is_open for t in told),
        freezes=enforcer.freezes,
    )
    rates = {r["device"]: float(r["loaded_usd_h"]) for r in prices if r["loaded_usd_h"] is not None}
    return did, rates


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

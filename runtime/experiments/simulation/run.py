"""Run the world twice, without and with enforcement, and return the measures of both."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import msgspec

from actions.policy.parser import read_policies
from fallow.system.garbage import collect_garbage_rarely
from fallow.system.process_folders import open_temporary_folder
from fallow.window import Window
from runtime.experiments.simulation.enforcer import OWN_POLICIES, Enforcer
from runtime.experiments.simulation.idle_times import IdleTime, Observer
from runtime.experiments.simulation.measurement import measure_enforcement
from runtime.experiments.simulation.options import Options
from runtime.experiments.simulation.tally import (
    Tally,
    WorldMeasures,
    WorldSums,
    document,
    measure_world,
)
from runtime.experiments.world_inventory import isolate_settings
from runtime.operations.accounting import pipeline
from runtime.operations.accounting.prices import read_configured_rates
from runtime.rendering.finding_tables import Progress
from simulator.models import STATES
from simulator.supply import fit_mix
from simulator.world import World
from warehouse.lake import Warehouse

if TYPE_CHECKING:
    from actions.policy.model import Policy

STEP_S = 6 * 3600.0


MOST_GPU_DAYS_INLINE = 1000
"""The world without enforcement of a larger simulation runs beside the other one, in a process."""


class UnenforcedWorld(msgspec.Struct, frozen=True):
    """The world without enforcement."""

    sums: WorldSums
    idle_times: list[IdleTime]


def simulate(
    options: Options,
    progress: Progress,
    policies: "Sequence[Policy] | None" = None,
    *,
    in_one_process: bool = False,
) -> dict[str, Any]:
    """Return the document of `fallow simulate` (docs/simulator.md); no policies = its own."""
    policies = policies if policies is not None else read_policies([OWN_POLICIES])
    with (
        collect_garbage_rarely(),
        _begin_unenforced(options, progress, in_one_process=in_one_process) as lived,
    ):
        return _compare_worlds(options, progress, policies, lived)


def _compare_worlds(
    options: Options,
    progress: Progress,
    policies: "Sequence[Policy]",
    lived: "Future[UnenforcedWorld]",
) -> dict[str, Any]:
    world = World(options.spec, options.seed)
    enforced = Tally(world.devices)

    def now() -> datetime:
        return datetime.fromtimestamp(world.now_s, UTC)

    end = datetime.fromtimestamp(options.end_s, UTC)
    window = Window(datetime.fromtimestamp(options.spec.start_s, UTC), end)
    with open_temporary_folder("simulate") as folder:
        settings = isolate_settings(folder, threads=1)
        with (
            Warehouse.open_in_memory(settings, clock=now) as warehouse,
            Enforcer(
                warehouse,
                world,
                options.quirks,
                settings,
                policies,
                sample_every_s=options.sample_every_s,
                warm_up_s=options.warm_up_s,
            ) as enforcer,
        ):
            pipeline.price(warehouse, read_configured_rates(settings, end))
            while world.now_s < options.end_s:
                # A fresh evaluation may have advanced the world since the last turn.
                turns = (world.now_s - options.spec.start_s) // options.every_s + 1
                until_s = options.spec.start_s + turns * options.every_s
                for block in enforcer.turn(min(until_s, options.end_s), options.end_s):
                    enforced.add(block)
                progress("with enforcement", 0.2 + 0.75 * _compute_part(world, options))
            enforcer.actor.settle()  # the actions of its last turn end like the others
            result, rates = measure_enforcement(
                enforcer, enforced, window, options, lived.result().idle_times
            )
            progress("its ledger", 1.0)
    return {
        "seed": options.seed,
        "days": options.days,
        "gpus": options.gpus,
        "start": window.start,
        "end": window.end,
        "mix": {c.category: c.share for c in fit_mix(options.spec.mix, options.spec.nodes)},
        "baseline": document(lived.result().sums.price(rates)),
        "enforced": {
            **document(measure_world(world, enforced).price(rates)),
            "enforcer": msgspec.to_builtins(result),
        },
    }


@contextmanager
def _begin_unenforced(
    options: Options, progress: Progress, *, in_one_process: bool
) -> "Iterator[Future[UnenforcedWorld]]":
    """Yield the world without enforcement: of a large one, while it still runs."""
    if in_one_process or options.days * options.gpus <= MOST_GPU_DAYS_INLINE:
        finished: Future[UnenforcedWorld] = Future()
        finished.set_result(run_unenforced(options, progress))
        yield finished
        return
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        yield pool.submit(run_unenforced, options, show_nothing)


def show_nothing(_step: str, _part: float) -> None:
    """Show no progress: that of another world is shown, or none."""


def run_unenforced(options: Options, progress: Progress) -> UnenforcedWorld:
    """Run the world without any action in it."""
    with collect_garbage_rarely():  # this may be a process of its own
        world = World(options.spec, options.seed)
        tally, observer = Tally(world.devices), Observer(world)
        while world.now_s < options.end_s:
            tally.add(world.advance(min(world.now_s + STEP_S, options.end_s)))
            observer.see()
            progress("without enforcement", 0.2 * _compute_part(world, options))
        return UnenforcedWorld(measure_world(world, tally), observer.idle_times())


def _compute_part(world: World, options: Options) -> float:
    return (world.now_s - options.spec.start_s) / (options.end_s - options.spec.start_s)


def measure_worlds(bodies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return documents as table rows; of several worlds, each row has its seed."""
    if len(bodies) == 1:
        return measure_rows(bodies[0])
    return [{"seed": body["seed"], **row} for body in bodies for row in measure_rows(body)]


def measure_rows(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the document as table rows: a measure, without and with enforcement."""
    before, after = body["baseline"], body["enforced"]
    names = [n for n in WorldMeasures.__struct_fields__ if n != "states"]
    rows = [_build_row(name, before[name], after[name]) for name in names]
    rows += [
        _build_row(f"{state} GPU-hours", before["states"][state], after["states"][state])
        for state in STATES
    ]
    result = after["enforcer"]
    for name, value in {**result, "early_returns": result["early_returns"]["*"]}.items():
        if name == "stops":
            continue  # the document has them one by one
        parts = value.items() if isinstance(value, dict) else ((name, value),)
        rows += [_build_row(part, None, each) for part, each in parts if not isinstance(each, dict)]
    return rows


def _build_row(measure: str, before: Any, after: Any) -> dict[str, Any]:
    return {"measure": measure.replace("_", " "), "without": before, "with": after}

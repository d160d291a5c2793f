"""`fallow simulate`: a fleet whose truth is known, without enforcement and with it."""

import threading
from pathlib import Path
from typing import Annotated

import typer

from actions.policy.parser import read_policies
from fallow.errors import UsageError
from fallow.settings import Settings
from runtime.cli.options import CommandRun, Output
from runtime.experiments.simulation.options import read
from runtime.experiments.simulation.run import measure_worlds
from runtime.experiments.simulation.servers import serve as serve_world
from runtime.experiments.simulation.worlds import simulate_worlds
from runtime.rendering.finding_tables import show_progress
from runtime.rendering.tables import document

SEED = 7


def simulate(
    run: CommandRun,
    *,
    days: Annotated[int, typer.Option(min=1, max=60, help="how much time")] = 14,
    gpus: Annotated[int, typer.Option(min=1, max=4096, help="how many GPUs")] = 128,
    seed: Annotated[
        list[int] | None, typer.Option(min=0, help="another world, repeatable [7]")
    ] = None,
    policies: Annotated[
        Path | None,
        typer.Option(help="folder of policies to enforce [its own: stop what is idle after 4h]"),
    ] = None,
    pool: Annotated[
        list[str] | None, typer.Option(help="POOL=NODES, repeatable: these nodes, not --gpus")
    ] = None,
    mix: Annotated[
        list[str] | None, typer.Option(help="CATEGORY=SHARE of the fleet, repeatable")
    ] = None,
    quirk: Annotated[
        list[str] | None, typer.Option(help="NAME or NAME:rate=..., repeatable; all = every one")
    ] = None,
    placement: Annotated[str, typer.Option(help="first-fit, best-fit or fgd")] = "best-fit",
    failures: Annotated[float, typer.Option(help="rate of failures; 1 as published")] = 1.0,
    every: Annotated[str, typer.Option(help="time between two judgements")] = "4h",
    interval: Annotated[str, typer.Option(help="scrape interval of the exporters")] = "5m",
    warm_up: Annotated[
        str | None, typer.Option(help="so long it only watches, and learns [0]")
    ] = None,
    serve: Annotated[bool, typer.Option("--serve", help="serve its APIs until Ctrl-C")] = False,
    speed: Annotated[float, typer.Option(help="with --serve: times as fast, 1 to 3600")] = 60.0,
    port: Annotated[
        int, typer.Option(min=0, max=65534, help="with --serve: exporters; the API is the next")
    ] = 0,
) -> None:
    """Run a simulated fleet with and without enforcement.

    With --serve it opens its exporters and its Kubernetes API on loopback instead.
    """
    seeds = list(dict.fromkeys(seed or (SEED,)))
    worlds = [
        read(
            days=days,
            gpus=gpus,
            seed=number,
            pool=pool or (),
            mix=mix or (),
            quirk=quirk or (),
            placement=placement,
            failures=failures,
            every=every,
            interval=interval,
            warm_up=warm_up,
            policies=policies,
        )
        for number in seeds
    ]
    if serve:
        if len(worlds) > 1:
            raise UsageError("--serve has one world", hint="name --seed once")
        serve_world(worlds[0], speed=speed, port=port, say=run.say, stop=threading.Event())
        return
    rules = None
    if policies is not None:
        rules = read_policies([policies])
        run.say("an admin is played: who lists namespaces, trusts policies by hand, and approves")
    # Of a site's settings only the workers count, and one world needs none.
    settings = run.settings() if len(worlds) > 1 else Settings()
    with show_progress() as progress:
        results = simulate_worlds(settings, worlds, progress, rules)
    if run.output is Output.json:
        if len(results) == 1:
            run.text(document("simulation", results[0]))
        else:
            run.text(document("simulations", {"worlds": results}))
        return
    for result in results:
        window = f"{result['start']:%Y-%m-%d} to {result['end']:%Y-%m-%d}"
        run.say(f"{result['gpus']} GPUs, seed {result['seed']}, {window} of simulated time")
    run.data(measure_worlds(results), noun="simulation")

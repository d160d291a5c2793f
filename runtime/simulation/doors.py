"""A world with its doors open on loopback until somebody stops it: exporters, Kubernetes API."""

import threading
from collections.abc import Callable

from runtime.simulation.options import Options
from simulator.clock import Pace
from simulator.exporters.door import ExporterDoor
from simulator.kube.server import KubeServer
from simulator.nouns import TICK_S
from simulator.world import World


def serve(
    options: Options,
    *,
    speed: float,
    port: int,
    say: Callable[[str], None],
    stop: threading.Event,
) -> None:
    """Open both doors, print where they are, and let time pass until told to stop.

    `port` is the exporters', the Kubernetes API has the next one; 0 = any free ones.

    Raises:
        UsageError: a port is taken, or the speed is not legal.
    """
    world = World(options.spec, options.seed)
    pace = Pace(options.spec.start_s, speed)
    say(f"a world of {options.gpus} GPUs, seed {options.seed}; making its first moments")
    world.advance(options.spec.start_s + TICK_S)
    with (
        ExporterDoor(world, options.quirks, port=port) as exporters,
        KubeServer(world.store, port + 1 if port else 0) as kube,
    ):
        kube.controllers.enable()
        say(f"exporters       {exporters.url}/nodes/NODE/metrics")
        say(f"targets         {exporters.url}/sd")
        say(f"Kubernetes API  {kube.url}")
        say(f"an hour passes in {3600 / speed:,.0f} s; Ctrl-C ends it")
        pace = Pace(world.now_s, speed)
        try:
            pace.run(world.advance, stop, TICK_S)
        except KeyboardInterrupt:
            stop.set()
    say("closed")

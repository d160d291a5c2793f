"""Serve a world's exporters and Kubernetes API on loopback until it is stopped."""

import threading
from collections.abc import Callable

from runtime.experiments.simulation.options import Options
from simulator.clock import SimulatedClock
from simulator.exporters.server import ExporterServer
from simulator.kube.server import KubeServer
from simulator.models import TICK_S
from simulator.world import World


def serve(
    options: Options,
    *,
    speed: float,
    port: int,
    say: Callable[[str], None],
    stop: threading.Event,
) -> None:
    """Start both servers, print their addresses, and advance the time until `stop` is set.

    `port` is the exporters', the Kubernetes API has the next one; 0 = any free ports.

    Raises:
        UsageError: a port is taken, or the speed is not legal.
    """
    world = World(options.spec, options.seed)
    pace = SimulatedClock(options.spec.start_s, speed)
    say(f"a world of {options.gpus} GPUs, seed {options.seed}; making its first hours")
    world.advance(options.spec.start_s + TICK_S)
    with (
        ExporterServer(world, options.quirks, port=port) as exporters,
        KubeServer(world.store, port + 1 if port else 0) as kube,
    ):
        kube.controllers.enable()
        say(f"exporters       {exporters.url}/nodes/NODE/metrics")
        say(f"targets         {exporters.url}/sd")
        say(f"Kubernetes API  {kube.url}")
        say(f"an hour passes in {3600 / speed:,.0f} s; Ctrl-C ends it")
        pace = SimulatedClock(world.now_s, speed)
        try:
            pace.run(world.advance, stop, TICK_S)
        except KeyboardInterrupt:
            stop.set()
    say("closed")

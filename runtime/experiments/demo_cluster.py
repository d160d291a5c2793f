"""Keep the demo's simulated cluster in its home, and serve it again for the commands of a person.

The cluster is the one that the demo ended with: the same objects, uids and versions. It answers
over HTTP as in the demo, so no gate or executor of Fallow knows that it is simulated.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from actions.cluster.client import KubeClient
from fallow import __version__
from fallow.demo_marker import WORLD, has_demo_cluster
from fallow.errors import SourceError, UsageError
from fallow.kube.api import connect_without_credentials
from fallow.settings import Settings
from fallow.window import Window
from runtime.experiments.demo_home import LOCK
from runtime.experiments.demo_plants import build_ghost, build_queues, plant_world
from runtime.experiments.demo_rows import PolledInventory
from simulator.kube.server import KubeServer
from simulator.models import Block
from simulator.restore import record_requests, replay_entries, restore_checkpoint
from simulator.work.behaviours import Script
from simulator.world import World
from simulator.world_log import Entry, ScenarioEntry, WorldLog, read_entries
from warehouse.lock import WriterLock


class DemoScenario(msgspec.Struct, frozen=True):
    """The parameters of a demo, and the release that ran it."""

    gpus: int
    seed: int
    start: datetime
    end: datetime
    release: str


class DemoCluster(NamedTuple):
    """The cluster of a demo's home, restored, and what of it is not in the warehouse yet."""

    world: World
    server: KubeServer
    log: WorldLog
    inventory: PolledInventory
    since_s: float
    """The rows until this time are stored."""
    unstored: list[Block]
    """The ticks since then: of a run that was killed before it stored them."""
    scripts: dict[str, Script]
    """The scripts of the pods since then."""


def build_world(gpus: int, window: Window, seed: int) -> World:
    """Return the world of a demo at its start."""
    world = World(plant_world(gpus, window.start.timestamp(), window.seconds), seed)
    for queue in build_queues(gpus):
        world.store.create("ClusterQueue", queue)
    for obj in build_ghost():
        world.store.create(obj["kind"], obj)
    return world


@contextmanager
def open_world_log(home: Path, gpus: int, window: Window, seed: int) -> Iterator[WorldLog]:
    """Yield the new log of a demo's world."""
    scenario = DemoScenario(gpus, seed, window.start, window.end, __version__)
    with WorldLog(home / WORLD) as log:
        log.append(ScenarioEntry(msgspec.to_builtins(scenario)))
        yield log


@contextmanager
def restore_cluster(home: Path) -> Iterator[DemoCluster]:
    """Yield the cluster of a demo's home, whose server is not started; others wait meanwhile.

    Raises:
        TemporaryError: another command has it open.
        UsageError: the home is of an interrupted demo, or of another release.
    """
    lock = WriterLock(home / LOCK)
    lock.acquire()
    try:
        with WorldLog(home / WORLD) as log:
            cluster = _read_cluster(home, log)
            cluster.world.log = log
            with closing(cluster.server):
                yield cluster
    finally:
        lock.release()


@contextmanager
def open_demo_client(settings: Settings) -> Iterator[KubeClient]:
    """Yield a client of the cluster of a demo's home, whose API server runs meanwhile.

    It is the transport `simulated`: a real home has no such cluster.

    Raises: as `restore_cluster`.
    """
    if not has_demo_cluster(settings.home):
        raise UsageError(
            f"there is no simulated cluster in {settings.home}", hint="`fallow demo` makes one"
        )
    with restore_cluster(settings.home) as cluster, cluster.server as server:
        record_requests(cluster.world, server)
        yield KubeClient(connect_without_credentials(server.url), settings.cluster)


def _read_cluster(home: Path, log: WorldLog) -> DemoCluster:
    with ExitStack() as stack:
        try:
            entries = read_entries(home / WORLD)
            world = _build_world_of(entries)
            server = KubeServer(world.store)
            stack.callback(server.close)
            entries = restore_checkpoint(world, server, entries)
            since_s, inventory = world.now_s, PolledInventory(world)
            inventory.skip_deleted()
            scripts, blocks = dict(world.cast.scripts), []
            for entry in entries:
                blocks += replay_entries(world, server, [entry])
                scripts.update(world.cast.scripts)
        except SourceError as error:
            raise UsageError(
                f"the simulated cluster of {home} cannot go on: {error.message}",
                hint="`fallow demo` makes a new one",
            ) from error
        stack.pop_all()
    return DemoCluster(world, server, log, inventory, since_s, blocks, scripts)


def _build_world_of(entries: list[Entry]) -> World:
    """Return the world of a log at its start.

    Raises:
        SourceError: the log does not begin with a demo's scenario.
    """
    try:
        (scenario,) = (e.parameters for e in entries[:1] if isinstance(e, ScenarioEntry))
        demo = msgspec.convert(scenario, DemoScenario)
    except (ValueError, msgspec.ValidationError) as error:
        raise SourceError(f"its log does not begin with a scenario: {error}") from error
    if demo.release != __version__:
        raise SourceError(f"Fallow {demo.release} wrote it, this is {__version__}")
    return build_world(demo.gpus, Window(demo.start, demo.end), demo.seed)

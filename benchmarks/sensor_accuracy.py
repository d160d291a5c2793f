"""Measure what the ledger says of GPUs with the sensors of real ones, beside the truth.

    sensors.csv ─► eight GPUs each ─► an hour as they are ─► some freeze ─► ledger ─► hours by state

Each row is a node with one workload: an idle server, a job whose bursts a gauge misses, a server
that hangs. Each idle node has a twin, whose exporter repeats its values after the first hour.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from analyzers.idle.analyzer import IdleAnalyzer
from analyzers.sizing.analyzer import SizingAnalyzer
from benchmarks.accuracy_collection import store_step
from benchmarks.accuracy_worlds import START
from fallow.resources import read_table
from fallow.system.process_folders import open_temporary_folder
from fallow.window import Window
from runtime.experiments.world_inventory import Inventory, isolate_settings
from runtime.operations.accounting import pipeline
from simulator.arrivals import Arrival, read_categories
from simulator.cluster.nodes import build_nodes
from simulator.exporters.quirks import Quirks
from simulator.models import STATES, TICK_S, Block
from simulator.work.behaviours import Script
from simulator.world import Spec, World
from warehouse.lake import Warehouse
from warehouse.still_gpus import list_still_gpus

HOUR = timedelta(hours=1)
LOADED = 3 * HOUR
"""Until then servers load, and hang; twins repeat their values from the first hour on."""
FOREVER_S = 1e11


class SensorNode(msgspec.Struct, frozen=True):
    """A row of `sensors.csv`: the work on a node and the sensors of its eight GPUs."""

    work: str
    step_w: float
    quiet: int
    """Its power repeats itself while the GPU is idle."""
    energy: int
    profiling: int
    frozen: bool = False

    def list_quirks(self, *, later: bool) -> list[str]:
        """Return the quirks of its exporter, in the first hour or `later`."""
        names = [f"coarse-power:rate=1,step_w={self.step_w:g}"]
        names += ["held-power:rate=1"] * self.quiet
        names += ["no-energy-counter:rate=1"] * (not self.energy)
        names += ["no-profiling:rate=1"] * (not self.profiling)
        if self.frozen and later:
            names.append(f"stale-series:rate=1,every_s={FOREVER_S:.0f},length_s={FOREVER_S:.0f}")
        return names


class SensorHours(msgspec.Struct, frozen=True):
    """GPU-hours of a node after `LOADED`, by state: in the ledger, and in truth."""

    spec: SensorNode
    ledger: dict[str, float]
    truth: dict[str, float]
    doubted: float
    """Idle hours in the ledger of GPUs of which Fallow says that they are idle or frozen."""
    findings: tuple[str, ...]
    """Kinds of findings about its workload."""

    @property
    def hours(self) -> float:
        """The GPU-hours of all states."""
        return sum(self.ledger.values())


def read_sensor_nodes() -> list[SensorNode]:
    """Return the rows of `sensors.csv`, each idle one with its frozen twin."""
    specs = []
    for row in read_table("benchmarks", "sensors.csv"):
        spec = msgspec.convert(row, SensorNode, strict=False)
        specs.append(spec)
        if spec.work == "idle-node":
            specs.append(msgspec.structs.replace(spec, frozen=True))
    return specs


def measure_sensors(seed: int, *, hours: float) -> list[SensorHours]:
    """Return the hours of every node, of a world of so many hours; its warehouse is deleted."""
    specs = read_sensor_nodes()
    window = Window(START, START + timedelta(hours=hours))
    world = _build_world(specs, seed)
    with open_temporary_folder("accuracy") as folder:
        settings = isolate_settings(folder)
        with Warehouse.open(settings, write=True, clock=lambda: window.end) as warehouse:
            scripts: dict[str, Script] = {}
            inventory = Inventory(world)

            def run(until: datetime, *, later: bool) -> tuple[Block, list[str]]:
                block = world.advance(until.timestamp())
                scripts.update(world.cast.scripts)
                nodes = _find_nodes(world, specs)
                quirks = [
                    (Quirks.of(spec.list_quirks(later=later), seed), _list_rows(block, node))
                    for spec, node in zip(specs, nodes, strict=True)
                ]
                store_step(warehouse, world, inventory, block, scripts, quirks)
                return block, nodes

            run(window.start + HOUR, later=False)
            block, nodes = run(window.end, later=True)
            pipeline.account(warehouse, window)
            return _read_hours(warehouse, Window(window.start + LOADED, window.end), block, specs,
                               nodes)  # fmt: skip


def _build_world(specs: Sequence[SensorNode], seed: int) -> World:
    by_name = {category.category: category for category in read_categories()}
    start_s = START.timestamp()
    submitted = tuple(
        Arrival(start_s, by_name[spec.work], f"{spec.work}-{n}", seed * 1000 + n, float("inf"))
        for n, spec in enumerate(specs)
    )
    spec = Spec(nodes=build_nodes({"h100": len(specs)}), start_s=start_s, mix=(), fault_rate=0,
                effects=0, submitted=submitted)  # fmt: skip
    return World(spec, seed)


def _find_nodes(world: World, specs: Sequence[SensorNode]) -> list[str]:
    """Return the node on which the work of each row runs."""
    nodes = {t.holder.workload: world.devices[t.devices[0]].node for t in world.cluster.allocations}
    return [nodes[f"{spec.work}-{n}"] for n, spec in enumerate(specs)]


def _list_rows(block: Block, node: str) -> list[int]:
    return [row for row, device in enumerate(block.devices) if device.node == node]


def _read_hours(
    warehouse: Warehouse,
    window: Window,
    block: Block,
    specs: Sequence[SensorNode],
    nodes: Sequence[str],
) -> list[SensorHours]:
    rows = warehouse.query(
        "SELECT node, device, state, sum(gpu_seconds) / 3600 AS hours FROM ledger"
        " WHERE bucket >= $since AND bucket < $until GROUP BY ALL",
        window.bounds(),
    ).to_pylist()
    still = {gpu.device for gpu in list_still_gpus(warehouse, window)}
    analyzers = (IdleAnalyzer(), SizingAnalyzer())
    kinds_of = [(f.subject.workload, f.kind) for a in analyzers for f in a.find(warehouse, window)]
    late = block.ticks >= window.start.timestamp()
    out = []
    for n, (spec, node) in enumerate(zip(specs, nodes, strict=True)):
        state = block.state[_list_rows(block, node)][:, late]
        truth = {name: float((state == code).sum()) * TICK_S / 3600
                 for code, name in enumerate(STATES) if (state == code).any()}  # fmt: skip
        mine = [row for row in rows if row["node"] == node]
        ledger = {name: sum(row["hours"] for row in mine if row["state"] == name)
                  for name in sorted({row["state"] for row in mine})}  # fmt: skip
        kinds = sorted({kind for owner, kind in kinds_of if owner == f"{spec.work}-{n}"})
        doubted = sum(
            row["hours"] for row in mine if row["state"] == "idle" and row["device"] in still
        )
        out.append(SensorHours(spec, ledger, truth, doubted, tuple(kinds)))
    return out

"""Run `fallow demo`: a simulated fleet through the same warehouse, ledger and analyzers.

Deterministic: one seed and one end, one story. The end is also the demo's "now".
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from dashboards.waste_report import PlantedScore
from fallow.demo_marker import MARKER
from fallow.models import Finding
from fallow.settings import Settings, load
from fallow.window import Window
from runtime.experiments.accuracy.collection import Inventory
from runtime.experiments.accuracy.truth import Truth, courses, gather
from runtime.experiments.demo_home import replace_demo_home
from runtime.experiments.planting import compare
from runtime.operations import analyzer_runs, pipeline
from runtime.operations.prices import read_configured_rates
from runtime.operations.story import build_story
from runtime.rendering.finding_tables import Progress
from simulator.arrivals import replace_shares
from simulator.blocks import thin_block
from simulator.cluster.nodes import fleet
from simulator.exporters.device_rows import rows
from simulator.exporters.host_spans import host_spans
from simulator.exporters.quirks import Quirks
from simulator.hardware_faults import HardwareFault
from simulator.models import Block
from simulator.work.behaviours import Script
from simulator.world import Heat, Spec, World
from warehouse.lake import Warehouse
from warehouse.pricing import derive_device_rates
from warehouse.spend import read_spend

if TYPE_CHECKING:
    from dashboards.waste_report import Story

END = datetime(2026, 11, 16, tzinfo=UTC)
"""The end that documents and tests use, a Monday; prices and ages are those of that time."""
INTERVAL_S = 300.0
"""Scrape interval: a week of 128 GPUs at 5 minutes is 3 million values, some seconds of work."""
CLUSTER = "demo"
OWN_SETTINGS = {"cluster": CLUSTER}
"""The settings that a demo home brings."""
IDLE = "idle"
"""The analyzer whose findings are compared with the planted idle time."""
DAY_S = 24 * 3600.0
STEP_S = DAY_S
MIX = {
    "pretrain": 0.14, "train": 0.01, "train-wide": 0.02, "input-bound": 0.02, "idle-rank": 0.05,
    "kept": 0.05, "day-notebook": 0.06, "forgotten": 0.04, "night": 0.04, "train-a100": 0.01,
    "straggling": 0.02, "abandoned": 0.06, "batch": 0.004, "bursty": 0.05, "scoring": 0.004,
}  # fmt: skip
"""Fewer short jobs than in a real fleet, so that the story is about large findings."""
FAULTS = (
    ("h100-3", "xid", 1.6, 7.0, 5), ("h100-3", "xid", 4.3, 5.0, 5),
    ("a100-1", "node-lost", 3.4, 1.3, None),
    ("h100-spot-0", "spot", 2.5, 0.7, None), ("h100-spot-0", "spot", 5.2, 0.5, None),
)  # fmt: skip
"""Faults by node: days after the start, hours, GPU."""
COOLING_FAULTS = (("h100-1", 2, 1.0, 4.0),)
"""GPUs whose cooling fails: first and last day."""
QUIRKS = ("exporter-down:rate=0.02", "gr-engine-stuck-zero:rate=0.02", "time-slicing-copies")
"""Telemetry faults that a site has even on good days."""


def run_demo(
    *, days: int, gpus: int, seed: int, progress: Progress, home: Path, end: datetime = END
) -> "Story":
    """Simulate the fleet until `end`, process its rows, and return its story.

    The warehouse is kept in `home`, in place of an earlier demo's: see `check_demo_home`.

    Raises:
        TemporaryError: another demo is writing into `home`.
    """
    window = Window(end - timedelta(days=days), end)
    # A site's fallow.yaml may name its real warehouse: the demo must not write there.
    with replace_demo_home(home, OWN_SETTINGS):
        settings = load(file=home / MARKER, environ={}, flags={"home": home}).settings
        return _run_path(settings, gpus, window, seed, progress)


def _run_path(
    settings: Settings, gpus: int, window: Window, seed: int, progress: Progress
) -> "Story":
    with Warehouse.open(settings, write=True, clock=lambda: window.end) as warehouse:
        pipeline.price(warehouse, read_configured_rates(settings, window.end))
        truth, scripts, _ = run_fleet(warehouse, gpus, window, seed, progress)
        progress("writing the ledger", 0.6)
        failures = pipeline.account(warehouse, window)[1]
        progress("finding waste", 0.9)
        analysis = pipeline.analyze(warehouse, window, analyzer_runs.load_analyzers(settings))
        idle_findings = [finding for finding in analysis.findings if finding.analyzer == IDLE]
        return build_story(
            warehouse,
            window,
            cluster=CLUSTER,
            findings=idle_findings,
            others=[row for row in analysis.ranked if row.finding.analyzer != IDLE],
            failures=failures,
            planted=compare_planted(warehouse, window, truth, scripts, analysis.findings),
        )


def run_fleet(
    warehouse: "Warehouse", gpus: int, window: Window, seed: int, progress: Progress
) -> tuple[Truth, dict[str, Script], World]:
    """Run the fleet through the window, store its rows, and keep the truth."""
    start_s = window.start.timestamp()
    world = World(plant_world(gpus, start_s, window.seconds), seed)
    scripts: dict[str, Script] = {}
    truth = gather(_blocks(warehouse, world, window, scripts, progress), ())
    truth = msgspec.structs.replace(truth, allocations=tuple(world.cluster.allocations))
    return truth, scripts, world


def plant_world(gpus: int, start_s: float, seconds: float) -> Spec:
    """Return the demo's world: the workload mix, and the faults of the nodes that it has."""
    nodes = fleet(gpus)
    node_names, end_s = {n.name for n in nodes}, start_s + seconds
    faults = [
        HardwareFault(at_s, node, why, at_s + hours * 3600, index)
        for node, why, day, hours, index in FAULTS
        if node in node_names and (at_s := start_s + day * DAY_S) < end_s
    ]
    heat = [
        Heat(node, index, start_s + first * DAY_S, start_s + last * DAY_S)
        for node, index, first, last in COOLING_FAULTS
        if node in node_names
    ]
    return Spec(
        nodes=nodes,
        start_s=start_s,
        mix=replace_shares(MIX),
        horizon_s=seconds,
        planted=tuple(faults),
        heat=tuple(heat),
    )


def _blocks(
    warehouse: "Warehouse",
    world: World,
    window: Window,
    scripts: dict[str, Script],
    progress: Progress,
) -> Iterator[Block]:
    quirks = Quirks.of(QUIRKS, world.seed)
    inventory = Inventory(world, CLUSTER)
    while world.now_s < window.end.timestamp():
        since_s = world.now_s
        block = world.advance(min(since_s + STEP_S, window.end.timestamp()))
        scripts.update(world.cast.scripts)
        allocations = [
            t for t in world.list_allocations(since_s, world.now_s) if t.holder.uid in scripts
        ]
        shared = [t for t in allocations if t.share < 1]
        pipeline.ingest(
            warehouse,
            inventory.batches(world.now_s),
            rows(thin_block(block, INTERVAL_S), quirks, cluster=CLUSTER, allocations=shared),
            host_spans(
                allocations,
                scripts,
                np.arange(since_s, world.now_s, INTERVAL_S),
                cluster=CLUSTER,
                quirks=quirks,
                node_of={t.holder.uid: block.devices[t.devices[0]].node for t in allocations},
            ),
        )
        yield block
        part = (world.now_s - window.start.timestamp()) / window.seconds
        progress("letting the fleet live", 0.6 * part)


def compare_planted(
    warehouse: "Warehouse",
    window: Window,
    truth: Truth,
    scripts: dict[str, Script],
    findings: Sequence[Finding],
) -> "PlantedScore":
    """Compare findings of idle time with the truth and with the ledger, at the ledger's prices.

    Findings of other analyzers count where they claim idle hours of the ledger.
    """
    idle_findings = [finding for finding in findings if finding.analyzer == IDLE]
    others = [finding for finding in findings if finding.analyzer != IDLE]
    priced = derive_device_rates(warehouse, window).to_pylist()
    rates = {r["device"]: float(r["loaded_usd_h"]) for r in priced if r["loaded_usd_h"] is not None}
    result = compare(truth, courses(truth, scripts), idle_findings, rates)
    idle = sum(
        row["gpu_hours"]
        for row in read_spend(warehouse, window, ["state"]).to_pylist()
        if row["state"] == IDLE
    )
    amounts = [f.usd for f in idle_findings if f.usd is not None]
    return PlantedScore(
        planted_gpu_hours=result.planted_gpu_hours,
        found_gpu_hours=result.found_gpu_hours,
        planted_usd=result.planted_usd,
        found_usd=sum(amounts, Decimal()) if amounts else None,
        precision=result.precision,
        recall=result.recall,
        false_alarms=result.false_alarms,
        missed_gpu_hours=result.planted_gpu_hours - result.covered_gpu_hours,
        extra_gpu_hours=result.found_gpu_hours - result.covered_gpu_hours,
        ledger_idle_gpu_hours=idle,
        not_idle_gpu_hours=max(0.0, result.found_gpu_hours - _idle_hours(idle_findings)),
        others_gpu_hours=_idle_hours(others),
    )


def _idle_hours(findings: Sequence[Finding]) -> float:
    """Return the ledger's idle hours in findings, with or without advice."""
    claimed = sum(
        advice.marginal_idle_gpu_hours or 0.0
        for finding in findings
        for advice in finding.recommendations
    )
    return claimed + sum(
        f.gpu_hours for f in findings if f.analyzer == IDLE and not f.recommendations
    )

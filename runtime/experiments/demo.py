"""Run `fallow demo`: a simulated fleet through the same warehouse, ledger and analyzers.

Deterministic: one seed and one end, one story. The end is also the demo's "now".
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from dashboards.waste_report import PlantedScore
from fallow import money
from fallow.demo_marker import MARKER
from fallow.models import Finding
from fallow.settings import Settings, load
from fallow.window import Window
from runtime.experiments.accuracy.collection import Inventory
from runtime.experiments.accuracy.truth import Truth, courses, gather
from runtime.experiments.demo_actions import (
    APPROVED,
    BEFORE_S,
    LEAST_S,
    POLICIES,
    ActingFleet,
    store_actions,
    write_policies,
)
from runtime.experiments.demo_home import replace_demo_home
from runtime.experiments.planting import compare
from runtime.operations import analyzer_runs, pipeline, plans
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
    from actions.policy.model import Policy
    from dashboards.waste_report import Story

END = datetime(2026, 11, 16, tzinfo=UTC)
"""The end that documents and tests use, a Monday; prices and ages are those of that time."""
INTERVAL_S = 300.0
"""Scrape interval: a week of 128 GPUs at 5 minutes is 3 million values, some seconds of work."""
CLUSTER = "demo"
IDLE = "idle"
"""The analyzer whose findings are compared with the planted idle time."""
DAY_S = 24 * 3600.0
STEP_S = DAY_S
LIVES = "letting the fleet live"
"""What progress shows while the fleet is simulated and its rows are stored."""
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
TEAM_BUDGETS = {"data": 60_000, "genai": 200_000, "search": 90_000, "speech": 60_000}
"""Budgets of teams in dollars a month, some too small."""
QUEUES = {"genai": 0.75, "data": 0.5}
"""Quotas of queues as shares of the fleet; together they are more than it."""
COOLING_FAULTS = (("h100-1", 2, 1.0, 4.0),)
"""GPUs whose cooling fails: first and last day."""
QUIRKS = ("exporter-down:rate=0.02", "gr-engine-stuck-zero:rate=0.02", "time-slicing-copies")
"""Telemetry faults that a site has even on good days."""


def run_demo(
    *,
    days: int,
    gpus: int,
    seed: int,
    progress: Progress,
    home: Path,
    end: datetime = END,
    acts: bool = True,
) -> "Story":
    """Simulate the fleet until `end`, process its rows, and return its story.

    With `acts` a policy acts in it if it lasts for `LEAST_S`. The warehouse is kept in `home`, in
    place of an earlier demo's: see `check_demo_home`.

    Raises:
        TemporaryError: another demo is writing into `home`.
    """
    window = Window(end - timedelta(days=days), end)
    # A site's fallow.yaml may name its real warehouse: the demo must not write there.
    with replace_demo_home(home, build_settings(home, window)):
        settings = load(file=home / MARKER, environ={}, flags={"home": home}).settings
        if acts:
            write_policies(settings.actions.policies)
        acting = acts and window.seconds >= LEAST_S
        rules = plans.load_policies(settings, [POLICIES]) if acting else ()
        return _run_path(settings, gpus, window, seed, progress, rules)


def build_settings(home: Path, window: Window) -> dict[str, Any]:
    """Return the settings that a demo home brings: its policies, budgets and a commitment."""
    reserved = {
        "name": "h100-1y", "provider": "aws", "instance_type": "p5.48xlarge", "region": "us-east-1",
        "gpu_model": "H100", "nodes": 4, "gpus_per_node": 8, "usd_per_node_hour": 42.0,
        "start": window.start - timedelta(days=100), "end": window.start + timedelta(days=265),
    }  # fmt: skip
    return {
        "cluster": CLUSTER,
        "actions": {"policies": str(home.absolute() / "policies"), "concurrent": APPROVED},
        "finance": {"usd_per_month": 550_000, "teams_usd_per_month": TEAM_BUDGETS},
        "prices": {"commitments": [reserved]},
    }


def _run_path(  # noqa: PLR0917  (one caller)
    settings: Settings,
    gpus: int,
    window: Window,
    seed: int,
    progress: Progress,
    rules: "Sequence[Policy]",
) -> "Story":
    with Warehouse.open(settings, write=True, clock=lambda: window.end) as warehouse:
        pipeline.price(warehouse, read_configured_rates(settings, window.end))
        truth, scripts, _ = run_fleet(warehouse, gpus, window, seed, progress, policies=rules)
        progress("writing the ledger", 0.6)
        failures = pipeline.account(warehouse, window)[1]
        progress("finding waste", 0.9)
        analysis = pipeline.analyze(warehouse, window, analyzer_runs.load_analyzers(settings))
        progress("measuring actions", 0.95)
        store_actions(warehouse, settings, window, rules, analysis.findings)
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
    warehouse: "Warehouse",
    gpus: int,
    window: Window,
    seed: int,
    progress: Progress,
    *,
    policies: "Sequence[Policy]" = (),
) -> tuple[Truth, dict[str, Script], World]:
    """Run the fleet through the window, store its rows, and keep the truth.

    The policies act on it after a day; without policies nothing acts.
    """
    start_s = window.start.timestamp()
    world = World(plant_world(gpus, start_s, window.seconds), seed)
    for queue in build_queues(gpus):
        world.store.create("ClusterQueue", queue)
    scripts: dict[str, Script] = {}
    truth = gather(_blocks(warehouse, world, window, scripts, progress, policies), ())
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


def build_queues(gpus: int) -> Iterator[dict[str, Any]]:
    """Yield queues of one cohort whose quotas promise more GPUs than the fleet has."""
    for name, share in QUEUES.items():
        quota = {"name": "nvidia.com/gpu", "nominalQuota": str(round(gpus * share))}
        group = {"coveredResources": ["nvidia.com/gpu"]}
        flavors = [{"name": "any", "resources": [quota]}]
        yield {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {"cohort": "research", "resourceGroups": [{**group, "flavors": flavors}]},
        }


def _blocks(  # noqa: PLR0917  (one caller)
    warehouse: "Warehouse",
    world: World,
    window: Window,
    scripts: dict[str, Script],
    progress: Progress,
    policies: "Sequence[Policy]",
) -> Iterator[Block]:
    quirks = Quirks.of(QUIRKS, world.seed)
    inventory = Inventory(world, CLUSTER)
    end_s = window.end.timestamp()
    progress(LIVES, 0.0)
    acts_s = window.start.timestamp() + BEFORE_S if policies else end_s
    with ExitStack() as stack:
        fleet = None
        while world.now_s < end_s:
            if fleet is None and world.now_s == acts_s:
                fleet = stack.enter_context(
                    ActingFleet(
                        warehouse,
                        world,
                        quirks,
                        warehouse.settings,
                        policies,
                        sample_every_s=INTERVAL_S,
                        inventory=inventory,
                    )
                )
                progress("letting a policy act", 0.1)
                for block in fleet.act(window.start):
                    scripts.update(world.cast.scripts)
                    yield block
                progress(LIVES, 0.2)
            since_s = world.now_s
            until_s = acts_s if since_s < acts_s else end_s
            block = world.advance(min(since_s + STEP_S, until_s))
            scripts.update(world.cast.scripts)
            _store(warehouse, world, block, since_s, scripts, quirks, inventory)
            yield block
            part = (world.now_s - window.start.timestamp()) / window.seconds
            progress(LIVES, 0.6 * part)
        if fleet is not None:
            fleet.finish()


def _store(  # noqa: PLR0917  (one caller)
    warehouse: "Warehouse",
    world: World,
    block: Block,
    since_s: float,
    scripts: dict[str, Script],
    quirks: Quirks,
    inventory: Inventory,
) -> None:
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
            np.arange(np.ceil(since_s / INTERVAL_S) * INTERVAL_S, world.now_s, INTERVAL_S),
            cluster=CLUSTER,
            quirks=quirks,
            node_of={t.holder.uid: block.devices[t.devices[0]].node for t in allocations},
        ),
    )


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
        planted_gpu_hours=_snap(result.planted_gpu_hours),
        found_gpu_hours=_snap(result.found_gpu_hours),
        planted_usd=result.planted_usd,
        found_usd=sum(amounts, Decimal()) if amounts else None,
        precision=result.precision,
        recall=result.recall,
        false_alarms=result.false_alarms,
        missed_gpu_hours=_snap(result.planted_gpu_hours - result.covered_gpu_hours),
        extra_gpu_hours=_snap(result.found_gpu_hours - result.covered_gpu_hours),
        ledger_idle_gpu_hours=_snap(idle),
        not_idle_gpu_hours=_snap(max(0.0, result.found_gpu_hours - _idle_hours(idle_findings))),
        others_gpu_hours=_snap(_idle_hours(others)),
    )


def _snap(hours: float) -> float:
    """Return hours without the noise of a sum of floats in no fixed order."""
    return round(hours, money.MICRO_HOURS)


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

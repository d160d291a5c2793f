"""Collect a world through the same pipeline as a real cluster's rows, and keep the truth.

    world ─► blocks ─┬─► rows, with quirks ─► warehouse ─► verdicts (ours, gpu-pruner's, ...)
                     └─► truth ──────────────────────────────┴─► scores (`accuracy_scores`)

No server runs: exporters' rows come directly from the blocks (`simulator.exporters.device_rows`),
hosts' rows from the scripts, nodes and pods from the objects by the collector's own reader. The
truth of the blocks never enters the warehouse.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from analyzers.idle.analyzer import IdleAnalyzer
from analyzers.idle.findings import decide_kind
from analyzers.idle.signals import SERVICES
from benchmarks.accuracy_scores import Verdict
from fallow.models import Finding
from fallow.settings.idle import IdleSettings
from fallow.window import Window
from runtime.experiments.truth import Owner, Truth, gather
from runtime.experiments.world_inventory import CLUSTER, Inventory
from runtime.operations.accounting import pipeline
from simulator.exporters.device_rows import build_rows
from simulator.exporters.host_spans import build_host_spans
from simulator.exporters.quirks import Quirks
from simulator.models import TICK_S, Block
from simulator.work.behaviours import Script
from simulator.world import World
from warehouse.lake import Warehouse

STEP_S = 6 * 3600.0
"""Simulated time per step of the world."""
HOSTS_EVERY_S = 60.0
"""Kubelets and notebooks are read as often as the service collects."""


def run_world(
    warehouse: Warehouse, world: World, window: Window, quirks: Quirks, *, step_s: float = STEP_S
) -> tuple[Truth, dict[str, Script]]:
    """Run a world through a window, store its rows, and account for it.

    Returns:
        The truth, and the scripts of all pods by uid.
    """
    scripts: dict[str, Script] = {}
    truth = gather(_list_steps(warehouse, world, window, quirks, scripts, step_s), ())
    pipeline.account(warehouse, window)
    return msgspec.structs.replace(truth, allocations=tuple(world.cluster.allocations)), scripts


def _list_steps(  # noqa: PLR0917  (one caller)
    warehouse: Warehouse,
    world: World,
    window: Window,
    quirks: Quirks,
    scripts: dict[str, Script],
    step_s: float,
) -> Iterator[Block]:
    inventory = Inventory(world)
    now_s, end_s = window.start.timestamp(), window.end.timestamp()
    while now_s < end_s:
        until_s = min(now_s + step_s, end_s)
        block = world.advance(until_s)
        scripts.update(world.cast.scripts)
        store_step(warehouse, world, inventory, block, scripts, [(quirks, None)])
        yield block
        now_s = until_s


def store_step(  # noqa: PLR0917  (a step's parts)
    warehouse: Warehouse,
    world: World,
    inventory: Inventory,
    block: Block,
    scripts: Mapping[str, Script],
    quirks_of: Sequence[tuple[Quirks, Sequence[int] | None]],
) -> None:
    """Store the rows of a block; `quirks_of`: those of some devices, None = of all."""
    now_s, until_s = float(block.ticks[0]), float(block.ticks[-1]) + TICK_S
    allocations = [t for t in world.list_allocations(now_s, until_s) if t.holder.uid in scripts]
    shared = [t for t in allocations if t.share < 1]
    device_rows = (
        build_rows(block, q, cluster=CLUSTER, allocations=shared, device_indices=indices)
        for q, indices in quirks_of
    )
    host_rows = build_host_spans(
        allocations,
        scripts,
        np.arange(now_s, until_s, HOSTS_EVERY_S),
        cluster=CLUSTER,
        quirks=quirks_of[0][0],
        node_of={t.holder.uid: block.devices[t.devices[0]].node for t in allocations},
    )
    pipeline.ingest(warehouse, inventory.batches(until_s), *device_rows, host_rows)


def read_verdicts(
    analyzer: IdleAnalyzer, warehouse: Warehouse, window: Window
) -> tuple[list[Verdict], list[Verdict]]:
    """Return Fallow's verdicts, and what it withheld and why.

    A run can be known after `min_duration`; services may be acted upon after `service_duration`.
    """
    verdicts = [_build_verdict(f, analyzer.settings) for f in analyzer.find(warehouse, window)]
    held_back = [
        Verdict(
            (u.subject.namespace, u.subject.workload_kind, u.subject.workload),
            u.window.start.timestamp(),
            u.window.end.timestamp(),
            actionable=False,
            confirmed=False,
            reasons=u.reasons,
        )
        for u in analyzer.unjudged(warehouse, window)
        if u.window is not None
    ]
    return verdicts, held_back


def find_actionable_time(settings: IdleSettings) -> Callable[[Owner], float]:
    """Return after how many idle seconds work of an owner's kind may be acted upon."""

    def seconds(owner: Owner) -> float:
        serves = decide_kind(owner[1], served=False, notebook=False) in SERVICES
        return (settings.service_duration if serves else settings.min_duration).total_seconds()

    return seconds


def _build_verdict(finding: Finding, settings: IdleSettings) -> Verdict:
    partly = finding.verdict == "partly idle"
    start, subject = finding.window.start, finding.subject
    return Verdict(
        (subject.namespace, subject.workload_kind, subject.workload),
        (start if partly else start + settings.min_duration).timestamp(),
        finding.window.end.timestamp(),
        actionable=bool(finding.details["actionable"]),
        confirmed=finding.evidence == "confirmed",
        devices=tuple(finding.details["devices"]) if partly else (),
        reasons=tuple(finding.details["reasons"]),
        gpu_hours=finding.gpu_hours,
        acts_s=(start + settings.service_duration).timestamp()
        if finding.kind in SERVICES
        else None,
    )

"""`fallow demo`: a simulated fleet through the very same warehouse, ledger and analyzers.

Deterministic: one seed, one story. The fleet's week ends at a fixed moment, which is also the
demo's "now"; the warehouse lies in a temporary folder unless one is named.
"""

import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from fallow.errors import UsageError
from fallow.nouns import Finding
from fallow.settings import Settings
from fallow.window import Window
from runtime import analyzing, pipeline
from runtime.accuracy.truth import Truth, courses, gather
from runtime.accuracy.watching import Inventory
from runtime.importing import price_rows
from runtime.planting import compare
from runtime.showing import Progress
from runtime.telling import tell
from simulator.arrivals import mixed
from simulator.blocks import thinned
from simulator.cluster.nodes import fleet
from simulator.exporters.host_spans import host_spans
from simulator.exporters.quirks import Quirks
from simulator.exporters.rows import rows
from simulator.mishaps import Mishap
from simulator.nouns import Block
from simulator.work.behaviours import Script
from simulator.world import Heat, Spec, World

if TYPE_CHECKING:
    from dashboards.story import Planted, Story
    from warehouse.lake import Warehouse

END = datetime(2026, 11, 16, tzinfo=UTC)
"""A Monday; prices, calendars and ages are those of that moment."""
INTERVAL_S = 300.0
"""Between two looks. A week of 128 GPUs at 5 minutes is 3 million values, seconds of work."""
CLUSTER = "demo"
IDLE = "idle"
"""The analyzer whose findings are laid over the idleness that was planted."""
DAY_S = 24 * 3600.0
STEP_S = DAY_S
MIX = {
    "pretrain": 0.14, "train": 0.01, "train-wide": 0.02, "input-bound": 0.02, "idle-rank": 0.05,
    "kept": 0.05, "day-notebook": 0.06, "forgotten": 0.04, "night": 0.04, "train-a100": 0.01,
    "straggling": 0.02, "abandoned": 0.06, "batch": 0.004, "bursty": 0.05, "scoring": 0.004,
}  # fmt: skip
"""Fewer short jobs than a real fleet has, so that the story is about what people can see."""
MISHAPS = (
    ("h100-3", "xid", 1.6, 7.0, 5), ("h100-3", "xid", 4.3, 5.0, 5),
    ("a100-1", "node-lost", 3.4, 1.3, None),
    ("h100-spot-0", "spot", 2.5, 0.7, None), ("h100-spot-0", "spot", 5.2, 0.5, None),
)  # fmt: skip
"""What befalls which node: days after the start, hours, board."""
HOT = (("h100-1", 2, 1.0, 4.0),)
"""Boards whose cooling fails, from which day to which."""
QUIRKS = ("exporter-down:rate=0.02", "gr-engine-stuck-zero:rate=0.02", "time-slicing-copies")
"""What a site's telemetry shows even on good days."""


def play(
    *, days: int, gpus: int, seed: int, progress: Progress, home: Path | None = None
) -> "Story":
    """Make the fleet, take it through the whole path and return its story.

    Its warehouse is kept in `home`; without one it is in a temporary folder and gone afterwards.

    Raises:
        UsageError: `home` is there and not empty: synthetic rows never mix with others.
    """
    if home is not None and home.exists() and any(home.iterdir()):
        raise UsageError(
            f"the demo keeps its warehouse in a folder of its own, and {home} is not empty",
            hint="name a new folder with --home, or leave it out: then nothing is kept",
        )
    window = Window(END - timedelta(days=days), END)
    with tempfile.TemporaryDirectory(prefix="fallow-demo-") as folder:
        # A site's fallow.yaml may name its real warehouse: the demo never writes there.
        settings = Settings(home=home or Path(folder), cluster=CLUSTER)
        return _walk(settings, gpus, window, seed, progress)


def _walk(settings: Settings, gpus: int, window: Window, seed: int, progress: Progress) -> "Story":
    from warehouse.lake import Warehouse  # noqa: PLC0415

    with Warehouse.open(settings, write=True, clock=lambda: END) as warehouse:
        pipeline.price(warehouse, price_rows(settings, END))
        truth, scripts, _ = watch(warehouse, gpus, window, seed, progress)
        progress("doing the books", 0.6)
        failures = pipeline.account(warehouse, window)[1]
        progress("finding waste", 0.9)
        made = pipeline.analyze(warehouse, window, analyzing.chosen(settings))
        found = [finding for finding in made.findings if finding.analyzer == IDLE]
        return tell(
            warehouse,
            window,
            cluster=CLUSTER,
            findings=found,
            others=[row for row in made.ranked if row.finding.analyzer != IDLE],
            failures=failures,
            planted=compared(warehouse, window, truth, scripts, found),
        )


def watch(
    warehouse: "Warehouse", gpus: int, window: Window, seed: int, progress: Progress
) -> tuple[Truth, dict[str, Script], World]:
    """Let the fleet live through the window, store what it shows, and keep what is true."""
    start_s = window.start.timestamp()
    world = World(planted(gpus, start_s, window.seconds), seed)
    scripts: dict[str, Script] = {}
    truth = gather(_blocks(warehouse, world, window, scripts, progress), ())
    truth = msgspec.structs.replace(truth, tenures=tuple(world.cluster.tenures))
    return truth, scripts, world


def planted(gpus: int, start_s: float, seconds: float) -> Spec:
    """Return the demo's world: the mix, and what befalls the nodes that a fleet so large has."""
    nodes = fleet(gpus)
    there, end_s = {n.name for n in nodes}, start_s + seconds
    mishaps = [
        Mishap(at_s, node, why, at_s + hours * 3600, index)
        for node, why, day, hours, index in MISHAPS
        if node in there and (at_s := start_s + day * DAY_S) < end_s
    ]
    heat = [
        Heat(node, index, start_s + first * DAY_S, start_s + last * DAY_S)
        for node, index, first, last in HOT
        if node in there
    ]
    return Spec(
        nodes=nodes,
        start_s=start_s,
        mix=mixed(MIX),
        horizon_s=seconds,
        planted=tuple(mishaps),
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
    seen = Inventory(world, CLUSTER)
    while world.now_s < window.end.timestamp():
        since_s = world.now_s
        block = world.advance(min(since_s + STEP_S, window.end.timestamp()))
        scripts.update(world.cast.scripts)
        held = [t for t in world.held(since_s, world.now_s) if t.holder.uid in scripts]
        shared = [t for t in held if t.share < 1]
        pipeline.ingest(
            warehouse,
            seen.batches(world.now_s),
            rows(thinned(block, INTERVAL_S), quirks, cluster=CLUSTER, tenures=shared),
            host_spans(
                held,
                scripts,
                np.arange(since_s, world.now_s, INTERVAL_S),
                cluster=CLUSTER,
                quirks=quirks,
                node_of={t.holder.uid: block.devices[t.devices[0]].node for t in held},
            ),
        )
        yield block
        lived = (world.now_s - window.start.timestamp()) / window.seconds
        progress("letting the fleet live", 0.6 * lived)


def compared(
    warehouse: "Warehouse",
    window: Window,
    truth: Truth,
    scripts: dict[str, Script],
    found: list[Finding],
) -> "Planted":
    """Lay what was found over what is true, priced as the ledger prices each device."""
    from dashboards.story import Planted  # noqa: PLC0415
    from warehouse.pricing import device_rates  # noqa: PLC0415

    priced = device_rates(warehouse, window).to_pylist()
    rates = {r["device"]: float(r["loaded_usd_h"]) for r in priced if r["loaded_usd_h"] is not None}
    result = compare(truth, courses(truth, scripts), found, rates)
    said = [f.usd for f in found if f.usd is not None]
    return Planted(
        planted_gpu_hours=result.planted_gpu_hours,
        found_gpu_hours=result.found_gpu_hours,
        planted_usd=result.planted_usd,
        found_usd=sum(said, Decimal()) if said else None,
        precision=result.precision,
        recall=result.recall,
        false_alarms=result.false_alarms,
    )

"""Run `fallow demo`: a simulated fleet through the same warehouse, ledger and analyzers.

Deterministic: one seed and one end, one story. The end is also the demo's "now".
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dashboards.waste_report import PlantedScore
from fallow import money
from fallow.models import Finding
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from runtime.experiments.demo_actions import (
    LEAST_S,
    POLICIES,
    ActingFleet,
    store_actions,
    write_policies,
)
from runtime.experiments.demo_cluster import build_world, open_world_log
from runtime.experiments.demo_history import write_older_weeks
from runtime.experiments.demo_home import replace_demo_home
from runtime.experiments.demo_plants import (
    CLUSTER,
    DAY_S,
    build_settings,
)
from runtime.experiments.demo_process import load_demo_settings, open_second_process
from runtime.experiments.demo_rows import SAMPLE_EVERY_S, PolledInventory, open_fleet_store
from runtime.experiments.demo_small_clusters import CLUSTERS as SMALL_CLUSTERS
from runtime.experiments.demo_small_clusters import LEAST_S as LEAST_CLUSTERS_S
from runtime.experiments.demo_small_clusters import describe_small_clusters
from runtime.experiments.planting import compare
from runtime.experiments.truth import Truth, gather, list_courses
from runtime.operations.accounting import pipeline, reconcile
from runtime.operations.accounting.prices import read_configured_rates
from runtime.operations.acting import plans
from runtime.operations.analysis import analyzer_runs
from runtime.operations.analysis.incidents import STALLED, store_incidents
from runtime.operations.analysis.story import build_story
from runtime.rendering.finding_tables import Progress
from simulator.blocks import join_blocks
from simulator.exporters.quirks import Quirks
from simulator.models import Block
from simulator.restore import build_checkpoint
from simulator.work.behaviours import Script
from simulator.world import World
from simulator.world_log import WorldLog
from warehouse.lake import Warehouse
from warehouse.pricing import derive_device_rates
from warehouse.spend import read_spend

if TYPE_CHECKING:
    from actions.policy.model import Policy
    from dashboards.waste_report import Story

END = datetime(2026, 11, 16, tzinfo=UTC)
"""The end that documents and tests use, a Monday; prices and ages are those of that time."""
IDLE = "idle"
"""The analyzer whose findings are compared with the planted idle time."""
FIRST_STEP_S, STEP_S = DAY_S, 2.5 * DAY_S
"""Rows are stored in few steps: each is a file of every table, and a list of all objects. The first
one is short, because storing begins only after it."""
LIVES = "letting the fleet live"
"""What progress shows while the fleet is simulated and its rows are stored."""
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
    has_history: bool = False,
) -> "Story":
    """Simulate the fleet until `end`, process its rows, and return its story.

    With `acts` a policy acts in it if it lasts for `LEAST_S`; with `has_history` a demo of a week
    has a ledger of five. The warehouse is kept in `home`, in place of an earlier demo's: see
    `check_demo_home`.

    Raises:
        TemporaryError: another demo is writing into `home`.
    """
    window = Window(end - timedelta(days=days), end)
    # A site's fallow.yaml may name its real warehouse: the demo must not write there.
    with replace_demo_home(home, build_settings(home, window)):
        settings = load_demo_settings(home)
        if acts:
            write_policies(settings.actions.policies)
        acting = acts and window.seconds >= LEAST_S
        rules = plans.load_policies(settings, [POLICIES]) if acting else ()
        has_past = has_history and window.seconds >= LEAST_CLUSTERS_S
        return _run_path(settings, gpus, window, seed, progress, rules, has_past)


def _store_prices(warehouse: Warehouse, settings: Settings, at: datetime) -> None:
    for cluster in (settings.cluster, *SMALL_CLUSTERS):
        priced = settings.model_copy(update={"cluster": cluster})
        pipeline.price(warehouse, read_configured_rates(priced, at))


def _run_path(  # noqa: PLR0917  (one caller)
    settings: Settings,
    gpus: int,
    window: Window,
    seed: int,
    progress: Progress,
    rules: "Sequence[Policy]",
    has_past: bool,
) -> "Story":
    has_small = window.seconds >= LEAST_CLUSTERS_S
    with (
        Warehouse.open(settings, write=True, clock=lambda: window.end) as warehouse,
        open_second_process(settings.home) if rules or has_small else nullcontext() as second,
        ThreadPoolExecutor(1, thread_name_prefix="beside") as pool,
    ):
        others = second.simulate_small_clusters(window.end, seed) if second and has_small else None
        _store_prices(warehouse, settings, window.end)
        with open_world_log(settings.home, gpus, window, seed) as log:
            truth, scripts, world = run_fleet(
                warehouse, gpus, window, seed, progress, policies=rules, log=log, others=others
            )
            log.append(build_checkpoint(world))
        progress("writing the ledger", 0.6)
        backtests = second.run_backtests(warehouse, window, POLICIES) if second and rules else None
        failures = pipeline.account(warehouse, window)[1]
        if has_past:
            failures += write_older_weeks(warehouse, window)
        progress("finding waste", 0.9)
        analysis = pipeline.analyze(
            warehouse,
            window,
            analyzer_runs.load_analyzers(settings),
            second.run_analyzers(warehouse, window) if second else {},
        )
        own_findings = [f for f in analysis.findings if f.subject.cluster == CLUSTER]
        stalls = [finding for finding in analysis.findings if finding.analyzer == STALLED]
        incidents = pool.submit(store_incidents, warehouse, window, stalls, window.end)
        planted = pool.submit(
            compare_planted,
            warehouse,
            window,
            truth,
            scripts,
            own_findings,
            unadvised_gpu_hours=analysis.waterfall.unadvised.get(CLUSTER, 0.0),
        )
        progress("measuring actions", 0.95)
        if backtests is not None:
            store_actions(warehouse, settings, window, backtests.result(), own_findings)
        incidents.result()
        return build_story(
            warehouse,
            window,
            cluster=CLUSTER,
            findings=[finding for finding in own_findings if finding.analyzer == IDLE],
            others=[
                row
                for row in analysis.ranked
                if row.finding.subject.cluster == CLUSTER and row.finding.analyzer != IDLE
            ],
            failures=failures,
            planted=planted.result(),
            savings=reconcile.describe_savings(warehouse, window, CLUSTER),
            notes=[describe_small_clusters(analysis.findings)] if has_small else (),
        )


def run_fleet(
    warehouse: "Warehouse",
    gpus: int,
    window: Window,
    seed: int,
    progress: Progress,
    *,
    policies: "Sequence[Policy]" = (),
    log: WorldLog | None = None,
    others: "Future[list[Batch]] | None" = None,
) -> tuple[Truth, dict[str, Script], World]:
    """Run the fleet through the window, store its rows, and keep the truth.

    The policies act on it after a day; without policies nothing acts. What happens to the fleet is
    written into `log`, if there is one. `others`: rows of other clusters to store beside its own.
    """
    world = build_world(gpus, window, seed)
    world.log = log
    scripts: dict[str, Script] = {}
    blocks = _list_blocks(warehouse, world, window, scripts, progress, policies, others)
    truth = gather(blocks, ())
    truth = msgspec.structs.replace(truth, allocations=tuple(world.cluster.allocations))
    return truth, scripts, world


def _list_blocks(  # noqa: PLR0917  (one caller)
    warehouse: "Warehouse",
    world: World,
    window: Window,
    scripts: dict[str, Script],
    progress: Progress,
    policies: "Sequence[Policy]",
    others: "Future[list[Batch]] | None",
) -> Iterator[Block]:
    quirks = Quirks.of(QUIRKS, world.seed)
    inventory = PolledInventory(world)
    end_s = window.end.timestamp()
    unstored: list[Block] = []
    since_s = world.now_s
    with ExitStack() as stack:
        store = stack.enter_context(open_fleet_store(warehouse, world, quirks, inventory))
        fleet = None
        if policies:
            progress("letting a policy act", 0.0)
            fleet = stack.enter_context(
                ActingFleet(
                    warehouse,
                    world,
                    quirks,
                    warehouse.settings,
                    policies,
                    sample_every_s=SAMPLE_EVERY_S,
                    inventory=inventory,
                )
            )
            fleet.begin()
        if others is not None:
            store.add_later(others)
        if fleet is not None:
            yield from fleet.act()
            scripts.update(fleet.scripts)
            unstored, since_s = [fleet.take_unstored()], fleet.stored_s
        step_s = FIRST_STEP_S
        while world.now_s < end_s:
            progress(LIVES, 0.2 + 0.4 * (world.now_s - window.start.timestamp()) / window.seconds)
            block = world.advance(min(world.now_s + step_s, end_s))
            step_s = STEP_S
            scripts.update(world.cast.scripts)
            store.add(join_blocks([*unstored, block]), since_s, scripts)
            unstored, since_s = [], world.now_s
            yield block
        store.wait()
        if fleet is not None:
            fleet.finish()


def compare_planted(
    warehouse: "Warehouse",
    window: Window,
    truth: Truth,
    scripts: dict[str, Script],
    findings: Sequence[Finding],
    *,
    unadvised_gpu_hours: float = 0.0,
) -> "PlantedScore":
    """Compare findings of idle time with the truth and with the ledger, at the ledger's prices.

    Findings of other analyzers count where they claim idle hours of the ledger. An hour counts
    once: `unadvised_gpu_hours` are the idle hours that findings without recommendations leave to
    no other finding (`SavingsWaterfall.unadvised_gpu_hours`).
    """
    idle_findings = [finding for finding in findings if finding.analyzer == IDLE]
    in_idle, in_others = split_idle_hours(findings, unadvised_gpu_hours)
    priced = derive_device_rates(warehouse, window).to_pylist()
    rates = {r["device"]: float(r["loaded_usd_h"]) for r in priced if r["loaded_usd_h"] is not None}
    result = compare(truth, list_courses(truth, scripts), idle_findings, rates)
    idle = sum(
        row["gpu_hours"]
        for row in read_spend(warehouse, window, ["state"], cluster=CLUSTER).to_pylist()
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
        not_idle_gpu_hours=_snap(max(0.0, result.found_gpu_hours - in_idle)),
        others_gpu_hours=_snap(in_others),
    )


def _snap(hours: float) -> float:
    """Return hours without the noise of a sum of floats in no fixed order."""
    return round(hours, money.MICRO_HOURS)


def split_idle_hours(
    findings: Iterable[Finding], unadvised_gpu_hours: float
) -> tuple[float, float]:
    """Return the ledger's idle hours in findings of idle time, and in those of other analyzers.

    Each hour counts once. A finding without recommendations claims nothing, so that another one may
    claim its hours: all such findings together have what the waterfall leaves to them.
    """
    claimed = {True: unadvised_gpu_hours, False: 0.0}
    for finding in findings:
        for advice in finding.recommendations:
            claimed[finding.analyzer == IDLE] += advice.marginal_idle_gpu_hours or 0.0
    return claimed[True], claimed[False]

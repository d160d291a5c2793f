"""Measure one world per seed, collected with quirks: the scores of Fallow and of other tools."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec

from analyzers.idle.analyzer import IdleAnalyzer
from benchmarks import peer_rules as peers
from benchmarks.accuracy_collection import find_actionable_time, read_verdicts, run_world
from benchmarks.accuracy_scores import Score, score
from fallow.system.process_folders import open_temporary_folder
from fallow.window import Window
from runtime.experiments.truth import list_courses
from runtime.experiments.world_inventory import isolate_settings
from simulator.cluster.nodes import build_fleet
from simulator.exporters.quirks import Quirks
from simulator.world import Spec, World
from warehouse.lake import Warehouse

START = datetime(2026, 11, 2, tzinfo=UTC)
"""A Monday."""
FALLOW = "Fallow"
PRUNER_ALL_LABELS = msgspec.structs.replace(
    peers.GPU_PRUNER, name="gpu-pruner, reading all labels", labels_matter=False
)
RULES = (peers.GPU_PRUNER, PRUNER_ALL_LABELS, peers.PRINCETON)


def measure(seed: int, *, gpus: int, days: float, quirks: Sequence[str] = ("all",)) -> list[Score]:
    """Return the scores of Fallow and the other tools in one world; its warehouse is deleted.

    Raises:
        UsageError: no such quirk, or a fleet without GPUs.
    """
    window = Window(START, START + timedelta(days=days))
    planted_quirks = Quirks.of(quirks, seed)
    world = World(Spec(nodes=build_fleet(gpus), start_s=START.timestamp()), seed)
    with open_temporary_folder("accuracy") as folder:
        settings = isolate_settings(folder)
        with Warehouse.open(settings, write=True, clock=lambda: window.end) as warehouse:
            truth, scripts = run_world(warehouse, world, window, planted_quirks)
            owner_courses = list_courses(truth, scripts)
            scoring = partial(
                score,
                truth=truth,
                courses=owner_courses,
                window_s=settings.idle.min_duration.total_seconds(),
                ripe_s=find_actionable_time(settings.idle),
            )
            verdicts, held_back = read_verdicts(IdleAnalyzer(settings.idle), warehouse, window)
            scores = [scoring(FALLOW, verdicts=verdicts, vetoed=held_back)]
            nodes = [device.node for device in truth.devices]
            for rule in RULES:
                blind = peers.list_unreadable_nodes(rule, nodes, planted_quirks, window)
                peer_verdicts = peers.read_verdicts(warehouse, window, rule, blind=blind)
                scores.append(scoring(rule.name, verdicts=peer_verdicts))
    return scores

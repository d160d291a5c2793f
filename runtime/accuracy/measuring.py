"""One world per seed, watched with quirks, and what Fallow and its peers would have said of it."""

import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import msgspec

from fallow.window import Window
from runtime.accuracy import peers
from runtime.accuracy.scoring import Score, score
from runtime.accuracy.truth import courses
from runtime.accuracy.watching import isolated, ripening, said, watch
from simulator.cluster.nodes import fleet
from simulator.exporters.quirks import Quirks
from simulator.world import Spec, World

START = datetime(2026, 11, 2, tzinfo=UTC)
"""A Monday."""
FALLOW = "Fallow"
SIGHTED = msgspec.structs.replace(
    peers.GPU_PRUNER, name="gpu-pruner, reading all labels", labels_matter=False
)
RULES = (peers.GPU_PRUNER, SIGHTED, peers.PRINCETON)


def measure(seed: int, *, gpus: int, days: float, quirks: Sequence[str] = ("all",)) -> list[Score]:
    """Return Fallow's score and its peers' in one world; the warehouse is gone afterwards.

    Raises:
        UsageError: no such quirk, or a fleet without GPUs.
    """
    from analyzers.idle import IdleAnalyzer  # noqa: PLC0415  (frames and engine load in 0.5 s)
    from warehouse.lake import Warehouse  # noqa: PLC0415

    window = Window(START, START + timedelta(days=days))
    struck = Quirks.of(quirks, seed)
    world = World(Spec(nodes=fleet(gpus), start_s=START.timestamp()), seed)
    with tempfile.TemporaryDirectory(prefix="fallow-accuracy-") as folder:
        settings = isolated(Path(folder))
        with Warehouse.open(settings, write=True, clock=lambda: window.end) as warehouse:
            truth, scripts = watch(warehouse, world, window, struck)
            known = courses(truth, scripts)
            scoring = partial(
                score,
                truth=truth,
                courses=known,
                window_s=settings.idle.min_duration.total_seconds(),
                ripe_s=ripening(settings.idle),
            )
            given, held_back = said(IdleAnalyzer(settings.idle), warehouse, window)
            scores = [scoring(FALLOW, verdicts=given, vetoed=held_back)]
            nodes = [device.node for device in truth.devices]
            for rule in RULES:
                blind = peers.invisible(rule, nodes, struck, window)
                theirs = peers.verdicts(warehouse, window, rule, blind=blind)
                scores.append(scoring(rule.name, verdicts=theirs))
    return scores

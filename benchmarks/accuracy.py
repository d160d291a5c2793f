"""Fallow's idle verdicts and its peers' rules against the truth of simulated worlds.

One world per seed, every quirk of telemetry on at its table's rate, samples every 30 s. A world is
a slice, two at a time. What the figures mean: `accuracy_scores.py` and
docs/accuracy.md.
"""

import statistics
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial

from benchmarks.accuracy_scores import Score, pool_scores
from benchmarks.accuracy_worlds import FALLOW, measure
from benchmarks.result import Result
from benchmarks.sensor_accuracy import SensorHours, measure_sensors
from warehouse.runners.local import LocalRunner

WORKERS = 2
SEEDS = (1, 2, 3, 4, 5)
GPUS, DAYS = 96, 7.0


def run(small: bool) -> list[Result]:
    """Measure five worlds of 96 GPUs over a week; small: one of 48 over a day and a half."""
    seeds, gpus, days = ((1,), 48, 1.5) if small else (SEEDS, GPUS, DAYS)
    worlds = measure_worlds(seeds, gpus=gpus, days=days)
    out = []
    for place, judge in enumerate(s.judge for s in worlds[0]):
        world_scores = [world[place] for world in worlds]
        out += _build_results(judge, pool_scores(world_scores), world_scores)
    return out + _build_sensor_results(measure_sensors(1, hours=9 if small else 27))


def _build_sensor_results(nodes: Sequence[SensorHours]) -> list[Result]:
    """Return what the ledger says of real' sensors (`sensors.csv`)."""
    live = [n for n in nodes if n.spec.work == "idle-node" and not n.spec.frozen]
    twins = [n for n in nodes if n.spec.frozen]
    offloading = [n for n in nodes if n.spec.work == "offloading"]
    wedged = [n for n in nodes if n.spec.work == "wedged"]
    figures: list[tuple[str, Sequence[SensorHours], float, float | None, bool]] = [
        ("idle GPUs: share of their hours idle", live, _share(live, "idle"), 0.99, False),
        ("their frozen twins: hours idle, not counted apart", twins,
         sum(n.ledger.get("idle", 0.0) - n.doubted for n in twins), 0, True),
        ("their frozen twins: hours idle, counted apart", twins,
         sum(n.doubted for n in twins), None, True),
        ("idle GPUs: hours counted apart", live, sum(n.doubted for n in live), None, True),
        ("bursts that a gauge misses: share of the hours idle", offloading,
         _share(offloading, "idle"), 0.005, True),
        ("bursts that a gauge misses: idle findings", offloading, _count_idle(offloading), 0, True),
        ("wedged servers: share of the hours productive", wedged, _share(wedged, "productive"), 0,
         True),
    ]  # fmt: skip
    return [
        Result(name=name, value=value, unit="", reach=reach, at_most=at_most,
               note=f"of {sum(n.hours for n in of):.0f} GPU-h on {len(of)} nodes")
        for name, of, value, reach, at_most in figures
    ]  # fmt: skip


def _share(nodes: Sequence[SensorHours], state: str) -> float:
    return sum(n.ledger.get(state, 0.0) for n in nodes) / sum(n.hours for n in nodes)


def _count_idle(nodes: Sequence[SensorHours]) -> float:
    return float(sum(kind.startswith("idle") for n in nodes for kind in n.findings))


def measure_worlds(seeds: Sequence[int], *, gpus: int, days: float) -> list[list[Score]]:
    """Return the scores of each seed's world; a single one runs in this process."""
    task = partial(measure, gpus=gpus, days=days)
    if len(seeds) == 1:
        return [task(seeds[0])]
    with closing(LocalRunner(min(WORKERS, len(seeds)))) as workers:
        return workers.map(task, seeds)


def _build_results(judge: str, whole: Score, each: list[Score]) -> list[Result]:
    ours = judge == FALLOW
    worst = min(each, key=lambda s: s.precision)
    delays = sorted(whole.delays_s) or [0.0]
    missed, held_back = _format_list(whole.missed), _format_list(whole.held_back)
    harmed_owners = sorted({f"{h.owner[1]}/{h.owner[2]}" for h in whole.harms})
    return [
        Result(
            name=f"{judge}: precision of actionable verdicts",
            value=whole.precision,
            unit="",
            reach=0.99 if ours else None,
            at_most=False,
            note=f"of {whole.actionable:.0f} GPU-h; worst seed {worst.precision:.4f}",
        ),
        Result(
            name=f"{judge}: harmful stops",
            value=len(whole.harms),
            unit="",
            reach=0 if ours else None,
            note=f"of {whole.episodes} actionable verdicts{': ' if harmed_owners else ''}"
            + ", ".join(harmed_owners[:3]),
        ),
        Result(
            name=f"{judge}: recall, confirmed",
            value=whole.recall,
            unit="",
            reach=0.9 if ours else None,
            at_most=False,
            note=f"of {whole.due:.0f} GPU-h; worst seed {min(s.recall for s in each):.3f}"
            + (f"; missed: {missed}" if ours and missed else ""),
        ),
        Result(
            name=f"{judge}: recall, actionable",
            value=whole.actionable_recall,
            unit="",
            note=f"of {whole.due:.0f} GPU-h, whatever its kind's own wait",
        ),
        Result(
            name=f"{judge}: recall, actionable, after its kind's wait",
            value=whole.ripe_recall,
            unit="",
            note=f"of {whole.ripe:.0f} GPU-h; worst seed {min(s.ripe_recall for s in each):.3f}; "
            + (f"held back: {held_back}; " if ours and held_back else "")
            + f"first actionable after {statistics.median(delays) / 60:.0f} min (median), "
            f"{delays[int(0.95 * (len(delays) - 1))] / 60:.0f} min (95 %)",
        ),
        *(
            [
                Result(
                    name=f"{judge}: precision of partly idle verdicts",
                    value=whole.part_true / whole.part,
                    unit="",
                    note=f"of {whole.part:.0f} GPU-h",
                )
            ]
            if whole.part
            else []
        ),
    ]


def _format_list(hours: Mapping[str, float]) -> str:
    return ", ".join(f"{n:.0f} h {why}" for why, n in list(hours.items())[:4])

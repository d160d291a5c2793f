"""What an idle finding calls idle is `idle` in the ledger: over worlds, by the path of a site.

Simulated fleets with faulty exporters, and random series that stand at the bounds of every rule,
are stored, accounted and analyzed. Then each finding's time is laid over the ledger's states of
the same devices.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from analyzers.idle.judge import judge_window
from analyzers.idle.rows import list_stretches
from benchmarks.accuracy_collection import run_world
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from runtime.experiments.world_inventory import isolate_settings
from runtime.operations.accounting import pipeline
from simulator.cluster.nodes import build_nodes
from simulator.exporters.quirks import Quirks
from simulator.world import Spec, World
from warehouse import ledger
from warehouse.lake import Warehouse

pytestmark = pytest.mark.slow

START = datetime(2026, 11, 2, tzinfo=UTC)
MICRO = 1_000_000
BUCKET_US = 300 * MICRO
WORK = ("low", "productive", "startup", "lost")
"""States that no finding of idleness may contain."""
FAULTS = (
    "exporter-down:rate=0.5", "exporter-restart:rate=0.5", "stale-series:rate=0.3,length_s=7200",
    "sentinels:rate=0.3", "time-slicing-copies", "mig-labels", "missing-pod-labels:rate=0.3",
    "duplicate-scrapes:rate=0.3", "gr-engine-stuck-zero", "counter-reset",
)  # fmt: skip
POOLS = {"h100": 1, "a100": 1, "l40s": 1, "l4-shared": 1, "h100-mig": 1}
"""32 GPUs: whole ones, MIG instances and time-sliced ones."""


class Overlap(msgspec.Struct, frozen=True):
    """One finding, or verdict, on one device: seconds of its time by the ledger's states."""

    case: int
    gpu_s: float
    """GPU-seconds of the whole finding, on all of its devices."""
    workload: str
    device: str
    weight: float
    verdict: str
    evidence: str | None
    reasons: tuple[str, ...]
    interval_s: float
    seconds: float
    idle_s: float
    """Seconds of it that are `idle` in the ledger, at most."""
    work_s: float
    """Seconds of it that only states of `WORK` can account for."""


def overlaps(warehouse: Warehouse, window: Window) -> list[Overlap]:
    """Judge a window, and lay every verdict over the ledger in five-minute steps."""
    ledger.write_ledger(warehouse, window, "5m")
    states: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in warehouse.query(
        "SELECT epoch_us(bucket) AS bucket_us, device, namespace, workload_kind, workload, state, "
        "sum(seconds) AS seconds FROM ledger GROUP BY ALL"
    ).to_pylist():
        key = (row["bucket_us"], row["device"], *(row[n] for n in OWNER))
        states.setdefault(key, {})[row["state"]] = row["seconds"]
    shares = {
        (row["device"], *(row[n] for n in OWNER)): row["share"]
        for row in warehouse.query(
            "SELECT device, namespace, workload_kind, workload, max(share) AS share "
            "FROM allocation GROUP BY ALL"
        ).to_pylist()
    }
    judged = judge_window(warehouse, window, [window.end], warehouse.settings.idle, over=True)
    found = []
    for row in list_stretches(judged.rows):
        owner = tuple(getattr(row, name) for name in OWNER)
        for number in row.numbers:
            device = judged.devices[number]
            share = shares[device.device, *owner]
            total = idle = work = 0.0
            for bucket in range(row.start // BUCKET_US * BUCKET_US, row.end, BUCKET_US):
                named = states.get((bucket, device.device, *owner), {})
                inside = min(row.end, bucket + BUCKET_US) - max(row.start, bucket)
                seconds = inside / MICRO * share
                total += seconds
                idle += min(seconds, named.get("idle", 0.0))
                rest = seconds - named.get("idle", 0.0)
                work += max(0.0, min(rest, sum(named.get(state, 0.0) for state in WORK)))
            found.append(
                Overlap(
                    row.case, row.gpu_us / MICRO, row.workload, device.device,
                    device.weight, row.verdict, row.evidence,
                    judged.judgements[row.judgement][1].reasons,
                    (device.interval_s or 60.0) * share, total, idle, work,
                )
            )  # fmt: skip
    return found


OWNER = ("namespace", "workload_kind", "workload")


def check(found: list[Overlap]) -> None:
    """Say that no finding has time of work, but for a reading's length at each of its ends.

    A reading speaks until the next one in the ledger, and somewhat longer where that is late: work
    before a stretch reaches into its first reading, and what follows it begins within its last.
    """
    wrong = [o for o in found if o.evidence and o.work_s > 2 * o.interval_s]
    assert not wrong
    for case in {o.case for o in found if o.evidence}:
        devices = [o for o in found if o.case == case]
        idle = sum(o.weight * (o.idle_s + 2 * o.interval_s) for o in devices)
        assert devices[0].gpu_s <= idle, "no GPU-hour of a finding is of silence, or of work"
    busy = [o for o in found if o.verdict == "busy" and o.reasons[0].startswith("the devices")]
    assert not [o for o in busy if o.idle_s > 2 * o.interval_s]


# tests/runtime/test_demo.py: the hours found and the ledger's idle hours of a fleet add up.
@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_a_simulated_fleet_with_faulty_exporters(tmp_path: Any, seed: int) -> None:
    window = Window(START, START + timedelta(days=1))
    world = World(Spec(nodes=build_nodes(POOLS), start_s=START.timestamp()), seed)
    settings = isolate_settings(tmp_path, threads=2)
    with Warehouse.open_in_memory(settings, clock=lambda: window.end) as warehouse:
        run_world(warehouse, world, window, Quirks.of(FAULTS, seed))
        found = overlaps(warehouse, window)
    check(found)
    assert len([o for o in found if o.evidence]) > 30, "the world has idle workloads"
    idle = sum(o.idle_s for o in found if o.evidence) / sum(o.seconds for o in found if o.evidence)
    assert idle > 0.995, "what is left is silence: unknown"


def spells(rng: np.random.Generator, hours: float) -> Iterator[tuple[str, float]]:
    """Yield what a device does, one after another: a kind and minutes, each near some bound."""
    kinds = ("rest", "work", "blips", "warm blips", "steady", "faint", "frozen", "burst", "silence")
    left = hours * 60
    while left > 0:
        kind = str(rng.choice(kinds, p=(0.3, 0.1, 0.15, 0.15, 0.1, 0.05, 0.05, 0.05, 0.05)))
        minutes = min(left, 3 if kind == "silence" else float(rng.choice((4, 20, 33, 70, 150))))
        yield kind, minutes
        left -= minutes


def series(rng: np.random.Generator, every: int, hours: float) -> pl.DataFrame:
    """Return one device's samples of random spells."""
    parts = []
    at = 0.0
    for kind, minutes in spells(rng, hours):
        count = round(minutes * 60 / every)
        activity, watts = np.zeros(count), 110 + rng.normal(0, 0.2, count)
        counted = watts.copy()
        if kind == "work":
            activity, watts = np.full(count, 0.9), 600 + rng.normal(0, 5, count)
        elif kind == "burst":
            on = rng.random(count) < 0.2
            activity, watts = np.where(on, 0.7, 0.0), np.where(on, 350, 124) + watts - 110
        elif kind.endswith("blips"):
            on = rng.random(count) < rng.choice((0.01, 0.05, 0.12))
            activity = np.where(on, rng.choice((0.06, 0.2, 0.9)), 0.0)
            watts = watts + (15 if kind == "warm blips" else 0)
        elif kind in {"steady", "faint"}:
            share = 1.0 if kind == "steady" else rng.choice((0.45, 0.55))
            activity = np.where(rng.random(count) < share, 0.03, 0.0)
            watts = watts + rng.choice((0.5, 3, 25))
        elif kind == "frozen":
            watts, counted = np.full(count, 113.127), np.zeros(count)
        counted = counted if kind == "frozen" else watts
        if kind != "silence":
            parts.append(
                pl.DataFrame(
                    {
                        "seconds": at + every * np.arange(count), "gr_engine_active": activity,
                        "power_w": watts, "millijoules": counted * every * 1000,
                    }
                )
            )  # fmt: skip
        at += every * count
    shown = pl.concat(parts)
    # Every hundredth scrape is lost.
    shown = shown.filter(pl.Series(rng.random(shown.height) > 0.01))
    return shown.with_columns(energy_mj=pl.col("millijoules").cum_sum().cast(pl.Int64))


def batch(seed: int, every: int, hours: float, devices: int) -> Batch:
    """Return the samples of devices with a pod each, some of them with a second one later."""
    rng = np.random.default_rng(seed)
    frames = []
    for number in range(devices):
        shown = series(rng, every, hours)
        change = rng.choice((hours, hours / 2)) * 3600
        second = (pl.col("seconds") >= change).cast(pl.Int8).cast(pl.String)
        frames.append(
            shown.select(
                "gr_engine_active", "power_w", "energy_mj",
                ts=pl.lit(START.replace(tzinfo=None))
                + pl.duration(microseconds=(pl.col("seconds") * MICRO).cast(pl.Int64)),
                device=pl.lit(f"GPU-{number}"),
                pod=pl.lit(f"pod-{number}-") + second,
            )
        )  # fmt: skip
    rows = pl.concat(frames).with_columns(
        cluster=pl.lit("c"), node=pl.lit("n"), vendor=pl.lit("nvidia"), namespace=pl.lit("ns"),
        model=pl.lit("NVIDIA H100 80GB HBM3"), interval_s=pl.lit(float(every)),
        mem_used_bytes=pl.lit(20 << 30), mem_free_bytes=pl.lit(60 << 30),
    )  # fmt: skip
    columns = {name: rows[name].to_arrow() for name in rows.columns}
    columns["ts"] = columns["ts"].cast(pa.timestamp("us"))
    return Batch.of("sample", columns)


# The same rules at other intervals and seeds: 60 s is in every run.
OTHER_INTERVALS = [pytest.param(*other, marks=pytest.mark.long) for other in ((1, 15), (2, 30))]


@pytest.mark.parametrize(("seed", "every"), [(3, 60), *OTHER_INTERVALS])
def test_series_at_the_bounds_of_every_rule(settings: Settings, seed: int, every: int) -> None:
    window = Window(START, START + timedelta(hours=30))
    with Warehouse.open_in_memory(settings) as warehouse:
        warehouse.ingest([batch(seed, every, 30, 24)])
        _, failures = pipeline.account(warehouse, window)
        assert not failures
        found = overlaps(warehouse, window)
    assert len([o for o in found if o.evidence]) > 20
    check(found)

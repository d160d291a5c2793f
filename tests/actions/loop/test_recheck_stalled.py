"""The last readings of a stalled job: what moved, what is silent, what still hangs."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from actions.loop.recheck import Recheck
from actions.loop.recheck_stalled import StalledReading, judge_stalled, read_stalled_readings
from fallow.action_models import Facts, PodRef
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from tests.actions import cases
from tests.analyzers.gangs import SHOWN
from warehouse.lake import Warehouse

pytestmark = pytest.mark.slow

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
START = NOW - timedelta(minutes=30)
PROGRESS = {"metric": "train_global_step", "value": 130.0, "since": "2026-11-20T11:30:00Z"}


def facts(**details: Any) -> Facts:
    about = {"devices": ["GPU-1", "GPU-2"], "progress": PROGRESS, **details}
    found = cases.finding("Job", details=about, window=Window(START, NOW), namespace="ml")
    return cases.facts(finding=found, pods=(PodRef("t-0"), PodRef("t-1")))


def reading(signal: str, about: str, *, age_s: float = 30, active: bool = False) -> StalledReading:
    return StalledReading(signal, about, NOW - timedelta(seconds=age_s), 60.0, None, active)


HANGS = [
    reading("device", "GPU-1"),
    reading("device", "GPU-2"),
    reading("progress", "t-0 train_global_step"),
]


def test_a_job_of_which_nothing_moved_is_still_stalled() -> None:
    assert judge_stalled(HANGS, facts(), NOW) == Recheck()


@pytest.mark.parametrize(
    ("last", "text"),
    [
        (reading("device", "GPU-2", active=True), "GPU-2 was seen at work"),
        (reading("progress", "t-0 train_global_step", active=True), "its progress went on"),
        (reading("file writes", "t-1", active=True), "t-1 writes files"),
    ],
)
def test_whatever_moved_leaves_the_job_alone(last: StalledReading, text: str) -> None:
    (why,) = judge_stalled([*HANGS, last], facts(), NOW).active
    assert why.startswith(text)


@pytest.mark.parametrize(("age_s", "old"), [(90, False), (91, True)])
@pytest.mark.parametrize("signal", ["device", "progress"])
def test_a_rank_or_a_series_that_fell_silent_holds(signal: str, age_s: int, *, old: bool) -> None:
    others = [r for r in HANGS if r.signal != signal or r.about != "GPU-1"]
    about = "GPU-1" if signal == "device" else "t-0 train_global_step"
    if signal == "progress":
        others = HANGS[:2]
    judged = judge_stalled([*others, reading(signal, about, age_s=age_s)], facts(), NOW)
    assert (bool(judged.stale), judged.active) == (old, ())


def test_what_is_not_seen_at_all_holds() -> None:
    assert judge_stalled(HANGS[1:], facts(), NOW).stale == ("GPU-1 of the hang has no sample",)
    (why,) = judge_stalled(HANGS[:2], facts(), NOW).stale
    assert why == "its progress, which stood still, is not reported any more"
    assert judge_stalled(HANGS, facts(devices=[]), NOW).stale


@pytest.mark.parametrize(
    ("shown", "steps", "writes", "active"),
    [
        ({}, (130, 130), 1e6, set()),
        ({"tensor_active": 0.01}, (130, 130), 1e6, set()),
        ({"tensor_active": 0.011}, (130, 130), 1e6, {"device"}),
        ({"dram_active": 0.021}, (130, 130), 1e6, {"device"}),
        ({"sm_active": 0.31}, (130, 130), 1e6, {"device"}),
        ({"pcie_tx_bps": 1e6}, (130, 130), 1e6, {"device"}),
        ({}, (130, 131), 1e6, {"progress"}),
        ({}, (130, 130), 20e6, {"file writes"}),
    ],
)
def test_the_last_rows_of_the_warehouse_are_read(
    settings: Settings, shown: dict[str, float], steps: tuple[int, int], writes: float,
    active: set[str],
) -> None:  # fmt: skip
    naive = NOW.replace(tzinfo=None)
    minute = timedelta(minutes=1)
    with Warehouse.open_in_memory(settings, clock=lambda: NOW) as warehouse:
        spin = {name: [value, {**SHOWN["spin"], **shown}[name]] for name, value in
                SHOWN["spin"].items()}  # fmt: skip
        warehouse.ingest(
            [
                Batch.of(
                    "sample",
                    {
                        "cluster": ["c"] * 2, "ts": [naive - 2 * minute, naive - minute],
                        "device": ["GPU-1"] * 2, "node": ["n"] * 2, "namespace": ["ml"] * 2,
                        "pod": ["t-0"] * 2, "interval_s": [60.0] * 2, **spin,
                    },
                ),
                Batch.of(
                    "progress_sample",
                    {
                        "cluster": ["c"] * 2, "ts": [naive - 2 * minute, naive - minute],
                        "namespace": ["ml"] * 2, "pod": ["t-0"] * 2,
                        "metric": ["train_global_step"] * 2, "value": [float(s) for s in steps],
                        "interval_s": [60.0] * 2,
                    },
                ),
                Batch.of(
                    "pod_sample",
                    {
                        "cluster": ["c"], "ts": [naive - minute], "namespace": ["ml"],
                        "pod": ["t-1"], "interval_s": [60.0], "fs_write_bps": [writes],
                    },
                ),
            ]
        )  # fmt: skip
        rows = read_stalled_readings(warehouse, facts(), NOW, burst_bps=20e6)
    assert {r.signal for r in rows} == {"device", "progress", "file writes"}
    assert {r.signal for r in rows if r.is_active} == active

"""The simulator plants hangs, each beside a near twin: the hangs are found, the twins never."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from analyzers.stalled.analyzer import StalledAnalyzer
from fallow.window import Window
from simulator.exporters.device_rows import build_rows
from simulator.exporters.quirks import Quirks
from simulator.models import TICK_S, DeviceAllocation, Holder, SimulatedDevice
from simulator.work.behaviours import Script, build_script
from simulator.work.kinds import read_kinds
from simulator.work.levels import count_steps
from simulator.work.plans import WorkPlan
from simulator.work.signals import compute_signals
from tests.analyzers.conftest import Memory

BEGIN = datetime(2026, 11, 16, tzinfo=UTC)
RANKS = 4
MINUTE = timedelta(minutes=1)
HOURS = 9
HANG = {"hang_after_s": 7200.0}
HANGS: dict[str, dict[str, float]] = {
    "hung training": HANG,
    "spinning training": HANG,
    "deserted training": HANG,
}
TWINS = (
    "training",
    "evaluating training",
    "saving training",
    "data-preparing training",
    "communicating training",
    "straggling training",
    "input-bound training",
)


def views_of(
    behaviour: str, params: Mapping[str, float] | None = None, *, progress: bool = True
) -> tuple[Memory, list[Script]]:
    """Return tables of what one gang shows in some hours, and what it truly does."""
    start = BEGIN.timestamp()
    ticks = start + TICK_S * np.arange(1, round(HOURS * 3600 / TICK_S), dtype=float)
    devices = [SimulatedDevice(f"GPU-{n}", f"n{n}", 0, "H100") for n in range(RANKS)]
    plans = [
        WorkPlan(behaviour, 4, ranks=RANKS, params={**(params or {})}, first_rank=n, pod_ranks=1)
        for n in range(RANKS)
    ]
    scripts = [build_script(plan, start) for plan in plans]
    holders = [
        Holder(f"u{n}", "ml", f"job-{n}", "main", "PyTorchJob", "job", "research")
        for n in range(RANKS)
    ]
    allocations = [
        DeviceAllocation(holder, (n,), start, np.inf) for n, holder in enumerate(holders)
    ]
    by_uid = {f"u{n}": one for n, one in enumerate(scripts)}
    block, _ = compute_signals(devices, allocations, by_uid, (), ticks)
    views = Memory()
    for batch in build_rows(block, Quirks.of((), 0), cluster="c"):
        views.put(batch)
    naive = BEGIN.replace(tzinfo=None)
    last = naive + timedelta(hours=HOURS)
    for n, one in enumerate(scripts):
        of = {"cluster": "c", "namespace": "ml", "pod": f"job-{n}"}
        pod: dict[str, Any] = {
            **of, "uid": f"u{n}", "node": f"n{n}", "phase": "Running", "team": "research",
            "workload_kind": "PyTorchJob", "workload": "job", "gpu_request": 1.0,
            "started_at": naive, "created_at": naive, "last_seen": last,
        }  # fmt: skip
        views.rows("pod", [pod])
        views.rows("pod_sample", _hosts(one, ticks, of))
    if progress:
        minutes = ticks[:: round(60 / TICK_S)]
        result = zip(minutes.tolist(), count_steps(scripts[0], minutes).tolist(), strict=True)
        views.rows(
            "progress_sample",
            [
                {
                    "cluster": "c", "namespace": "ml", "pod": "job-0",
                    "metric": "train_global_step", "interval_s": 60.0, "value": value,
                    "ts": datetime.fromtimestamp(at, UTC).replace(tzinfo=None),
                }
                for at, value in result
            ],
        )  # fmt: skip
    return views, scripts


def _hosts(one: Script, ticks: Any, of: dict[str, str]) -> list[dict[str, object]]:
    """Return five minutes at a time what the kubelet says, as the mean of the ticks."""
    each = round(300 / TICK_S)
    made = []
    for begin in range(0, len(ticks) - each, each):
        now = ticks[begin : begin + each]
        received, sent = one.net(now)
        made.append(
            {
                **of, "ts": datetime.fromtimestamp(now[0], UTC).replace(tzinfo=None),
                "interval_s": 300.0, "cpu_cores": float(one.cpu_cores(now).mean()),
                "net_rx_bps": float(received.mean()), "net_tx_bps": float(sent.mean()),
                "fs_read_bps": 0.0, "fs_write_bps": 0.0,
            }
        )  # fmt: skip
    return made


def found_at(views: Memory, at: datetime) -> list[tuple[str, str]]:
    window = Window(at - timedelta(hours=8), at)
    made = StalledAnalyzer().find(views, window)
    # What was over before is another moment's.
    return [(f.kind, f.evidence) for f in made if f.window.end > at - 5 * MINUTE]


@pytest.mark.parametrize("behaviour", HANGS)
def test_a_planted_hang_is_found_in_minutes_and_not_before(behaviour: str) -> None:
    views, scripts = views_of(behaviour, HANGS[behaviour])
    hangs = BEGIN + timedelta(seconds=7200)
    names = [read_kinds().names[n] for n in scripts[0].timeline.kind]
    assert names[-1] == ("idle" if behaviour == "hung training" else "spin")
    assert found_at(views, hangs - MINUTE) == []
    assert found_at(views, hangs + 8 * MINUTE) == []
    assert found_at(views, hangs + 13 * MINUTE) == [("stalled_job", "confirmed")]
    assert found_at(views, hangs + timedelta(hours=6, minutes=30)) == [("stalled_job", "confirmed")]


def test_a_hang_without_a_metric_is_suspected_or_known_by_the_rank_that_left() -> None:
    hangs = BEGIN + timedelta(seconds=7200)
    for behaviour, evidence in (
        ("spinning training", "suspected"),
        ("deserted training", "confirmed"),
    ):
        views, _ = views_of(behaviour, HANG, progress=False)
        assert found_at(views, hangs + 13 * MINUTE) == [("stalled_job", evidence)]


@pytest.mark.parametrize("behaviour", TWINS)
def test_a_near_twin_is_never_found(behaviour: str) -> None:
    views, scripts = views_of(behaviour)
    waits = [
        n for n in scripts[0].timeline.kind if read_kinds().names[n] in {"evaluate", "host save"}
    ]
    assert bool(waits) is (behaviour in {"evaluating training", "saving training"})
    at = BEGIN + 20 * MINUTE
    while at <= BEGIN + timedelta(hours=HOURS):
        assert found_at(views, at) == [], at
        at += 20 * MINUTE


def test_a_gang_waits_for_its_first_rank() -> None:
    _, scripts = views_of("evaluating training")
    first, other = scripts[0], scripts[3]
    first.timeline.grow(BEGIN.timestamp() + HOURS * 3600)
    place = int(np.flatnonzero(first.timeline.kind == read_kinds().number("evaluate"))[0])
    now = first.timeline.begin[place] + np.arange(30.0, 600.0, 30.0)
    assert first.play(now).sm.mean() > 0.3
    assert other.play(now).sm.max() < 0.1
    assert other.play(now).busy.min() > 0.95
    assert first.stop_harms(now).all()
    assert first.unsaved_s(float(now[-1])) >= 0

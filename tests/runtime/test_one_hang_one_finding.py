"""A hang that samples and hours of rollups both show is one finding, and its hours are one."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from analyzers.sizing.analyzer import SizingAnalyzer
from analyzers.stalled.analyzer import StalledAnalyzer
from fallow.protocols import Analyzer
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from runtime.operations.analysis import analyzer_runs
from runtime.operations.analysis.analyzer_runs import Analysis
from tests.analyzers.gangs import SHOWN
from warehouse.lake import Warehouse

END = datetime(2026, 11, 20, 12, tzinfo=UTC)
RANKS = 4
Pieces = Sequence[tuple[str, int]]
"""What the ranks do, and for how many hours, up to END."""


def rows(pieces: Pieces) -> Iterator[Batch]:
    does = [what for what, hours in pieces for _ in range(hours * 60)]
    begin = END.replace(tzinfo=None) - timedelta(minutes=len(does))
    for rank in range(RANKS):
        count = len(does)
        shown = {name: [SHOWN[what][name] for what in does] for name in SHOWN["work"]}
        yield Batch.of(
            "sample",
            {
                "cluster": ["test"] * count,
                "ts": [begin + timedelta(minutes=n) for n in range(count)],
                "device": [f"GPU-{rank}"] * count, "node": [f"n{rank}"] * count,
                "model": ["NVIDIA H100 80GB HBM3"] * count, "namespace": ["ml"] * count,
                "pod": [f"train-{rank}"] * count, "interval_s": [60.0] * count, **shown,
            },
        )  # fmt: skip
    pod: dict[str, Any] = {
        "cluster": "test", "namespace": "ml", "phase": "Running", "workload_kind": "PyTorchJob",
        "workload": "train", "team": "research", "gpu_request": 1.0, "created_at": begin,
        "started_at": begin, "first_seen": begin, "last_seen": END.replace(tzinfo=None),
    }  # fmt: skip
    columns: dict[str, object] = {name: [value] * RANKS for name, value in pod.items()}
    for name, start in (("uid", "u"), ("pod", "train-"), ("node", "n")):
        columns[name] = [f"{start}{rank}" for rank in range(RANKS)]
    yield Batch.of("pod", columns)


def judged(settings: Settings, pieces: Pieces) -> Analysis:
    window = Window(END - timedelta(hours=sum(hours for _, hours in pieces)), END)
    both: dict[str, Analyzer] = {
        "stalled": StalledAnalyzer(settings.stalled),
        "sizing": SizingAnalyzer(),
    }
    with Warehouse.open_in_memory(settings, clock=lambda: END) as warehouse:
        warehouse.ingest(rows(pieces))
        pipeline.account(warehouse, window)
        return analyzer_runs.run_analyzers(warehouse, window, both)


def kinds(made: Analysis) -> dict[str, float]:
    return {f.kind: f.gpu_hours for f in made.findings}


def test_one_hang_is_one_finding_and_saved_once(settings: Settings) -> None:
    made = judged(settings, [("work", 8), ("spin", 3)])
    assert kinds(made) == {"stalled_job": pytest.approx(4 * 3)}
    assert made.waterfall.bounded().gpu_hours == pytest.approx(12, abs=0.1)


def test_an_earlier_hang_keeps_its_own_hours(settings: Settings) -> None:
    made = judged(settings, [("work", 3), ("spin", 5), ("work", 6), ("spin", 3)])
    assert kinds(made) == {"stalled_job": pytest.approx(12), "busy_hang": pytest.approx(20, abs=1)}
    hang = next(f for f in made.findings if f.kind == "busy_hang")
    assert sum(c.gpu_hours for c in hang.recommendations[0].claims) == pytest.approx(20, abs=1)
    assert made.waterfall.bounded().gpu_hours == pytest.approx(32, abs=1)


# Three times as old: 7 h, which is more than what is read back, is in every run.
@pytest.mark.parametrize("hours", [7, pytest.param(20, marks=pytest.mark.long)])
def test_a_hang_that_is_older_than_what_is_read_back_is_found_whole(
    settings: Settings, hours: int
) -> None:
    made = judged(settings, [("work", 4), ("spin", hours)])
    assert kinds(made) == {"stalled_job": pytest.approx(4 * hours, abs=0.1)}

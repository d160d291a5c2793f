"""Run a part of the demo in a second process.

small clusters simulated ─► the policies back-tested ─► the longest analyzers
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from multiprocessing import get_context
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from fallow.demo_marker import MARKER
from fallow.settings import Settings, load
from fallow.tables import Batch
from fallow.window import Window, format_duration
from runtime.experiments.demo_small_clusters import simulate_small_clusters
from runtime.operations.acting.plans import load_policies
from runtime.operations.acting.policy_replays import ReplaySpan, replay_policies
from runtime.operations.analysis import analyzer_runs
from warehouse.lake import Warehouse
from warehouse.stages.pinned import read_snapshot

if TYPE_CHECKING:
    from actions.backtest import Backtest
    from runtime.operations.analysis.analyzer_runs import AnalyzerResult

THREADS = {"warehouse.threads": 1}
"""With one engine thread many small queries take a sixth less CPU time; the other cores have the
work of other threads and processes."""
ANALYZERS = ("idle", "stalled")
"""Nearly half of the analyzers' CPU time."""


class SecondProcess:
    """A process beside the first one, which writes the rows of a demo's home.

    It reads the snapshot of the time of a call, whatever is written meanwhile.
    """

    def __init__(self, home: Path, pool: ProcessPoolExecutor) -> None:
        self._home, self._pool = home, pool

    def simulate_small_clusters(self, end: datetime, seed: int) -> Future[list[Batch]]:
        """Return all rows of the small clusters until a midnight."""
        return self._pool.submit(simulate_small_clusters, end, seed)

    def run_backtests(
        self, warehouse: Warehouse, window: Window, policies: Path
    ) -> "Future[Sequence[Backtest]]":
        """Replay each policy of a folder over a window."""
        snapshot = read_snapshot(warehouse)
        return self._pool.submit(run_backtests, self._home, policies, window, snapshot)

    def run_analyzers(
        self, warehouse: Warehouse, window: Window
    ) -> "Mapping[str, Future[AnalyzerResult]]":
        """Run the analyzers that take longest."""
        snapshot = read_snapshot(warehouse)
        return MappingProxyType(
            {
                name: self._pool.submit(run_analyzer, self._home, name, window, snapshot)
                for name in ANALYZERS
            }
        )


def load_demo_settings(home: Path) -> Settings:
    """Return the settings of a demo's home, for the demo's own run."""
    return load(file=home / MARKER, environ={}, flags={"home": home, **THREADS}).settings


def run_backtests(
    home: Path, policies: Path, window: Window, snapshot: int
) -> "Sequence[Backtest]":
    """Replay each policy of a folder over a demo's window, by the rows of a snapshot.

    Raises: as `replay_policies`.
    """
    settings = load_demo_settings(home)
    span = ReplaySpan(format_duration(window.seconds), window.end, settings.cluster)
    with Warehouse.open(settings, clock=lambda: window.end, snapshot=snapshot) as warehouse:
        return replay_policies(warehouse, settings, load_policies(settings, [policies]), span)


def run_analyzer(home: Path, name: str, window: Window, snapshot: int) -> "AnalyzerResult":
    """Run an analyzer over a demo's window, by the rows of a snapshot.

    Raises: as the analyzer.
    """
    settings = load_demo_settings(home)
    (analyzer,) = analyzer_runs.load_analyzers(settings, [name]).values()
    with Warehouse.open(settings, clock=lambda: window.end, snapshot=snapshot) as warehouse:
        return analyzer_runs.run_analyzer(
            warehouse, window, analyzer, summarise=False, report_unjudged=True
        )


@contextmanager
def open_second_process(home: Path) -> Iterator[SecondProcess]:
    """Yield a process that ends with the block."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        pool.submit(load_demo_settings, home)  # the process starts, and imports this module
        yield SecondProcess(home, pool)

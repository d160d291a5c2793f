"""Back-test the demo's policies in a process of their own, beside the analyzers."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from fallow.demo_marker import MARKER
from fallow.settings import Settings, load
from fallow.window import Window, format_duration
from runtime.operations import plans
from warehouse.lake import Warehouse
from warehouse.stages.pinned import read_snapshot

if TYPE_CHECKING:
    from actions.backtest import Backtest

THREADS = {"warehouse.threads": 1}
"""With one engine thread many small queries take a sixth less CPU time; the other cores have the
work of other threads and processes."""


def load_demo_settings(home: Path) -> Settings:
    """Return the settings of a demo's home, for the demo's own run."""
    return load(file=home / MARKER, environ={}, flags={"home": home, **THREADS}).settings


def run_backtests(home: Path, policies: Path, window: Window, snapshot: int) -> "list[Backtest]":
    """Replay each policy of a folder over a demo's window, by the rows of a snapshot.

    Raises: as `plans.run_backtest`.
    """
    settings = load_demo_settings(home)
    with Warehouse.open(settings, clock=lambda: window.end, snapshot=snapshot) as warehouse:
        return [
            plans.run_backtest(
                warehouse,
                settings,
                rule,
                since=format_duration(window.seconds),
                step=None,
                within=None,
                now=window.end,
                cluster=settings.cluster,
            )
            for rule in plans.load_policies(settings, [policies])
        ]


@contextmanager
def open_backtests(
    home: Path, policies: Path
) -> "Iterator[Callable[[Warehouse, Window], Future[list[Backtest]]]]":
    """Yield what starts the back-tests by the rows that are stored then, in a ready process.

    They see one snapshot, whatever is written meanwhile: the ledger is written beside them.
    """

    def start(warehouse: Warehouse, window: Window) -> "Future[list[Backtest]]":
        return pool.submit(run_backtests, home, policies, window, read_snapshot(warehouse))

    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        pool.submit(load_demo_settings, home)  # the process starts, and imports this module
        yield start

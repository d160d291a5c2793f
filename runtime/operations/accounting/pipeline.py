"""Run one pass: collect, ingest, roll up, allocate, write the ledger, audit, analyze, store.

Every stage is `(tables, window) -> keyed rows`: a second run changes nothing.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from analyzers.reliability import lost_work
from fallow.errors import TemporaryError, UnreadableDaysError
from fallow.models import Finding
from fallow.plugin_runs import PluginRun
from fallow.protocols import Analyzer, Collector
from fallow.rejections import Rejection, build_batch
from fallow.system.container_limits import release_memory
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting.idle_hours import keep_idle_hours
from runtime.operations.analysis import analyzer_runs
from warehouse import dirty, work_lost
from warehouse.allocation import write_allocations
from warehouse.failures import FAULTS
from warehouse.ingest import check_times
from warehouse.ledger import withdraw_future_hours
from warehouse.pricing import store_rates
from warehouse.restatements import finish_price_changes
from warehouse.runners.slices import StageError
from warehouse.stages.audit_stage import audit_stage
from warehouse.stages.ledger_stage import write_ledger_stage
from warehouse.stages.rollup_stage import roll_up_stage

if TYPE_CHECKING:
    from concurrent.futures import Future

    from analyzers.ranking import RankedFinding
    from analyzers.waterfall import SavingsWaterfall
    from warehouse.audits import AuditFailure
    from warehouse.ingest import IngestResult
    from warehouse.lake import Warehouse

log = logging.getLogger("fallow.pipeline")


class PassResult(msgspec.Struct, frozen=True):
    """What one pass did: rows stored, buckets rolled up, audits that failed, what was found."""

    window: Window
    added: int
    duplicates: int
    buckets: int
    failures: "tuple[AuditFailure, ...]"
    findings: tuple[Finding, ...]


class StoredAnalysis(msgspec.Struct, frozen=True):
    """One analysis as stored: a finding per case; its rows by dollars; the result of each run."""

    findings: tuple[Finding, ...]
    ranked: "tuple[RankedFinding, ...]"
    runs: tuple[PluginRun, ...]
    waterfall: "SavingsWaterfall"


def run(
    warehouse: "Warehouse",
    window: Window,
    *,
    collectors: Sequence[Collector] = (),
    analyzers: Mapping[str, Analyzer] = MappingProxyType({}),
    prices: Iterable[Batch] = (),
) -> PassResult:
    """Take every collector's rows through all stages for one window."""
    price(warehouse, prices)
    stored = ingest(warehouse, check_times(warehouse, collect(collectors, window), window.start))
    buckets, failures = account(warehouse, window)
    findings = analyze(warehouse, window, analyzers).findings
    return PassResult(window, stored.added, stored.duplicates, buckets, tuple(failures), findings)


def collect(collectors: Iterable[Collector], window: Window) -> Iterator[Batch]:
    """Yield the batches of every collector; a scrape that fails is a row of `scrape`."""
    for collector in collectors:
        yield from collector.collect(window)


def ingest(warehouse: "Warehouse", *batches: Iterable[Batch]) -> "IngestResult":
    """Store rows once; rows that exist already are counted, not stored twice."""
    return warehouse.ingest(batch for group in batches for batch in group)


def price(warehouse: "Warehouse", batches: Iterable[Batch], *, is_restating: bool = False) -> None:
    """Store the rates of price sources; a rate that a source no longer reports has ended.

    `is_restating`: what a source says of months that have ended changes them.
    """
    for batch in batches:
        store_rates(warehouse, batch, is_restating=is_restating)


HOUR = timedelta(hours=1)
LEDGER_LOOKBACK = timedelta(hours=3)
"""Hours that are accounted again: rows within `signals.CONTEXT` after them may change them."""
Step = Callable[["Warehouse", Window], None]
Faults = Mapping[datetime, Mapping[str, str]]
"""By hour the reason of each cluster that cannot be accounted."""


def account(warehouse: "Warehouse", window: Window) -> "tuple[int, list[AuditFailure]]":
    """Roll up new rows, allocate devices and lost work, write and check the ledger.

    The ledger is written for the window and for every hour whose rollups have changed (by rows that
    came late, after an outage or from a backfill) or whose work was lost.
    Hours that need archived days stay marked while the store of these days is away. Hours that have
    not begun have no rows in the ledger, also after the clock was ahead. Rows of a cluster that
    make an hour fail cost that cluster this hour: it stays marked, and is listed with the reason.

    Raises:
        FallowError: no hour can be accounted.
    """
    buckets = roll_up_stage(warehouse)
    withdraw_future_hours(warehouse)
    dirty.take_marks(warehouse)
    failures: list[AuditFailure] = []

    def allocate(seen: "Warehouse", part: Window) -> None:
        write_allocations(seen, part)
        late = Window(part.start - lost_work.LATE, part.end)
        rows = lost_work.compute_work_lost(seen, part, warehouse.settings.reliability.burst_bps)
        work_lost.write_work_lost(seen, lost_work.build_batch(rows).rows, late)

    def post(seen: "Warehouse", part: Window) -> None:
        write_ledger_stage(seen, part)
        refused = audit_stage(seen, part, marked=True)
        if seen is warehouse:
            failures.extend(refused)
            dirty.clear_marks(warehouse, part)

    faults: Faults = {}
    # Lost work is known only after its loss: hours that were written before are written again.
    for step in (allocate, post):
        parts = dirty.list_marked_windows(warehouse, window)
        faults = _run_parts(warehouse, step, parts, faults)
    for hour, reasons in faults.items():
        if others := _list_clusters(warehouse) - reasons.keys():
            seen = warehouse.of_clusters(others)
            failures += audit_stage(seen, Window(hour, hour + HOUR), marked=True)
        _leave_out(warehouse, hour, reasons)
    finish_price_changes(warehouse)
    with _leave_unreadable(window):
        keep_idle_hours(warehouse)
    # Pieces that each pass frees lie scattered, and the C library keeps their pages.
    release_memory()
    return buckets, failures


def _run_parts(
    warehouse: "Warehouse", step: Step, parts: Iterable[Window], earlier: Faults
) -> Faults:
    """Run a step over windows; of one that fails, the hours and then the clusters that do not fail.

    Return what failed: by hour the reason of each cluster. `earlier`: what failed before this step.

    Raises:
        FallowError: nothing could be done, so that it is no fault of an hour.
    """
    waiting, faults = deque(parts), dict(earlier)
    is_any_done, first = not waiting, None
    while waiting:
        part = waiting.popleft()
        hours = [hour.start for hour in part.whole(HOUR).chunks(HOUR)]
        try:
            if earlier.keys().isdisjoint(hours):
                with _leave_unreadable(part):
                    step(warehouse, part)
                is_any_done = True
                continue
        except (*FAULTS, StageError) as error:
            if isinstance(error, TemporaryError):
                raise
            first = first or error
        if len(hours) > 1:
            middle, whole = hours[len(hours) // 2], part.whole(HOUR)
            waiting.extendleft([Window(middle, whole.end), Window(whole.start, middle)])
            continue
        clusters = _list_clusters(warehouse)
        faults[hours[0]] = _run_clusters(warehouse, step, part, clusters, earlier.get(hours[0], {}))
        is_any_done = is_any_done or clusters > faults[hours[0]].keys()
    if first is not None and not is_any_done:
        raise first
    return faults


def _run_clusters(
    warehouse: "Warehouse",
    step: Step,
    hour: Window,
    clusters: set[str],
    earlier: Mapping[str, str],
) -> dict[str, str]:
    """Run a step over an hour of each cluster apart; return the reason of each that failed."""
    reasons = dict(earlier)
    for cluster in sorted(clusters - earlier.keys()):
        try:
            step(warehouse.of_clusters({cluster}), hour)
        except (*FAULTS, StageError, UnreadableDaysError) as error:
            log.exception(
                "an hour of a cluster cannot be accounted",
                extra={"cluster": cluster, "start": hour.start},
            )
            reasons[cluster] = str(error)
    return reasons


def _list_clusters(warehouse: "Warehouse") -> set[str]:
    rows = warehouse.query("SELECT cluster FROM device UNION SELECT cluster FROM node")
    return {*rows["cluster"].to_pylist()}


def _leave_out(warehouse: "Warehouse", hour: datetime, reasons: Mapping[str, str]) -> None:
    """Keep the marks of the clusters that fail in an hour, and list them with their reasons."""
    at, end = warehouse.clock(), hour + HOUR
    for cluster, reason in reasons.items():
        row = Rejection("ledger", cluster, f"{hour:%Y-%m-%d %H:%M}", "hour", reason)
        warehouse.ingest([build_batch([row], cluster=cluster, source="warehouse", at=at)])
    dirty.clear_marks(warehouse, Window(hour, end), reasons)


@contextmanager
def _leave_unreadable(part: Window) -> Iterator[None]:
    """Leave hours whose archived days cannot be read at present; others are accounted."""
    try:
        yield
    except UnreadableDaysError as error:
        log.warning(
            "hours wait for archived days",
            extra={"start": part.start, "end": part.end, "why": error.message},
        )


def analyze(
    warehouse: "Warehouse",
    window: Window,
    analyzers: Mapping[str, Analyzer],
    elsewhere: "Mapping[str, Future[analyzer_runs.AnalyzerResult]]" = MappingProxyType({}),
) -> StoredAnalysis:
    """Find waste and store it, the most expensive first; the same waste keeps its id and start.

    An analyzer that cannot judge the window is logged and left out; what ran is stored too.
    `elsewhere`: the results of analyzers that another process runs, by name.
    """
    analysis = analyzer_runs.run_analyzers(
        warehouse,
        window,
        analyzers,
        strict=False,
        summarise=False,
        at_once=analyzer_runs.PARALLEL_ANALYZERS,
        report_unjudged=True,
        elsewhere=elsewhere,
    )
    for note in analysis.notes:
        log.warning("an analyzer found nothing to judge", extra={"why": note})
    stored = analyzer_runs.store_findings(warehouse, analysis, analysis.runs)
    return StoredAnalysis(tuple(stored), analysis.ranked, analysis.runs, analysis.waterfall)

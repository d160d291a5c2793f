"""The one path on one screen: collect, ingest, roll up, allocate, post, audit, analyze, store.

Every stage is `(tables, window) -> keyed rows`: it can be run again, and then nothing changes.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from fallow.boundary import PluginRun
from fallow.nouns import Finding
from fallow.seams import Analyzer, Collector
from fallow.tables import Batch
from fallow.window import Window
from runtime import analyzing

if TYPE_CHECKING:
    from analyzers.ranking import Ranked
    from warehouse.audits import AuditFailure
    from warehouse.ingest import Ingested
    from warehouse.lake import Warehouse

log = logging.getLogger("fallow.pipeline")


class Passed(msgspec.Struct, frozen=True):
    """What one pass did: rows stored, buckets rolled up, audits that failed, what was found."""

    window: Window
    added: int
    duplicates: int
    buckets: int
    failures: "tuple[AuditFailure, ...]"
    findings: tuple[Finding, ...]


class Stored(msgspec.Struct, frozen=True):
    """What one analysis stored: a finding per case; its rows by dollars; what came of each run."""

    findings: tuple[Finding, ...]
    ranked: "tuple[Ranked, ...]"
    runs: tuple[PluginRun, ...]


def run(
    warehouse: "Warehouse",
    window: Window,
    *,
    collectors: Sequence[Collector] = (),
    analyzers: Mapping[str, Analyzer] = MappingProxyType({}),
    prices: Iterable[Batch] = (),
) -> Passed:
    """Take every collector's rows through the whole path for one window."""
    price(warehouse, prices)
    stored = ingest(warehouse, collect(collectors, window))
    buckets, failures = account(warehouse, window)
    found = analyze(warehouse, window, analyzers).findings
    return Passed(window, stored.added, stored.duplicates, buckets, tuple(failures), found)


def collect(collectors: Iterable[Collector], window: Window) -> Iterator[Batch]:
    """Yield what every collector brings; a look that fails is a row of `scrape`."""
    for collector in collectors:
        yield from collector.collect(window)


def ingest(warehouse: "Warehouse", *batches: Iterable[Batch]) -> "Ingested":
    """Store rows once; what is already there is counted, not stored twice."""
    return warehouse.ingest(batch for group in batches for batch in group)


def price(warehouse: "Warehouse", batches: Iterable[Batch]) -> None:
    """Keep what price sources say; what they stop saying no longer holds."""
    from warehouse.pricing import keep  # noqa: PLC0415  (the engine loads in 0.3 s)

    for batch in batches:
        keep(warehouse, batch)


def account(warehouse: "Warehouse", window: Window) -> "tuple[int, list[AuditFailure]]":
    """Roll up what is new, say who held what and what work was lost, post and check the ledger.

    The books are done for the window and for every hour whose rollups changed since it was posted
    (rows that came late, after an outage or from a backfill) or whose work was lost since.
    """
    from analyzers.reliability import lost  # noqa: PLC0415
    from warehouse import audits, dirty, work_lost  # noqa: PLC0415
    from warehouse.allocation import allocate  # noqa: PLC0415
    from warehouse.ledger import post  # noqa: PLC0415
    from warehouse.rollup import roll_up  # noqa: PLC0415

    buckets = roll_up(warehouse)
    failures: list[AuditFailure] = []
    burst_bps = warehouse.settings.reliability.burst_bps
    for part in dirty.owed(warehouse, window):
        allocate(warehouse, part)
        late = Window(part.start - lost.LATE, part.end)
        rows = lost.work_lost(warehouse, part, burst_bps)
        work_lost.write(warehouse, lost.batch(rows).rows, late)
    # Lost work is known when it is lost: hours that were posted before it are posted again.
    for part in dirty.owed(warehouse, window):
        post(warehouse, part)
        failures += audits.run(warehouse, part)
        dirty.settle(warehouse, part)
    return buckets, failures


def analyze(warehouse: "Warehouse", window: Window, analyzers: Mapping[str, Analyzer]) -> Stored:
    """Find what is wasted and store it, the dearest first; the same waste keeps its id and start.

    An analyzer that cannot judge the window is logged and left out; what ran is stored too.
    """
    made = analyzing.examine(
        warehouse,
        window,
        analyzers,
        strict=False,
        summarise=False,
        at_once=analyzing.AT_ONCE,
        doubts=True,
    )
    for note in made.notes:
        log.warning("an analyzer found nothing to judge", extra={"why": note})
    stored = analyzing.store(warehouse, made, made.runs)
    return Stored(tuple(stored), made.ranked, made.runs)

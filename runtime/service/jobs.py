"""The jobs of the service: collect, account, analyze, act and maintain.

Jobs that read sources only wait for them: `runtime.service.sources` reads and stores. The job that
acts waits for sources too: it has a thread of its own and hands its rows to the writing thread. All
other jobs run in that one thread, so that two jobs never write to the warehouse at the same time.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from fallow.errors import FallowError
from fallow.models import Finding
from fallow.protocols import Analyzer, Collector, WatchesChanges
from fallow.settings import Settings
from fallow.system.daemon_threads import CallingThread, TaskRunner
from fallow.window import Window
from runtime.operations.accounting import pipeline
from runtime.operations.accounting.budgets import read_state
from runtime.operations.accounting.prices import read_configured_rates, read_market_rates
from runtime.operations.accounting.windows import DEFAULT_LENGTH
from runtime.operations.acting.plan_rows import PlanWriter
from runtime.operations.acting.requests import verify_journal
from runtime.operations.analysis.incidents import store_incidents
from runtime.operations.analysis.pending import build_reader
from runtime.operations.ingestion.ingest_queue import IngestQueue
from runtime.service.history import HistoryFill
from runtime.service.metrics import SelfMetrics
from runtime.service.roles import PARTS, Lane, ServiceJob, ServiceRole
from runtime.service.sources import SourceRead, Sources, wait_for
from warehouse import audit_results, maintenance, tiers
from warehouse.audits import format_banner
from warehouse.coverage import sum_covered_hours
from warehouse.lake import Warehouse
from warehouse.stages.audit_stage import audit_due, audit_stage

if TYPE_CHECKING:
    from warehouse.audits import AuditFailure

log = logging.getLogger("fallow.service")

MARKET_EVERY = timedelta(hours=6)
"""Spot prices change a few times a day; the price list of all types takes a minute to read."""
AUDIT_WINDOW = timedelta(days=7)
"""The window that the audits read again after a failure: the default window of the pages."""
INCIDENT_WINDOW = timedelta(hours=3)
"""Incidents of this window are recent: they are read again with each analysis."""
MOST_PLANNING_S = 30.0
"""How long an analysis plans moves for who waits; an analysis of 10,000 GPUs takes minutes."""
STALLED = "stalled"
"""The analyzer that runs after each collection too."""
STALL_RECENT = timedelta(minutes=5)
"""A stall continues if its devices had samples this recently; scrapes are two minutes apart."""
IMPORTS_EVERY = timedelta(seconds=2)
"""How soon an import beside the service begins."""
PAST = "prometheus"
"""The collector whose source has history."""
INVENTORY = frozenset({"kubernetes"})
"""Collectors that poll the inventory, on a slower schedule than telemetry."""
FIRST_TURN_S = 30.0
"""How long the first turns wait for sources, so that the first analysis has rows to judge: the
inventory of 10,000 GPUs is listed in less. Later turns wait for half a period."""


class ServiceLoop:
    """The service's jobs over one open warehouse. `clock` and collectors are injected by tests.

    `since`: from when a source with history is read first, which is where an earlier run stopped.
    `accounts`: whether this process does the catalog's accounting now; of several collectors one
    does. `prices`: whether it reads the prices.
    """

    def __init__(
        self,
        warehouse: "Warehouse",
        settings: Settings,
        *,
        collectors: dict[str, Collector],
        analyzers: Mapping[str, Analyzer],
        metrics: SelfMetrics,
        clock: Callable[[], datetime],
        since: Mapping[str, datetime] | None = None,
        act: Callable[[], None] | None = None,
        roles: AbstractSet[ServiceRole] = PARTS,
        stop: threading.Event | None = None,
        queue: IngestQueue | None = None,
        readers: TaskRunner | None = None,
        writer: TaskRunner | None = None,
        first_turn_s: float = FIRST_TURN_S,
        accounts: Callable[[], bool] = lambda: True,
        prices: bool = True,
        take_imports: Callable[[], None] | None = None,
    ) -> None:
        self.warehouse = warehouse
        self.settings = settings
        self.collectors = collectors
        self.analyzers = analyzers
        self.metrics = metrics
        self.clock = clock
        self.sources = Sources(
            warehouse,
            collectors,
            metrics,
            readers=readers or CallingThread(),
            writer=writer or CallingThread(),
            stop=stop or threading.Event(),
            queue=queue,
            since=since or {},
        )
        self._history: HistoryFill | None = None
        if PAST in collectors and settings.prometheus.backfill:
            self._history = HistoryFill(
                warehouse,
                settings,
                self.sources,
                end=(since or {}).get(PAST, clock()),
                account=partial(self.sources.write, self.account),
                analyze=self._analyze_history,
                analyzed=DEFAULT_LENGTH,
                clock=clock,
                stop=stop or threading.Event(),
            )
        self._first_turn_s = first_turn_s
        self._waited: set[str] = set()
        """Jobs that waited for sources once."""
        self._market_read_at = datetime(1970, 1, 1, tzinfo=UTC)
        self._act = act
        self._accounts, self._prices = accounts, prices
        self._take_imports = take_imports
        self._roles = roles
        self._queue = queue
        self._audits_failed: bool | None = None
        """None before the first turn, which also audits hours of an earlier process."""
        self._plan_writer = PlanWriter(warehouse, settings)

    def jobs(self) -> list[ServiceJob]:
        """Return the jobs of this process's roles; they run in this order on the first turn."""
        every, turn_every = self.settings.service, self.settings.actions.every
        act = (
            []
            if self._act is None
            else [ServiceJob("act", turn_every, self._act, ServiceRole.actor, Lane.act)]
        )
        source, collector = Lane.source, ServiceRole.collector
        watch = [ServiceJob("watch", every.collect_every, self.watch, collector, source)]
        fill = self._history
        past = (
            [ServiceJob("history", every.rollup_every, fill.start, collector, source)]
            if fill
            else []
        )
        take = self._take_imports
        imports = [ServiceJob("imports", IMPORTS_EVERY, take, collector)] if take else []
        judged = STALLED in self.analyzers
        stalled = [ServiceJob("stalled", every.collect_every, self.stalled, ServiceRole.analyzer)]
        every_job = [
            ServiceJob("inventory", every.inventory_every, self.inventory, collector, source),
            *(watch if select_watching(self.collectors) else ()),
            ServiceJob("collect", every.collect_every, self.collect, collector, source),
            *past,
            *(stalled if judged else ()),
            ServiceJob("account", every.rollup_every, self.account, collector),
            ServiceJob("analyze", every.analyze_every, self.analyze, ServiceRole.analyzer),
            *act,
            ServiceJob("verify", every.maintain_every, self.verify_journal, ServiceRole.actor),
            *imports,
            ServiceJob("maintain", every.maintain_every, self.maintain, collector),
        ]
        return [job for job in every_job if job.role in self._roles]

    def inventory(self) -> None:
        """Poll nodes, pods, owners and prices."""
        every = self.settings.service.inventory_every
        names = INVENTORY & set(self.collectors)
        reads = [*self.sources.start(names, every, self.clock())]
        now = self.clock()
        prices: list[SourceRead | None] = []
        if self._prices:
            prices.append(self.sources.run("prices", partial(self._read_prices, now)))
            if now - self._market_read_at >= MARKET_EVERY:
                prices.append(self.sources.run("market", partial(self._read_market, now)))
        self._wait_for("inventory", [*reads, *(p for p in prices if p)], every)

    def watch(self) -> None:
        """Store changes that watches saw; the watches' threads only read."""
        every = self.settings.service.collect_every
        reads = [
            # The inventory may be listed just now: the changes wait until that is over.
            self.sources.run(
                name,
                partial(self._store_changes, name, collector),
                wait_s=every.total_seconds() / 2,
            )
            for name, collector in select_watching(self.collectors).items()
        ]
        self._wait_for("watch", [read for read in reads if read], every)

    def collect(self) -> None:
        """Read every telemetry source since its last pass."""
        every, names = self.settings.service.collect_every, set(self.collectors) - INVENTORY
        self._wait_for("collect", self.sources.start(names, every, self.clock()), every)

    def account(self) -> None:
        """Roll up new rows, allocate, write the ledger, run the audits."""
        end = self.clock()
        if self._queue is not None:
            self._queue.deliver()
        if not self._accounts():
            self._audits_failed = None  # it audits again when it accounts again
            self.metrics.forget_audits()
            self.metrics.record_fleet(self.warehouse, self.settings.cluster, end)
            return
        buckets, failures = pipeline.account(
            self.warehouse, Window(end - pipeline.LEDGER_LOOKBACK, end)
        )
        # A failed hour is accounted once; the metric stays until an audit of it passes.
        failures = self._current_failures(failures, Window.last(AUDIT_WINDOW, now=end).whole())
        self.metrics.record_audits(failures)
        self.metrics.record_fleet(self.warehouse, self.settings.cluster, end)
        log.info("accounted", extra={"buckets": buckets, "audit_failures": len(failures)})
        if fault := format_banner(failures):
            log.error(fault)
        if maintenance.count_files(self.warehouse).live > maintenance.MOST_LIVE_FILES:
            self.maintain()

    def _current_failures(
        self, failures: "list[AuditFailure]", window: Window
    ) -> "list[AuditFailure]":
        """Return the failing audits of the pages' window; read again only while one may fail."""
        if self._audits_failed is None:
            failures = audit_stage(self.warehouse, window)
        elif failures or self._audits_failed:
            failures = audit_results.read_failures(self.warehouse, window)
        self._audits_failed = bool(failures)
        return failures

    def analyze(self) -> None:
        """Find waste in the last seven days and store the findings."""
        window = Window.last(DEFAULT_LENGTH, now=self.clock())
        analysis = pipeline.analyze(self.warehouse, window, self.analyzers)
        self.metrics.record_plugin_runs(analysis.runs)
        findings = analysis.findings
        self.metrics.record_findings(findings, sum_covered_hours(self.warehouse, window))
        self._record_incidents([f for f in findings if f.analyzer == STALLED])
        _, budgets = read_state(self.warehouse, window, window.end)
        self.metrics.record_budgets(budgets)
        queue = build_reader(
            self.warehouse, window.end, self.settings, most_seconds=MOST_PLANNING_S
        )
        self.metrics.record_waiting(queue.read())
        log.info("analyzed", extra={"findings": len(findings)})
        if not self.settings.actions.enabled:
            self._plan_writer.write_preview(findings, window.end)

    def _analyze_history(self) -> None:
        if ServiceRole.analyzer in self._roles:
            self.sources.write(self.analyze)

    def _record_incidents(self, stalls: Sequence[Finding]) -> None:
        now = self.clock()
        window = Window.last(INCIDENT_WINDOW, now=now)
        self.metrics.record_incidents(store_incidents(self.warehouse, window, stalls, now))

    def stalled(self) -> None:
        """Judge and store stalled jobs only, after each collection: each of their minutes counts.

        Read: the samples of `stalled.lookback`. The findings of other kinds from the last full
        analysis stay valid.
        """
        now = self.clock()
        window = Window.last(DEFAULT_LENGTH, now=now)
        analysis = pipeline.analyze(self.warehouse, window, {STALLED: self.analyzers[STALLED]})
        self.metrics.record_plugin_runs(analysis.runs)
        if any(run.result == "failed" for run in analysis.runs):
            self.metrics.record_stalled_jobs(None)
            return
        recent = now - max(STALL_RECENT, 3 * self.settings.service.collect_every)
        self.metrics.record_stalled_jobs([f for f in analysis.findings if f.window.end > recent])

    def verify_journal(self) -> None:
        """Check every link of the journal, and count the actions that wait for approval."""
        result = verify_journal(self.settings, self.warehouse, self.clock)
        if result is None:
            return
        rows, broken, waiting = result
        self.metrics.record_journal(rows, broken=broken is not None, waiting=waiting)
        if broken is not None:
            log.error("the journal is broken", extra={"row": broken.seq, "why": broken.why})

    def maintain(self) -> None:
        """Move old rows to their tier, merge small files, audit hours that are due."""
        if not self._accounts():
            return
        try:
            moved = tiers.move_to_cold(self.warehouse, self.clock())
        finally:  # the lake stays small while the cold tier is away
            maintenance.compact_warehouse(self.warehouse)
            self.metrics.record_tiers(self.warehouse, self.clock())
        if failures := audit_due(self.warehouse):
            self._audits_failed = True  # the next accounting turn reads them for the metric
            log.error(format_banner(failures))
        counts = {"moved_files": moved.files, "moved_rows": moved.rows, "moved_bytes": moved.bytes}
        log.info("maintained", extra=counts)

    def _read_prices(self, now: datetime, _read: SourceRead) -> None:
        rates = read_configured_rates(self.settings, now)
        self.sources.write(lambda: pipeline.price(self.warehouse, rates))

    def _read_market(self, now: datetime, _read: SourceRead) -> None:
        rates = read_market_rates(self.settings, now)
        self.sources.write(lambda: pipeline.price(self.warehouse, rates))
        self._market_read_at = now

    def _store_changes(self, name: str, collector: WatchesChanges, _read: SourceRead) -> None:
        try:
            with collector.changes() as batches:
                stored = self.sources.queue(batches) if batches else None
        except FallowError:
            raise
        except Exception as error:  # noqa: BLE001  (a fault in one plugin is that plugin's)
            fault = error  # the name of an except clause ends with it
            self.sources.write(lambda: self.sources.keep_failure(name, fault, self.clock()))
            return
        self.metrics.record_watches(collector.progress())
        if stored is not None and stored.added:
            log.info("watched", extra={"collector": name, "added": stored.added})

    def _wait_for(self, job: str, reads: Sequence[SourceRead], period: timedelta) -> None:
        """Wait for reads that a turn began, so that its duration and its errors are the turn's.

        What takes longer than half a period goes on, and the next turn begins without it.
        """
        half_s = period.total_seconds() / 2
        wait_for(reads, half_s if job in self._waited else max(half_s, self._first_turn_s))
        self._waited.add(job)
        for read in reads:
            if read.error is not None:
                raise read.error


def select_watching(collectors: Mapping[str, Collector]) -> dict[str, WatchesChanges]:
    """Return the collectors that keep their inventory current by watches."""
    return {name: c for name, c in collectors.items() if isinstance(c, WatchesChanges)}

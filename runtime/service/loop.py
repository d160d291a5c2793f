"""Run `fallow up`: collect, account, analyze, act and maintain on a schedule, until stopped.

One thread does the writing of all jobs, so that two jobs never write to the warehouse at the same
time. Reports only read, so they have another thread. A late job runs once, not as often as it was
missed. SIGTERM and SIGINT let the running jobs finish and start no other, so that nothing is left
half-written; a second signal changes nothing (ingest is one transaction). `runtime.service.roles`
defines which of several processes does what.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from fallow import plugin_runs
from fallow.clock_steps import read_ticks
from fallow.errors import FallowError, TemporaryError, UsageError
from fallow.plugin_runs import PluginRun
from fallow.protocols import Analyzer, Collector, WatchesChanges
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations import analyzer_runs, live_actor, pipeline
from runtime.operations.collection import drain, load_collectors, next_start, read_cursors
from runtime.operations.ingest_queue import IngestQueue
from runtime.operations.plan_rows import PlanWriter
from runtime.operations.plugin_runs import PluginRuns
from runtime.operations.prices import read_aws_rates, read_configured_rates
from runtime.operations.requests import ActionRequests, verify_journal
from runtime.service.api import WriteApi
from runtime.service.dashboard_process import COMMAND, DashboardProcess, missing_dashboard
from runtime.service.delivery.outbox import Outbox, outbox_path
from runtime.service.delivery.sender import Deliveries
from runtime.service.endpoint import Endpoint, is_loopback
from runtime.service.metrics import SelfMetrics
from runtime.service.opening import StoppedError, open_queue, open_warehouse
from runtime.service.readiness import Readiness
from runtime.service.roles import PARTS, WRITERS, ServiceJob, ServiceRole, expand_roles
from runtime.service.scheduling.store import Timetable
from runtime.service.stop_signals import handle_stop_signals, stop_on_signals
from runtime.service.tracing import SpanFactory, no_span, open_tracing
from warehouse import audits, maintenance, tiers
from warehouse.audits import format_banner
from warehouse.lake import Warehouse

if TYPE_CHECKING:
    from warehouse.audits import AuditFailure
    from warehouse.ingest import IngestResult

log = logging.getLogger("fallow.service")

AWS_EVERY = timedelta(hours=6)
"""Spot prices change a few times a day; the price list of all types takes a minute to read."""
AUDIT_WINDOW = timedelta(days=7)
"""The window that the audits read again after a failure: the default window of the pages."""
ANALYSIS_WINDOW = timedelta(days=7)
"""The window that analyzers judge."""
STALLED = "stalled"
"""The analyzer that runs after each collection too."""
STALL_RECENT = timedelta(minutes=5)
"""A stall continues if its devices had samples this recently; scrapes are two minutes apart."""
REPORTS_EVERY = timedelta(seconds=30)
"""How soon a report that a destination refused is sent again."""
INVENTORY = frozenset({"kubernetes"})
"""Collectors that poll the inventory, on a slower schedule than telemetry."""


class JobInterrupted(Exception):  # noqa: N818  (no error: it was asked for)
    """Report that a job was interrupted between two of its parts."""


class ServiceLoop:
    """The service's jobs over one open warehouse. `clock` and collectors are injected by tests.

    `since`: from when a source with history is read first, which is where an earlier run stopped.
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
    ) -> None:
        self.warehouse = warehouse
        self.settings = settings
        self.collectors = collectors
        self.analyzers = analyzers
        self.metrics = metrics
        self.clock = clock
        self._since: dict[str, datetime] = dict(since or {})
        self._aws_read_at = datetime(1970, 1, 1, tzinfo=UTC)
        self._act = act
        self._roles = roles
        self._stop = stop or threading.Event()
        self._queue = queue
        self._audits_failed: bool | None = None
        """None before the first turn, which also audits hours of an earlier process."""
        self._runs = PluginRuns(warehouse, metrics.record_plugin_runs)
        self._plan_writer = PlanWriter(warehouse, settings)

    def jobs(self) -> list[ServiceJob]:
        """Return the jobs of this process's roles; they run in this order on the first turn."""
        every, live_actor = self.settings.service, self.settings.actions.every
        act = (
            []
            if self._act is None
            else [ServiceJob("act", live_actor, self._act, ServiceRole.actor)]
        )
        watch = [ServiceJob("watch", every.collect_every, self.watch, ServiceRole.collector)]
        judged = STALLED in self.analyzers
        stalled = [ServiceJob("stalled", every.collect_every, self.stalled, ServiceRole.analyzer)]
        every_job = [
            ServiceJob("inventory", every.inventory_every, self.inventory, ServiceRole.collector),
            *(watch if select_watching(self.collectors) else ()),
            ServiceJob("collect", every.collect_every, self.collect, ServiceRole.collector),
            *(stalled if judged else ()),
            ServiceJob("account", every.rollup_every, self.account, ServiceRole.collector),
            ServiceJob("analyze", every.analyze_every, self.analyze, ServiceRole.analyzer),
            *act,
            ServiceJob("vouch", every.maintain_every, self.verify_journal, ServiceRole.actor),
            ServiceJob("maintain", every.maintain_every, self.maintain, ServiceRole.collector),
        ]
        return [job for job in every_job if job.role in self._roles]

    def inventory(self) -> None:
        """Poll nodes, pods, owners and prices."""
        self._collect_from(INVENTORY & set(self.collectors), self.settings.service.inventory_every)
        now = self.clock()
        pipeline.price(self.warehouse, read_configured_rates(self.settings, now))
        if now - self._aws_read_at >= AWS_EVERY:
            pipeline.price(self.warehouse, read_aws_rates(self.settings, now))
            self._aws_read_at = now

    def watch(self) -> None:
        """Store changes that watches saw; the watches' threads only read, this one writes."""
        for name, collector in select_watching(self.collectors).items():
            try:
                with collector.changes() as batches:
                    stored = self._ingest(batches) if batches else None
            except FallowError:
                raise
            except Exception as error:  # noqa: BLE001  (a fault in one plugin is that plugin's)
                why = plugin_runs.log_failure("collector", name, error)
                self._runs.keep([PluginRun("collector", name, "failed", why)], self.clock())
                continue
            self.metrics.record_watches(collector.progress())
            if stored is not None and stored.added:
                log.info("watched", extra={"collector": name, "added": stored.added})

    def collect(self) -> None:
        """Read every telemetry source since its last pass."""
        self._collect_from(set(self.collectors) - INVENTORY, self.settings.service.collect_every)

    def account(self) -> None:
        """Roll up new rows, allocate, write the ledger, run the audits."""
        end = self.clock()
        if self._queue is not None:
            self._queue.deliver()
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

    def _current_failures(
        self, failures: "list[AuditFailure]", window: Window
    ) -> "list[AuditFailure]":
        """Return the failing audits of the pages' window; read again only while one may fail."""
        if failures or self._audits_failed is not False:
            failures = audits.run_audits(self.warehouse, window)
        self._audits_failed = bool(failures)
        return failures

    def analyze(self) -> None:
        """Find waste in the last seven days and store the findings."""
        window = Window.last(ANALYSIS_WINDOW, now=self.clock())
        analysis = pipeline.analyze(self.warehouse, window, self.analyzers)
        self.metrics.record_plugin_runs(analysis.runs)
        findings = analysis.findings
        self.metrics.record_findings(findings, window)
        log.info("analyzed", extra={"findings": len(findings)})
        if not self.settings.actions.enabled:
            self._plan_writer.write_preview(findings, window.end)

    def stalled(self) -> None:
        """Judge and store stalled jobs only, after each collection: each of their minutes counts.

        Read: the samples of `stalled.lookback`. The findings of other kinds from the last full
        analysis stay valid.
        """
        now = self.clock()
        window = Window.last(ANALYSIS_WINDOW, now=now)
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
        """Move old rows to their tier and merge small files."""
        try:
            moved = tiers.move_to_cold(self.warehouse, self.clock())
        finally:  # the lake stays small while the cold tier is away
            maintenance.compact_warehouse(self.warehouse)
            self.metrics.record_tiers(self.warehouse, self.clock())
        log.info("tidied", extra={"moved": str(moved)})

    def _collect_from(self, names: AbstractSet[str], period: timedelta) -> None:
        now = self.clock()
        for name in sorted(names):
            if self._stop.is_set():
                raise JobInterrupted
            window = Window(min(self._since.get(name, now - period), now - period), now)
            began = time.monotonic()
            try:
                added = self._store_rows(self.collectors[name], window)
            except JobInterrupted:
                raise
            except FallowError as error:
                self.metrics.record_collection(name, time.monotonic() - began, added=0, up=False)
                log.warning("collector failed", extra={"collector": name, "error": str(error)})
                continue
            except Exception as error:  # noqa: BLE001  (a fault in one plugin is that plugin's)
                self.metrics.record_collection(name, time.monotonic() - began, added=0, up=False)
                why = plugin_runs.log_failure("collector", name, error)
                self._runs.keep([PluginRun("collector", name, "failed", why)], now)
                continue
            with suppress(TemporaryError):  # the rows are safe; the next pass keeps it
                self._runs.keep([PluginRun("collector", name, "done")], now)
            self._since[name] = now
            took = time.monotonic() - began
            self.metrics.record_collection(name, took, added=added, up=True, now=now)
            log.info("collected", extra={"collector": name, "added": added})

    def _store_rows(self, collector: Collector, window: Window) -> int:
        """Store a collector's batches; a source with history is stored chunk by chunk."""
        if hasattr(collector, "failure"):
            return drain(self.warehouse, cast(Any, collector), window, self._check_stop)[0]
        return self._ingest(collector.collect(window)).added

    def _ingest(self, batches: Iterable[Batch]) -> "IngestResult":
        """Store rows, or keep them while PostgreSQL or S3 is away.

        A source with history is not queued: it is read again from where its rows end.
        """
        if self._queue is not None:
            return self._queue.ingest(batches)
        return pipeline.ingest(self.warehouse, batches)

    def _check_stop(self, _label: str, _part: float) -> None:
        """Stop between two chunks of a long history: the next run continues after these chunks."""
        if self._stop.is_set():
            raise JobInterrupted


def select_watching(collectors: Mapping[str, Collector]) -> dict[str, WatchesChanges]:
    """Return the collectors that keep their inventory current by watches."""
    return {name: c for name, c in collectors.items() if isinstance(c, WatchesChanges)}


def serve(
    settings: Settings,
    stop: threading.Event | None = None,
    *,
    roles: Collection[ServiceRole] = (),
    environ: Mapping[str, str] | None = None,
) -> None:
    """Run these roles (none = all) until SIGTERM or SIGINT (or until `stop` is set).

    `environ`: variables of the dashboard's process in addition to our own environment.

    Raises:
        UsageError: nothing to collect from is configured, service.listen cannot be bound, a role
            of several has to share an embedded warehouse, or there is no dashboard to run alone.
        TemporaryError: another process writes this warehouse, or its queue.
    """
    mine, stop = expand_roles(roles), stop or threading.Event()
    _check_settings(settings, mine)
    shows = ServiceRole.dashboard in mine and missing_dashboard() is None
    reported_roles = mine - (set() if settings.actions.enabled else {ServiceRole.actor})
    metrics = SelfMetrics(reported_roles - (set() if shows else {ServiceRole.dashboard}))
    ready = Readiness(settings.service.grace, _now)
    api = _make_api(settings, metrics) if ServiceRole.actor in mine else None

    def why_not() -> list[str]:
        return ["it is stopping"] if stop.is_set() else ready.why_not()

    with ExitStack() as stack:
        stack.enter_context(suppress(StoppedError))
        stack.enter_context(stop_on_signals(stop))
        endpoint = Endpoint(settings.service.listen, metrics, why_not=why_not, api=api)
        stack.enter_context(endpoint)
        jobs: list[ServiceJob] = []
        timetable: Timetable | None = None
        if mine & WRITERS:
            log.info("begins", extra={"listen": endpoint.address})
            warehouse = stack.enter_context(open_warehouse(settings, mine, stop, ready.waits))
            queue = stack.enter_context(open_queue(settings, warehouse, mine, metrics.record_queue))
            act = stack.enter_context(_open_act_job(settings, warehouse, metrics, mine))
            service = _make_loop(
                settings, warehouse, metrics, act=act, roles=mine, stop=stop, queue=queue
            )
            jobs = service.jobs()
            if ServiceRole.analyzer in mine and settings.reports.schedules:
                job, timetable = stack.enter_context(
                    _open_report_job(settings, warehouse, metrics, stop)
                )
                jobs.append(job)
            metrics.record_collectors(service.collectors, _now())
            for collector in select_watching(service.collectors).values():
                stack.enter_context(collector.watch(stop))
            if api is not None:
                api.people = ActionRequests(settings, warehouse, _now)
                api.people.copy_soon()  # what people did while it was waited for
            # People's requests are finished before the warehouse is closed.
            stack.callback(endpoint.close)
        metrics.record_schedule(jobs, _now())
        ready.expects(jobs)
        if shows:
            url = settings.service.url or endpoint.url
            variables = {**(environ or {}), "FALLOW_SERVICE__URL": url}
            stack.enter_context(
                DashboardProcess(COMMAND, variables, lambda up: metrics.record_dashboard(up=up))
            )
        elif ServiceRole.dashboard in mine:
            log.warning("no dashboard", extra={"why": missing_dashboard()})
        log.info(
            "up",
            extra={
                "listen": endpoint.address,
                "roles": sorted(mine),
                "jobs": [job.name for job in jobs],
            },
        )
        handle_stop_signals()  # engines loaded in between install their own SIGINT handler
        _run_jobs(
            jobs, stop, metrics, ready, stack.enter_context(open_tracing()), timetable=timetable
        )
    log.info("stopped; nothing is half-written")


def _now() -> datetime:
    return datetime.now(UTC)


def _make_api(settings: Settings, metrics: SelfMetrics) -> WriteApi:
    """Return the write endpoints; an undo needs no warehouse, so it is answered at once."""
    local = is_loopback(settings.service.listen)
    token = settings.service.token.get_secret_value()
    api = WriteApi(token, loopback=local, on_request=metrics.record_request)
    api.people = ActionRequests(settings, None, _now)
    return api


def _check_settings(settings: Settings, mine: AbstractSet[ServiceRole]) -> None:
    needs_source = ServiceRole.collector in mine or (
        ServiceRole.actor in mine and settings.actions.enabled
    )
    if needs_source and not load_collectors(settings):
        raise UsageError(
            "no source is configured",
            hint="set prometheus.url, exporters.targets or kubernetes.enabled in fallow.yaml",
        )
    if mine == {ServiceRole.dashboard} and (why := missing_dashboard()) is not None:
        raise UsageError("there is no dashboard to run", hint=why)


def _make_loop(
    settings: Settings,
    warehouse: "Warehouse",
    metrics: SelfMetrics,
    *,
    act: Callable[[], None] | None,
    roles: AbstractSet[ServiceRole],
    stop: threading.Event,
    queue: IngestQueue | None,
) -> ServiceLoop:
    cursors = read_cursors(warehouse)
    collectors = (
        load_collectors(settings, cursors=cursors, views=warehouse)
        if ServiceRole.collector in roles
        else {}
    )
    past = collectors.get("prometheus")
    return ServiceLoop(
        warehouse,
        settings,
        collectors=collectors,
        analyzers=analyzer_runs.load_analyzers(settings),
        metrics=metrics,
        clock=_now,
        since={"prometheus": next_start(past, cursors, _now())} if past else None,
        act=act,
        roles=roles,
        stop=stop,
        queue=queue,
    )


@contextmanager
def _open_act_job(
    settings: Settings,
    warehouse: "Warehouse",
    metrics: SelfMetrics,
    roles: AbstractSet[ServiceRole],
) -> Iterator[Callable[[], None] | None]:
    """Yield the job `act` if acting is enabled, over a journal that is open meanwhile.

    Raises:
        UsageError: a policy is not legal.
        RefusedError: the cluster refuses access.
        TemporaryError: the cluster cannot be reached.
    """
    if not settings.actions.enabled or ServiceRole.actor not in roles:
        yield None
        return
    with live_actor.open_turns(
        settings,
        warehouse,
        _now,
        metrics.record_actor_turn,
        on_savings=metrics.record_savings,
        on_notices=metrics.record_notices,
        on_plugin_runs=metrics.record_plugin_runs,
        on_canary=metrics.record_canary,
        ticks=read_ticks,
    ) as act:
        yield act


@contextmanager
def _open_report_job(
    settings: Settings, warehouse: "Warehouse", metrics: SelfMetrics, stop: threading.Event
) -> "Iterator[tuple[ServiceJob, Timetable]]":
    """Yield the job that sends reports, and the function that returns when one is due."""
    with Outbox.open(outbox_path(settings)) as book:
        deliveries = Deliveries(
            settings,
            warehouse,
            book,
            clock=_now,
            on_result=metrics.record_delivery,
            on_backlog=metrics.record_backlog,
            stop=stop,
        )
        job = ServiceJob("report", REPORTS_EVERY, deliveries.turn, ServiceRole.analyzer, apart=True)
        yield job, Timetable(book, settings.reports.schedules)


def _run_jobs(
    jobs: Sequence[ServiceJob],
    stop: threading.Event,
    metrics: SelfMetrics,
    ready: Readiness,
    span: SpanFactory,
    *,
    timetable: "Timetable | None" = None,
) -> None:
    scheduler: Any = BackgroundScheduler(
        timezone=UTC,
        executors={"default": ThreadPoolExecutor(1), "apart": ThreadPoolExecutor(1)},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
    )
    now = _now()
    for order, job in enumerate(jobs):
        scheduler.add_job(
            _run_job,
            "interval",
            args=(job, stop, metrics, ready, span),
            seconds=job.every.total_seconds(),
            next_run_time=now + timedelta(milliseconds=order),
            id=job.name,
            executor="apart" if job.apart else "default",
        )
        if job.apart and timetable is not None:
            timetable.arrange(scheduler, _run_job, (job, stop, metrics, ready, span), "apart")
    scheduler.start()
    try:
        stop.wait()
    finally:
        log.info("stopping after the running job")
        scheduler.shutdown(wait=True)


def _run_job(
    job: ServiceJob,
    stop: threading.Event,
    metrics: SelfMetrics,
    ready: Readiness,
    span: SpanFactory = no_span,
) -> None:
    """Run a job; an exception is logged and counted, and the next turn tries again."""
    if stop.is_set():  # it waited for a running job when the stop came
        return
    began = time.monotonic()
    try:
        with span(job.name):
            job.run()
    except JobInterrupted:
        return
    except Exception as error:  # noqa: BLE001  (a service outlives one failed turn)
        metrics.record_turn(job.name, time.monotonic() - began, _now(), well=False)
        log.error("job failed, will try again", extra={"job": job.name, "error": str(error)})  # noqa: TRY400
        return
    metrics.record_turn(job.name, time.monotonic() - began, _now(), well=True)
    ready.went_well(job.name)

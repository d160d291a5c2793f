"""`fallow up`: collect, account, analyze, act and tidy on a schedule, until told to stop.

One thread does all the jobs' writing, so that two jobs never meet in the warehouse; reports, which
only read, have another. A job that is late is run once, not as often as it was missed. SIGTERM and
SIGINT let the running jobs finish and begin no other: nothing is left half-written, and a second
signal does not hurry it (ingest is one transaction). `runtime.roles` says which process of several
does what.
"""

import logging
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

from fallow import boundary
from fallow.boundary import PluginRun
from fallow.errors import FallowError, TemporaryError, UsageError
from fallow.seams import Analyzer, Collector, WatchesChanges
from fallow.settings import Settings
from fallow.window import Window
from runtime import analyzing, pipeline
from runtime.api import Api
from runtime.child import COMMAND, Child, absent
from runtime.endpoint import Endpoint, loopback
from runtime.importing import aws_rows, price_rows
from runtime.metrics import SelfMetrics
from runtime.people import People, vouch
from runtime.plan_rows import Telling
from runtime.plugin_runs import PluginRuns
from runtime.readiness import Readiness
from runtime.roles import PARTS, WRITERS, Job, Role, parts
from runtime.tracing import Span, tracing, untraced

if TYPE_CHECKING:
    from runtime.scheduling.store import Timetable
    from warehouse.audits import AuditFailure
    from warehouse.lake import Warehouse

log = logging.getLogger("fallow.service")

AWS_EVERY = timedelta(hours=6)
"""Spot prices change a few times a day; the price list of all types takes a minute to read."""
AUDITED = timedelta(days=7)
"""What the audits of a turn read again after a failure: the window that pages begin with."""
REPORTS_EVERY = timedelta(seconds=30)
"""How soon a report that a destination did not take is looked at again."""
INVENTORY = frozenset({"kubernetes"})
"""Collectors that ask for the inventory, on a slower schedule than telemetry."""


class Stopped(Exception):  # noqa: N818  (no error: it was asked for)
    """A job that may be left between two of its parts was left."""


class Service:
    """The service's jobs over one open warehouse. `clock` and collectors are injected by tests.

    `since` says from where on a source with a past is asked first: where an earlier run stopped.
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
        roles: AbstractSet[Role] = PARTS,
        stop: threading.Event | None = None,
    ) -> None:
        self.warehouse = warehouse
        self.settings = settings
        self.collectors = collectors
        self.analyzers = analyzers
        self.metrics = metrics
        self.clock = clock
        self._since: dict[str, datetime] = dict(since or {})
        self._aws_asked = datetime(1970, 1, 1, tzinfo=UTC)
        self._act = act
        self._roles = roles
        self._stop = stop or threading.Event()
        self._audits_failed: bool | None = None
        """None before the first turn, which audits hours of an earlier process too."""
        self._runs = PluginRuns(warehouse, metrics.ran_plugins)
        self._telling = Telling(warehouse, settings)

    def jobs(self) -> list[Job]:
        """Return the jobs of this process's roles; they run in this order on the first turn."""
        every, acting = self.settings.service, self.settings.actions.every
        act = [] if self._act is None else [Job("act", acting, self._act, Role.actor)]
        watch = [Job("watch", every.collect_every, self.watch, Role.collector)]
        every_job = [
            Job("inventory", every.inventory_every, self.inventory, Role.collector),
            *(watch if watched(self.collectors) else ()),
            Job("collect", every.collect_every, self.collect, Role.collector),
            Job("account", every.rollup_every, self.account, Role.collector),
            Job("analyze", every.analyze_every, self.analyze, Role.analyzer),
            *act,
            Job("vouch", every.maintain_every, self.vouch, Role.actor),
            Job("maintain", every.maintain_every, self.maintain, Role.collector),
        ]
        return [job for job in every_job if job.role in self._roles]

    def inventory(self) -> None:
        """Ask for nodes, pods and owners, and for prices."""
        self._gather(INVENTORY & set(self.collectors), self.settings.service.inventory_every)
        now = self.clock()
        pipeline.price(self.warehouse, price_rows(self.settings, now))
        if now - self._aws_asked >= AWS_EVERY:
            pipeline.price(self.warehouse, aws_rows(self.settings, now))
            self._aws_asked = now

    def watch(self) -> None:
        """Store what watches saw change; their threads only listen, this one writes."""
        for name, collector in watched(self.collectors).items():
            try:
                with collector.changes() as batches:
                    stored = pipeline.ingest(self.warehouse, batches) if batches else None
            except FallowError:
                raise
            except Exception as error:  # noqa: BLE001  (a fault in one plugin is that plugin's)
                why = boundary.failed("collector", name, error)
                self._runs.keep([PluginRun("collector", name, "failed", why)], self.clock())
                continue
            self.metrics.watched(collector.progress())
            if stored is not None and stored.added:
                log.info("watched", extra={"collector": name, "added": stored.added})

    def collect(self) -> None:
        """Look at every telemetry source since the last look."""
        self._gather(set(self.collectors) - INVENTORY, self.settings.service.collect_every)

    def account(self) -> None:
        """Roll up what is new, allocate, post the ledger, run the audits."""
        from warehouse.audits import banner  # noqa: PLC0415  (the engine loads in 0.3 s)

        end = self.clock()
        buckets, failures = pipeline.account(self.warehouse, Window(end - timedelta(hours=2), end))
        # An hour that failed is accounted once; the metric stands until an audit of it passes.
        failures = self._standing(failures, Window.last(AUDITED, now=end).whole())
        self.metrics.audited(failures)
        self.metrics.accounted(self.warehouse, self.settings.cluster, end)
        log.info("accounted", extra={"buckets": buckets, "audit_failures": len(failures)})
        if fault := banner(failures):
            log.error(fault)

    def _standing(self, failures: "list[AuditFailure]", window: Window) -> "list[AuditFailure]":
        """Return the audits that fail over what pages show, read again only while one may."""
        from warehouse import audits  # noqa: PLC0415  (the engine loads in 0.3 s)

        if failures or self._audits_failed is not False:
            failures = audits.run(self.warehouse, window)
        self._audits_failed = bool(failures)
        return failures

    def analyze(self) -> None:
        """Find waste in the last seven days and store the findings."""
        window = Window.last(timedelta(days=7), now=self.clock())
        made = pipeline.analyze(self.warehouse, window, self.analyzers)
        self.metrics.ran_plugins(made.runs)
        found = made.findings
        self.metrics.found(found, window)
        log.info("analyzed", extra={"findings": len(found)})
        if not self.settings.actions.enabled:
            self._telling.would(found, window.end)

    def vouch(self) -> None:
        """Check every link of the journal, and count who waits for approval."""
        found = vouch(self.settings, self.warehouse, self.clock)
        if found is None:
            return
        rows, broken, waiting = found
        self.metrics.vouched(rows, broken=broken is not None, waiting=waiting)
        if broken is not None:
            log.error("the journal is broken", extra={"row": broken.seq, "why": broken.why})

    def maintain(self) -> None:
        """Move old rows to their tier and merge small files."""
        from warehouse import maintenance, tiers  # noqa: PLC0415  (the engine loads in 0.3 s)

        moved = tiers.move(self.warehouse, self.clock())
        maintenance.compact(self.warehouse)
        self.metrics.tidied(self.warehouse, self.clock())
        log.info("tidied", extra={"moved": str(moved)})

    def _gather(self, names: AbstractSet[str], period: timedelta) -> None:
        now = self.clock()
        for name in sorted(names):
            if self._stop.is_set():
                raise Stopped
            window = Window(min(self._since.get(name, now - period), now - period), now)
            began = time.monotonic()
            try:
                added = self._bring(self.collectors[name], window)
            except Stopped:
                raise
            except FallowError as error:
                self.metrics.collected(name, time.monotonic() - began, added=0, up=False)
                log.warning("collector failed", extra={"collector": name, "error": str(error)})
                continue
            except Exception as error:  # noqa: BLE001  (a fault in one plugin is that plugin's)
                self.metrics.collected(name, time.monotonic() - began, added=0, up=False)
                why = boundary.failed("collector", name, error)
                self._runs.keep([PluginRun("collector", name, "failed", why)], now)
                continue
            self._runs.keep([PluginRun("collector", name, "done")], now)
            self._since[name] = now
            took = time.monotonic() - began
            self.metrics.collected(name, took, added=added, up=True, now=now)
            log.info("collected", extra={"collector": name, "added": added})

    def _bring(self, collector: Collector, window: Window) -> int:
        """Store what a collector brings; a source with a past is stored chunk by chunk."""
        if hasattr(collector, "failure"):
            from runtime.collecting import drain  # noqa: PLC0415  (it imports the collectors)

            return drain(self.warehouse, cast(Any, collector), window, self._between)[0]
        return pipeline.ingest(self.warehouse, collector.collect(window)).added

    def _between(self, _what: str, _part: float) -> None:
        """Leave a long past between two chunks: what was read is stored, the next run goes on."""
        if self._stop.is_set():
            raise Stopped


def watched(collectors: Mapping[str, Collector]) -> dict[str, WatchesChanges]:
    """Return the collectors that keep their inventory current by watches."""
    return {name: c for name, c in collectors.items() if isinstance(c, WatchesChanges)}


def serve(
    settings: Settings,
    stop: threading.Event | None = None,
    *,
    roles: Collection[Role] = (),
    environ: Mapping[str, str] | None = None,
) -> None:
    """Run these roles (none = all) until SIGTERM or SIGINT (or until `stop` is set).

    `environ`: what the dashboard's process is told beside our own environment: which settings.

    Raises:
        UsageError: nothing to collect from is configured, service.listen cannot be bound, a role
            of several has to share an embedded warehouse, or there is no dashboard to run alone.
        TemporaryError: another process writes this warehouse.
    """
    mine, stop = parts(roles), stop or threading.Event()
    _check(settings, mine)
    shows = Role.dashboard in mine and absent() is None
    acts = Role.actor in mine
    told = mine - (set() if settings.actions.enabled else {Role.actor})
    metrics = SelfMetrics(told - (set() if shows else {Role.dashboard}))
    ready = Readiness(settings.service.grace, _now)
    local = loopback(settings.service.listen)
    token = settings.service.token.get_secret_value()
    api = Api(token, loopback=local, told=metrics.requested) if acts else None

    def why_not() -> list[str]:
        return ["it is stopping"] if stop.is_set() else ready.why_not()

    with ExitStack() as stack:
        stack.enter_context(_signals(stop))
        endpoint = Endpoint(settings.service.listen, metrics, why_not=why_not, api=api)
        stack.enter_context(endpoint)
        jobs: list[Job] = []
        timetable: Timetable | None = None
        if mine & WRITERS:
            warehouse = stack.enter_context(_opened(settings, mine))
            act = stack.enter_context(_acting(settings, warehouse, metrics, mine))
            service = _service(settings, warehouse, metrics, act=act, roles=mine, stop=stop)
            jobs = service.jobs()
            if Role.analyzer in mine and settings.reports.schedules:
                job, timetable = stack.enter_context(_reporting(settings, warehouse, metrics, stop))
                jobs.append(job)
            metrics.expects(service.collectors, _now())
            for collector in watched(service.collectors).values():
                stack.enter_context(collector.watching(stop))
            if api is not None:
                api.people = People(settings, warehouse, _now)
            # What people asked is done before the warehouse is closed.
            stack.callback(endpoint.close)
        metrics.scheduled(jobs, _now())
        ready.expects(jobs)
        if shows:
            url = settings.service.url or endpoint.url
            said = {**(environ or {}), "FALLOW_SERVICE__URL": url}
            stack.enter_context(Child(COMMAND, said, lambda up: metrics.shown(up=up)))
        elif Role.dashboard in mine:
            log.warning("no dashboard", extra={"why": absent()})
        log.info(
            "up",
            extra={
                "listen": endpoint.address,
                "roles": sorted(mine),
                "jobs": [job.name for job in jobs],
            },
        )
        stack.enter_context(_signals(stop))  # engines that loaded since take SIGINT for themselves
        _run(jobs, stop, metrics, ready, stack.enter_context(tracing()), timetable=timetable)
    log.info("stopped; nothing is half-written")


def _now() -> datetime:
    return datetime.now(UTC)


def _check(settings: Settings, mine: AbstractSet[Role]) -> None:
    from runtime.collecting import configured  # noqa: PLC0415

    asks = Role.collector in mine or (Role.actor in mine and settings.actions.enabled)
    if asks and not configured(settings):
        raise UsageError(
            "no source is configured",
            hint="set prometheus.url, exporters.targets or kubernetes.enabled in fallow.yaml",
        )
    if mine == {Role.dashboard} and (why := absent()) is not None:
        raise UsageError("there is no dashboard to run", hint=why)


@contextmanager
def _opened(settings: Settings, mine: AbstractSet[Role]) -> "Iterator[Warehouse]":
    """Open the warehouse; roles that were split cannot take turns at an embedded one."""
    from warehouse.lake import Warehouse  # noqa: PLC0415

    try:
        warehouse = Warehouse.open(settings, write=True)
    except TemporaryError as error:
        if settings.warehouse.catalog or mine >= WRITERS:
            raise
        names = ", ".join(sorted(mine & WRITERS))
        raise UsageError(
            f"{names} cannot share this warehouse: {error.message}",
            hint="run every role in one process (fallow up), or set warehouse.catalog = "
            "postgres:... for all of them",
        ) from error
    with warehouse:
        yield warehouse


def _service(
    settings: Settings,
    warehouse: "Warehouse",
    metrics: SelfMetrics,
    *,
    act: Callable[[], None] | None,
    roles: AbstractSet[Role],
    stop: threading.Event,
) -> Service:
    from runtime.collecting import configured, cursors, since  # noqa: PLC0415

    done = cursors(warehouse)
    collectors = configured(settings, done=done) if Role.collector in roles else {}
    past = collectors.get("prometheus")
    return Service(
        warehouse,
        settings,
        collectors=collectors,
        analyzers=analyzing.chosen(settings),
        metrics=metrics,
        clock=_now,
        since={"prometheus": since(past, done, _now())} if past else None,
        act=act,
        roles=roles,
        stop=stop,
    )


@contextmanager
def _acting(
    settings: Settings,
    warehouse: "Warehouse",
    metrics: SelfMetrics,
    roles: AbstractSet[Role],
) -> Iterator[Callable[[], None] | None]:
    """Give the job `act` where acting is enabled, over a journal that is open meanwhile.

    Raises:
        UsageError: a policy is not legal.
        RefusedError: the cluster does not let us in.
        TemporaryError: the cluster cannot be reached.
    """
    if not settings.actions.enabled or Role.actor not in roles:
        yield None
        return
    from runtime import acting  # noqa: PLC0415  (loads the API's client)

    with acting.standing(
        settings,
        warehouse,
        _now,
        metrics.acted,
        saved=metrics.saved,
        noticed=metrics.noticed,
        ran=metrics.ran_plugins,
    ) as act:
        yield act


@contextmanager
def _reporting(
    settings: Settings, warehouse: "Warehouse", metrics: SelfMetrics, stop: threading.Event
) -> "Iterator[tuple[Job, Timetable]]":
    """Give the job that sends reports, and when it is to run because one is due."""
    from runtime.delivery.book import Book, path_of  # noqa: PLC0415
    from runtime.delivery.sending import Deliveries  # noqa: PLC0415
    from runtime.scheduling.store import Timetable  # noqa: PLC0415

    with Book.open(path_of(settings)) as book:
        deliveries = Deliveries(
            settings,
            warehouse,
            book,
            clock=_now,
            told=metrics.delivered,
            left=metrics.owing,
            stop=stop,
        )
        job = Job("report", REPORTS_EVERY, deliveries.turn, Role.analyzer, apart=True)
        yield job, Timetable(book, settings.reports.schedules)


def _run(
    jobs: Sequence[Job],
    stop: threading.Event,
    metrics: SelfMetrics,
    ready: Readiness,
    span: Span,
    *,
    timetable: "Timetable | None" = None,
) -> None:
    from apscheduler.executors.pool import ThreadPoolExecutor  # noqa: PLC0415
    from apscheduler.schedulers.background import BackgroundScheduler  # noqa: PLC0415

    scheduler: Any = BackgroundScheduler(
        timezone=UTC,
        executors={"default": ThreadPoolExecutor(1), "apart": ThreadPoolExecutor(1)},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
    )
    now = _now()
    for order, job in enumerate(jobs):
        scheduler.add_job(
            _turn,
            "interval",
            args=(job, stop, metrics, ready, span),
            seconds=job.every.total_seconds(),
            next_run_time=now + timedelta(milliseconds=order),
            id=job.name,
            executor="apart" if job.apart else "default",
        )
        if job.apart and timetable is not None:
            timetable.arrange(scheduler, _turn, (job, stop, metrics, ready, span), "apart")
    scheduler.start()
    try:
        stop.wait()
    finally:
        log.info("stopping after the running job")
        scheduler.shutdown(wait=True)


def _turn(
    job: Job,
    stop: threading.Event,
    metrics: SelfMetrics,
    ready: Readiness,
    span: Span = untraced,
) -> None:
    """Run a job; what it raises is logged and counted, and the next turn tries again."""
    if stop.is_set():  # it waited for the one that was running when we were told
        return
    began = time.monotonic()
    try:
        with span(job.name):
            job.run()
    except Stopped:
        return
    except Exception as error:  # noqa: BLE001  (a service outlives one failed turn)
        metrics.ran(job.name, time.monotonic() - began, _now(), well=False)
        log.error("job failed, will try again", extra={"job": job.name, "error": str(error)})  # noqa: TRY400
        return
    metrics.ran(job.name, time.monotonic() - began, _now(), well=True)
    ready.went_well(job.name)


@contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    """Let SIGTERM and SIGINT set `stop` meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def told(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, told) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

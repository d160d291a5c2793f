"""`fallow up`: collect, account, analyze and tidy on a schedule, until told to stop.

One thread does all writing, so that two jobs never meet in the warehouse; a job that is late is
run once, not as often as it was missed. SIGTERM and SIGINT let the running job finish: nothing is
left half-written, and a second signal does not hurry it (ingest is one transaction).
"""

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

from fallow.errors import FallowError, UsageError
from fallow.seams import Analyzer, Collector
from fallow.settings import Settings
from fallow.window import Window
from runtime import analyzing, pipeline
from runtime.importing import aws_rows, price_rows
from runtime.metrics import Endpoint, SelfMetrics

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

log = logging.getLogger("fallow.service")

AWS_EVERY = timedelta(hours=6)
"""Spot prices change a few times a day; the price list of all types takes a minute to read."""
INVENTORY = frozenset({"kubernetes"})
"""Collectors that ask for the inventory, on a slower schedule than telemetry."""


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
        analyzers: Sequence[Analyzer],
        metrics: SelfMetrics,
        clock: Callable[[], datetime],
        since: Mapping[str, datetime] | None = None,
        act: Callable[[], None] | None = None,
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

    def jobs(self) -> list[tuple[str, timedelta, Callable[[], None]]]:
        """Return each job with its period; they run in this order on the first turn."""
        every = self.settings.service
        acting = [] if self._act is None else [("act", self.settings.actions.every, self._act)]
        return [
            ("inventory", every.inventory_every, self.inventory),
            ("collect", every.collect_every, self.collect),
            ("account", every.rollup_every, self.account),
            ("analyze", every.analyze_every, self.analyze),
            *acting,
            ("maintain", every.maintain_every, self.maintain),
        ]

    def inventory(self) -> None:
        """Ask for nodes, pods and owners, and for prices."""
        self._gather(INVENTORY & set(self.collectors), self.settings.service.inventory_every)
        now = self.clock()
        pipeline.price(self.warehouse, price_rows(self.settings, now))
        if now - self._aws_asked >= AWS_EVERY:
            pipeline.price(self.warehouse, aws_rows(self.settings, now))
            self._aws_asked = now

    def collect(self) -> None:
        """Look at every telemetry source since the last look."""
        self._gather(set(self.collectors) - INVENTORY, self.settings.service.collect_every)

    def account(self) -> None:
        """Roll up what is new, allocate, post the ledger, run the audits."""
        end = self.clock()
        buckets, failures = pipeline.account(self.warehouse, Window(end - timedelta(hours=2), end))
        self.metrics.audited(failures)
        log.info("accounted", extra={"buckets": buckets, "audit_failures": len(failures)})
        for failure in failures:
            log.error("the books do not balance", extra={"audit": str(failure)})

    def analyze(self) -> None:
        """Find waste in the last seven days and store the findings."""
        window = Window.last(timedelta(days=7), now=self.clock())
        found = pipeline.analyze(self.warehouse, window, self.analyzers)
        self.metrics.found(found, window)
        log.info("analyzed", extra={"findings": len(found)})

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
            window = Window(min(self._since.get(name, now - period), now - period), now)
            began = time.monotonic()
            try:
                added = self._bring(self.collectors[name], window)
            except FallowError as error:
                self.metrics.collected(name, time.monotonic() - began, added=0, up=False)
                log.warning("collector failed", extra={"collector": name, "error": str(error)})
                continue
            self._since[name] = now
            self.metrics.collected(name, time.monotonic() - began, added=added, up=True)
            log.info("collected", extra={"collector": name, "added": added})

    def _bring(self, collector: Collector, window: Window) -> int:
        """Store what a collector brings; a source with a past is stored chunk by chunk."""
        if hasattr(collector, "failure"):
            from runtime.collecting import drain  # noqa: PLC0415  (it imports the collectors)

            return drain(self.warehouse, cast(Any, collector), window, lambda _what, _part: None)[0]
        return pipeline.ingest(self.warehouse, collector.collect(window)).added


def serve(settings: Settings, stop: threading.Event | None = None) -> None:
    """Run until SIGTERM or SIGINT (or until `stop` is set).

    Raises:
        UsageError: nothing to collect from is configured, or service.listen cannot be bound.
        TemporaryError: another process writes this warehouse.
    """
    from runtime.collecting import configured, cursors, since  # noqa: PLC0415
    from warehouse.lake import Warehouse  # noqa: PLC0415

    if not configured(settings):
        raise UsageError(
            "no source is configured",
            hint="set prometheus.url, exporters.targets or kubernetes.enabled in fallow.yaml",
        )
    stop = stop or threading.Event()
    metrics = SelfMetrics()
    with (
        Endpoint(settings.service.listen, metrics) as endpoint,
        Warehouse.open(settings, write=True) as warehouse,
        _acting(settings, warehouse, metrics) as act,
    ):
        done = cursors(warehouse)
        collectors = configured(settings, done=done)
        past = collectors.get("prometheus")
        service = Service(
            warehouse,
            settings,
            collectors=collectors,
            analyzers=[*analyzing.chosen(settings).values()],
            metrics=metrics,
            clock=lambda: datetime.now(UTC),
            since={"prometheus": since(past, done, datetime.now(UTC))} if past else None,
            act=act,
        )
        _listen_to_signals(stop)
        log.info("up", extra={"listen": endpoint.address, "collectors": sorted(collectors)})
        _run(service, stop)
    log.info("stopped; nothing is half-written")


@contextmanager
def _acting(
    settings: Settings, warehouse: "Warehouse", metrics: SelfMetrics
) -> Iterator[Callable[[], None] | None]:
    """Give the job `act` where acting is enabled, over a journal that is open meanwhile.

    Raises:
        UsageError: a policy is not legal.
        RefusedError: the cluster does not let us in.
        TemporaryError: the cluster cannot be reached.
    """
    if not settings.actions.enabled:
        yield None
        return
    from runtime import acting  # noqa: PLC0415  (loads the API's client)

    with acting.standing(settings, warehouse, lambda: datetime.now(UTC), metrics.acted) as act:
        yield act


def _run(service: Service, stop: threading.Event) -> None:
    from apscheduler.executors.pool import ThreadPoolExecutor  # noqa: PLC0415
    from apscheduler.schedulers.background import BackgroundScheduler  # noqa: PLC0415

    scheduler: Any = BackgroundScheduler(
        timezone=UTC,
        executors={"default": ThreadPoolExecutor(1)},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
    )
    now = datetime.now(UTC)
    for order, (name, period, job) in enumerate(service.jobs()):
        scheduler.add_job(
            _guarded,
            "interval",
            args=(name, job, service.metrics),
            seconds=period.total_seconds(),
            next_run_time=now + timedelta(milliseconds=order),
            id=name,
        )
    scheduler.start()
    try:
        stop.wait()
    finally:
        log.info("stopping after the running job")
        scheduler.shutdown(wait=True)


def _guarded(name: str, job: Callable[[], None], metrics: SelfMetrics) -> None:
    """Run a job; what it raises is logged and counted, and the next turn tries again."""
    try:
        job()
    except Exception as error:  # noqa: BLE001  (a service outlives one failed turn)
        metrics.failed(name)
        log.error("job failed, will try again", extra={"job": name, "error": str(error)})  # noqa: TRY400


def _listen_to_signals(stop: threading.Event) -> None:
    if threading.current_thread() is not threading.main_thread():
        return

    def told(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, told)
    signal.signal(signal.SIGINT, told)

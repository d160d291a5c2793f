"""Run `fallow up`: open what the roles of this process need, run their jobs, stop on SIGTERM.

`runtime.service.jobs` has the jobs, `runtime.service.schedule` their threads. SIGTERM and SIGINT
let the running jobs finish and start no other, so that nothing is left half-written; a second
signal changes nothing (ingest is one transaction). `runtime.service.roles` defines which of several
processes does what.
"""

import logging
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from datetime import timedelta

from fallow.errors import UsageError
from fallow.settings import Settings
from fallow.shards import Shard, choose_shard
from fallow.system.clock_steps import ClockSteps, read_ticks
from fallow.system.daemon_threads import TaskRunner
from runtime.operations.acting.actor_turns import open_turns
from runtime.operations.acting.configmap_switch import ConfigMapSwitch
from runtime.operations.acting.requests import ActionRequests
from runtime.operations.analysis import analyzer_runs
from runtime.operations.analysis.idleness import IdlenessReader
from runtime.operations.ingestion.collection import find_next_start, load_collectors, read_cursors
from runtime.operations.ingestion.import_stores import take_requests
from runtime.operations.ingestion.ingest_queue import IngestQueue
from runtime.operations.ingestion.sharding import PRICES, select_targets
from runtime.service.api import ApiAccess, WriteApi
from runtime.service.dashboard_process import COMMAND, DashboardProcess, explain_missing_dashboard
from runtime.service.delivery.outbox import Outbox, get_outbox_path
from runtime.service.delivery.sender import Deliveries
from runtime.service.endpoint import Endpoint, is_loopback
from runtime.service.idleness_api import IdlenessApi, RateLimit
from runtime.service.jobs import ServiceLoop, select_watching
from runtime.service.metrics import SelfMetrics
from runtime.service.opening import StoppedError, open_queue, open_warehouse
from runtime.service.readiness import Readiness
from runtime.service.roles import WRITERS, Lane, ServiceJob, ServiceRole, expand_roles
from runtime.service.schedule import ServiceThreads, get_utc_now, run_jobs
from runtime.service.scheduling.store import Timetable
from runtime.service.shard_leases import hold_shard
from runtime.service.stop_signals import handle_stop_signals, stop_on_signals
from runtime.service.tracing import open_tracing
from warehouse.lake import Warehouse

log = logging.getLogger("fallow.service")

REPORTS_EVERY = timedelta(seconds=30)
"""How soon a report that a destination refused is sent again."""


def serve(
    settings: Settings,
    stop: threading.Event | None = None,
    *,
    roles: Collection[ServiceRole] = (),
    environ: Mapping[str, str] | None = None,
) -> list[str]:
    """Run these roles (none = all) until SIGTERM or SIGINT (or until `stop` is set).

    Returns the kinds of tasks that still hang in threads of this process, if any do.

    `environ`: variables of the dashboard's process in addition to our own environment.

    Raises:
        UsageError: nothing to collect from is configured, service.listen cannot be bound, a role
            of several has to share an embedded warehouse, there is no dashboard to run alone, or
            service.shard is no shard of those that run.
        TemporaryError: another process writes this warehouse or its queue, or collects this shard.
    """
    mine, stop = expand_roles(roles), stop or threading.Event()
    shard = _choose_shard(settings, mine)  # what was typed, before what was not
    _check_settings(settings, mine)
    shows = ServiceRole.dashboard in mine and explain_missing_dashboard() is None
    reported_roles = mine - (set() if settings.actions.enabled else {ServiceRole.actor})
    metrics = SelfMetrics(reported_roles - (set() if shows else {ServiceRole.dashboard}))
    ready = Readiness(settings.service.grace, get_utc_now)
    api, idleness = _make_apis(settings, metrics) if ServiceRole.actor in mine else (None, None)

    threads, left = ServiceThreads(), list[str]()
    clock_steps = ClockSteps(read_ticks)

    def why_not() -> list[str]:
        return ["it is stopping"] if stop.is_set() else ready.why_not()

    with ExitStack() as stack:
        stack.enter_context(suppress(StoppedError))
        stack.enter_context(stop_on_signals(stop))
        endpoint = Endpoint(
            settings.service.listen, metrics, why_not=why_not, api=api, idleness=idleness
        )
        stack.enter_context(endpoint)
        jobs: list[ServiceJob] = []
        timetable: Timetable | None = None
        if mine & WRITERS:
            log.info("begins", extra={"listen": endpoint.address})
            warehouse = stack.enter_context(open_warehouse(settings, mine, stop, ready.waits))
            accounts = stack.enter_context(
                hold_shard(warehouse, settings, shard, stop, on_states=metrics.record_shards)
                if ServiceRole.collector in mine
                else nullcontext(_account_nothing)
            )
            queue = stack.enter_context(open_queue(settings, warehouse, mine, metrics.record_queue))
            act = stack.enter_context(
                _open_act_job(
                    settings,
                    warehouse,
                    metrics,
                    mine,
                    writer=threads.writer,
                    stop=stop,
                    clock_steps=clock_steps,
                )
            )
            service = _make_loop(
                settings,
                warehouse,
                metrics,
                threads,
                take_imports=stack.enter_context(
                    take_requests(warehouse, collects=ServiceRole.collector in mine)
                ),
                act=act,
                roles=mine,
                stop=stop,
                queue=queue,
                shard=shard,
                accounts=accounts,
            )
            # Before the queue is closed: rows that the writing thread did not come to.
            stack.callback(service.sources.keep_unstored)
            jobs = service.jobs()
            if ServiceRole.analyzer in mine and settings.reports.schedules:
                job, timetable = stack.enter_context(
                    _open_report_job(settings, warehouse, metrics, stop)
                )
                jobs.append(job)
            metrics.record_collectors(service.collectors, get_utc_now())
            for collector in select_watching(service.collectors).values():
                stack.enter_context(collector.watch(stop))
            if api is not None and idleness is not None:
                _open_apis(api, idleness, settings, warehouse)
            # People's requests are finished before the warehouse is closed.
            stack.callback(endpoint.close)
        metrics.record_schedule(jobs, get_utc_now())
        ready.expects(jobs)
        if shows:
            url = settings.service.url or endpoint.url
            variables = {**(environ or {}), "FALLOW_SERVICE__URL": url}
            stack.enter_context(
                DashboardProcess(COMMAND, variables, lambda up: metrics.record_dashboard(up=up))
            )
        elif ServiceRole.dashboard in mine:
            log.warning("no dashboard", extra={"why": explain_missing_dashboard()})
        log.info(
            "up",
            extra={
                "listen": endpoint.address,
                "roles": sorted(mine),
                "jobs": [job.name for job in jobs],
            },
        )
        handle_stop_signals()  # engines loaded in between install their own SIGINT handler
        left = run_jobs(
            jobs,
            stop,
            metrics,
            ready,
            stack.enter_context(open_tracing()),
            threads=threads,
            grace_s=settings.service.stop_within.total_seconds(),
            timetable=timetable,
            clock_steps=clock_steps,
        )
        if left:
            log.warning("stopped without what still hangs", extra={"hangs": left})
    log.info("stopped; nothing is half-written")
    return left


def _make_apis(settings: Settings, metrics: SelfMetrics) -> tuple[WriteApi, IdlenessApi]:
    """Return the endpoints of /v1; an undo needs no warehouse, so it is answered at once."""
    local = is_loopback(settings.service.listen)
    token = settings.service.token.get_secret_value()
    api = WriteApi(token, loopback=local, on_request=metrics.record_request)
    api.people = ActionRequests(settings, None, get_utc_now)
    limit = RateLimit(settings.service.idleness_per_minute)
    access = ApiAccess(token, loopback=local)
    return api, IdlenessApi(access, limit, metrics.record_request)


def _open_apis(
    api: WriteApi, idleness: IdlenessApi, settings: Settings, warehouse: "Warehouse"
) -> None:
    """Let the endpoints of /v1 answer from the warehouse, which was waited for."""
    api.people = ActionRequests(settings, warehouse, get_utc_now)
    api.people.copy_soon()  # what people did while it was waited for
    freeze = ConfigMapSwitch(settings).why
    idleness.reader = IdlenessReader(warehouse, settings, get_utc_now, freeze)


def _check_settings(settings: Settings, mine: AbstractSet[ServiceRole]) -> None:
    needs_source = ServiceRole.collector in mine or (
        ServiceRole.actor in mine and settings.actions.enabled
    )
    if needs_source and not load_collectors(settings):
        raise UsageError(
            "no source is configured",
            hint="set prometheus.url, exporters.targets or kubernetes.enabled in fallow.yaml",
        )
    if mine == {ServiceRole.dashboard} and (why := explain_missing_dashboard()) is not None:
        raise UsageError("there is no dashboard to run", hint=why)


def _account_nothing() -> bool:
    return False


def _choose_shard(settings: Settings, mine: AbstractSet[ServiceRole]) -> Shard:
    """Return the shard of a process that collects; other processes have none to choose.

    Raises:
        UsageError: the settings name no shard that exists.
    """
    service = settings.service
    if ServiceRole.collector in mine:
        return choose_shard(service.shard, service.shards, socket.gethostname())
    if service.shard:
        raise UsageError(
            f"shard {service.shard!r} is of a collector; this process is {', '.join(sorted(mine))}",
            hint=f"fallow up --role collector --shard {service.shard}",
        )
    return Shard()


def _make_loop(
    settings: Settings,
    warehouse: "Warehouse",
    metrics: SelfMetrics,
    threads: ServiceThreads,
    *,
    take_imports: Callable[[], None] | None,
    act: Callable[[], None] | None,
    roles: AbstractSet[ServiceRole],
    stop: threading.Event,
    queue: IngestQueue | None,
    shard: Shard,
    accounts: Callable[[], bool],
) -> ServiceLoop:
    cursors = read_cursors(warehouse)
    collectors = (
        load_collectors(select_targets(settings, shard), cursors=cursors, views=warehouse)
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
        clock=get_utc_now,
        since={"prometheus": find_next_start(past, cursors, get_utc_now())} if past else None,
        act=act,
        roles=roles,
        stop=stop,
        queue=queue,
        readers=threads.readers,
        writer=threads.writer,
        accounts=accounts,
        prices=shard.owns(PRICES),
        take_imports=take_imports,
    )


@contextmanager
def _open_act_job(
    settings: Settings,
    warehouse: "Warehouse",
    metrics: SelfMetrics,
    roles: AbstractSet[ServiceRole],
    *,
    writer: TaskRunner | None = None,
    stop: threading.Event | None = None,
    clock_steps: ClockSteps | None = None,
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
    with open_turns(
        settings,
        warehouse,
        get_utc_now,
        metrics.record_actor_turn,
        on_savings=metrics.record_savings,
        on_notices=metrics.record_notices,
        on_plugin_runs=metrics.record_plugin_runs,
        on_canary=metrics.record_canary,
        steps=clock_steps,
        writer=writer,
        stop=stop,
    ) as act:
        yield act


@contextmanager
def _open_report_job(
    settings: Settings, warehouse: "Warehouse", metrics: SelfMetrics, stop: threading.Event
) -> "Iterator[tuple[ServiceJob, Timetable]]":
    """Yield the job that sends reports, and the function that returns when one is due."""
    with Outbox.open(get_outbox_path(settings)) as book:
        deliveries = Deliveries(
            settings,
            warehouse,
            book,
            clock=get_utc_now,
            on_result=metrics.record_delivery,
            on_backlog=metrics.record_backlog,
            stop=stop,
        )
        job = ServiceJob(
            "report", REPORTS_EVERY, deliveries.turn, ServiceRole.analyzer, Lane.report
        )
        yield job, Timetable(book, settings.reports.schedules)

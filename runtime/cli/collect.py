"""`fallow collect`, `fallow doctor`, `fallow up`: bring in live rows, once or on a schedule."""

import threading
from typing import Annotated

import typer

from fallow.errors import UsageError
from runtime.cli.options import CommandRun, Output
from runtime.operations.acting.access_review import review_access
from runtime.operations.doctor import checks
from runtime.operations.ingestion.collection import collect_once
from runtime.service.loop import serve
from runtime.service.process_end import CLOSING_S, end_process, limit_stop
from runtime.service.roles import ServiceRole
from runtime.service.uncaught import log_uncaught


def collect(
    run: CommandRun,
    once: Annotated[bool, typer.Option("--once", help="one pass, for a CronJob")] = False,
    source: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="only this collector; repeatable")
    ] = None,
) -> int:
    """Collect once from every source, and account for it."""
    if not once:
        raise UsageError(
            "collect wants --once", hint="fallow up is the service that collects on a schedule"
        )
    settings = run.own_settings("fallow collect --once")
    with run.warehouse(settings, write=True) as warehouse:
        scrapes = collect_once(warehouse, settings, now=run.now(), names=source)
    run.data(scrapes, noun="scrapes")
    return 0 if any(scrape["up"] for scrape in scrapes) else 75


def doctor(
    run: CommandRun,
    prometheus: Annotated[
        str | None, typer.Option("--prometheus", metavar="URL", help="base URL, without /api/v1")
    ] = None,
    window: Annotated[
        str | None, typer.Option(help="of what analyzers withhold: 7d, or START/END")
    ] = None,
    actions: Annotated[
        bool, typer.Option("--actions", help="only: which cluster, and what we may do there")
    ] = False,
    namespace: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="with --actions: rights in this one; repeatable"),
    ] = None,
) -> int:
    """Check sources, rights, prices, storage, and say what to do."""
    if actions:
        return _review_access(run, namespace or [])
    settings = run.settings(prometheus__url=prometheus)
    rows = checks.run_checks(
        settings,
        now=run.now(),
        opening=lambda: run.warehouse(settings),
        window=window,
        only=run.options.get("cluster"),
    )
    run.data(checks.fold_withheld(rows) if run.output is Output.table else rows, noun="checks")
    return checks.exit_code(rows)


def _review_access(run: CommandRun, namespaces: list[str]) -> int:
    rows = review_access(run.settings(), namespaces)
    run.data(rows, noun="checks")
    return 1 if any(row["status"] == "warn" for row in rows) else 0


def up(
    run: CommandRun,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="where /metrics and /healthz answer")
    ] = None,
    role: Annotated[
        list[ServiceRole] | None,
        typer.Option(help="only this part of the service; repeatable [all]"),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="N/COUNT", help="collect one part of the targets: 2/8 = the second of eight"
        ),
    ] = None,
    backfill: Annotated[
        bool, typer.Option("--backfill/--no-backfill", help="read the Prometheus's history too")
    ] = True,
) -> None:
    """Run the service: collect, account, analyze, act and show."""
    log_uncaught()
    variables = {"config": "CONFIG", "cluster": "CLUSTER", "home": "HOME"}
    values = {k: run.options.get(k) for k in variables}
    environ = {f"FALLOW_{variables[k]}": str(value) for k, value in values.items() if value}
    settings = run.own_settings(
        "fallow up",
        service__listen=listen,
        service__shard=shard,
        prometheus__backfill=None if backfill else False,
    )
    stop = threading.Event()
    with limit_stop(stop, settings.service.stop_within.total_seconds() + CLOSING_S):
        hanging = serve(settings, stop, roles=role or (), environ=environ)
    if hanging:
        end_process()

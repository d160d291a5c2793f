"""`fallow collect`, `fallow doctor`, `fallow up`: bring in live rows, once or on a schedule."""

from typing import Annotated

import typer

from runtime.cli.frame import Run, command
from runtime.roles import Role


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "collect")(collect)
    command(app, "doctor")(doctor)
    command(app, "up")(up)


def collect(
    run: Run,
    once: Annotated[bool, typer.Option("--once", help="one pass, for a CronJob")] = False,
    source: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="only this collector; repeatable")
    ] = None,
) -> int:
    """Collect once from every configured source, account for it, and print how the looks went."""
    from fallow.errors import UsageError  # noqa: PLC0415
    from runtime.collecting import collect_once  # noqa: PLC0415

    if not once:
        raise UsageError(
            "collect wants --once", hint="fallow up is the service that collects on a schedule"
        )
    settings = run.settings()
    with run.warehouse(settings, write=True) as warehouse:
        looks = collect_once(warehouse, settings, now=run.now(), names=source)
    run.data(looks, noun="looks")
    return 0 if any(look["up"] for look in looks) else 75


def doctor(
    run: Run,
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
    """Check sources, rights, prices, storage, channels and pages, and say what to do about each."""
    if actions:
        return _proved(run, namespace or [])
    from runtime.doctor import examining  # noqa: PLC0415

    settings = run.settings(prometheus__url=prometheus)
    rows = examining.examine(
        settings,
        now=run.now(),
        opening=lambda: run.warehouse(settings),
        window=window,
        only=run.options.get("cluster"),
    )
    run.data(rows, noun="checks")
    return examining.exit_code(rows)


def _proved(run: Run, namespaces: list[str]) -> int:
    from runtime.proving import examine  # noqa: PLC0415

    rows = examine(run.settings(), namespaces)
    run.data(rows, noun="checks")
    return 1 if any(row["status"] == "warn" for row in rows) else 0


def up(
    run: Run,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="where /metrics and /healthz answer")
    ] = None,
    role: Annotated[
        list[Role] | None, typer.Option(help="only this part of the service; repeatable [all]")
    ] = None,
) -> None:
    """Run the service: collect, account, analyze, act, tidy and show until told to stop."""
    from runtime.service import serve  # noqa: PLC0415

    told = {"config": "CONFIG", "cluster": "CLUSTER", "home": "HOME"}
    given = {k: run.options.get(k) for k in told}
    environ = {f"FALLOW_{told[k]}": str(value) for k, value in given.items() if value}
    serve(run.settings(service__listen=listen), roles=role or (), environ=environ)

"""`fallow analyze idle` and `fallow explain`: what is held and not used, and why we say so."""

from typing import Annotated, Any

import typer

from runtime.cli.frame import Output, Run, command


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Find waste.")
    app.add_typer(group, name="analyze", no_args_is_help=True)
    command(group, "idle")(idle)
    command(app, "explain")(explain)


def idle(
    run: Run,
    *,
    threshold: Annotated[
        float | None, typer.Option(help="activity (0-1) at or below this is idle")
    ] = None,
    min_duration: Annotated[
        str | None, typer.Option(help="shorter runs are no finding, such as 60m")
    ] = None,
    max_gap: Annotated[
        str | None, typer.Option(help="longest silence inside a run [3 intervals]")
    ] = None,
    exit_threshold: Annotated[
        float | None, typer.Option(help="activity (0-1) from here on ends a run")
    ] = None,
    exit_samples: Annotated[
        int | None, typer.Option(help="so many busy looks in a row end a run")
    ] = None,
    window: Annotated[str | None, typer.Option(help="7d, or START/END")] = None,
    evidence: Annotated[
        str | None, typer.Option(help="only confirmed, or only suspected findings")
    ] = None,
    fail_on_findings: Annotated[
        bool, typer.Option("--fail-on-findings", help="exit with 4 where there are findings")
    ] = False,
) -> int:
    """Find workloads that hold GPUs and do not use them, with evidence and price."""
    from fallow.errors import FINDINGS_EXIST, UsageError  # noqa: PLC0415
    from runtime import ledgers  # noqa: PLC0415
    from runtime.findings import document, row  # noqa: PLC0415

    if evidence not in (None, "confirmed", "suspected"):
        raise UsageError(f"--evidence {evidence!r} is none of: confirmed, suspected")
    settings = run.settings(
        idle__threshold=threshold,
        idle__min_duration=min_duration,
        idle__max_gap=max_gap,
        idle__exit_threshold=exit_threshold,
        idle__exit_samples=exit_samples,
    )
    with run.warehouse(settings) as warehouse:
        chosen, notes, found = ledgers.find_idle(
            warehouse, settings, window, now=run.now(), cluster=run.options.get("cluster")
        )
    unkept = ledgers.keep(settings, found, chosen)
    for line in [*notes, *([unkept] if unkept else [])]:
        run.say(line)
    shown = [f for f in found if evidence in (None, f.evidence)]
    if run.output is Output.json:
        from runtime.output import document as printed  # noqa: PLC0415

        documents: list[dict[str, Any]] = [document(f) for f in shown]
        run.text(printed("findings", {"window": chosen, "findings": documents}))
    else:
        run.data([row(f) for f in shown], noun="findings")
    return FINDINGS_EXIST if fail_on_findings and shown else 0


def explain(
    run: Run,
    finding: Annotated[str, typer.Argument(metavar="ID", help="a finding's id or its beginning")],
) -> None:
    """Print what a finding rests on: rows, SQL with its parameters, rate and arithmetic."""
    from runtime.explaining import explanation  # noqa: PLC0415

    settings = run.settings()
    with run.warehouse(settings) as warehouse:
        told = explanation(warehouse, finding)
    if run.output is Output.json:
        from runtime.output import document  # noqa: PLC0415

        run.text(document("explanation", told))
        return
    from runtime.explaining import spoken  # noqa: PLC0415

    run.text(spoken(told))

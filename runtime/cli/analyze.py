"""`fallow analyze` and `fallow explain`: what is wasted, what removing it saves, and why."""

from typing import TYPE_CHECKING, Annotated

import typer

from runtime.cli.frame import UNTIL, WINDOW, Output, Run, command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analyzers.ranking import Ranked
    from fallow.settings import Settings
    from runtime.analyzing import Analysis

IDLE = "idle"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "analyze")(analyze)
    command(app, "explain")(explain)


def analyze(
    run: Run,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="only these analyzers, such as idle [all]"),
    ] = None,
    *,
    threshold: Annotated[
        float | None, typer.Option(help="idle: activity (0-1) at or below this is idle")
    ] = None,
    min_duration: Annotated[
        str | None, typer.Option(help="idle: shorter runs are no finding, such as 60m")
    ] = None,
    max_gap: Annotated[
        str | None, typer.Option(help="idle: longest silence inside a run [3 intervals]")
    ] = None,
    exit_threshold: Annotated[
        float | None, typer.Option(help="idle: activity (0-1) from here on ends a run")
    ] = None,
    exit_samples: Annotated[
        int | None, typer.Option(help="idle: so many busy looks in a row end a run")
    ] = None,
    window: Annotated[str | None, typer.Option(help=WINDOW)] = None,
    until: Annotated[str | None, typer.Option(help=UNTIL)] = None,
    evidence: Annotated[
        str | None, typer.Option(help="only confirmed, or only suspected findings")
    ] = None,
    top: Annotated[
        int, typer.Option(min=0, help="rows of each class in a table, 0 = all; csv and json: all")
    ] = 25,
    fail_on_findings: Annotated[
        bool, typer.Option("--fail-on-findings", help="exit with 4 where there are findings")
    ] = False,
) -> int:
    """Find waste, with evidence and price, and what removing it saves.

    Findings are ranked by the dollars they save; together they never save more than the bill.
    """
    from fallow.errors import FINDINGS_EXIST, UsageError  # noqa: PLC0415
    from runtime import analyzing, windows  # noqa: PLC0415

    if evidence not in (None, "confirmed", "suspected"):
        raise UsageError(f"--evidence {evidence!r} is none of: confirmed, suspected")
    settings = run.settings(
        idle__threshold=threshold,
        idle__min_duration=min_duration,
        idle__max_gap=max_gap,
        idle__exit_threshold=exit_threshold,
        idle__exit_samples=exit_samples,
    )
    asked = tuple(names or ())
    analyzing.chosen(settings, asked)
    with run.warehouse(settings) as warehouse:
        made = analyzing.analyze(
            warehouse,
            settings,
            asked,
            windows.ending(window, until, run.now()),
            now=run.now(),
            cluster=run.options.get("cluster"),
        )
    unkept = analyzing.keep(settings, made, run.options.get("cluster"))
    for line in [*made.notes, *([unkept] if unkept else [])]:
        run.say(line)
    shown = [row for row in made.ranked if evidence in (None, row.finding.evidence)]
    _show(run, made, shown, asked, top)
    return FINDINGS_EXIST if fail_on_findings and shown else 0


def _show(
    run: Run, made: "Analysis", shown: "Sequence[Ranked]", asked: tuple[str, ...], top: int
) -> None:
    from runtime import findings, showing  # noqa: PLC0415

    if run.output is Output.json:
        from runtime.output import document  # noqa: PLC0415

        body = {
            "window": made.window.whole(),
            "findings": [findings.document(row.finding) for row in shown],
            "waterfall": showing.waterfall_document(made.waterfall),
            "summaries": made.summaries,
        }
        if len(asked) == 1 and asked[0] in made.summaries:
            body["summary"] = made.summaries[asked[0]]
        run.text(document("findings", body))
    elif run.output is Output.csv:
        run.data([findings.row(row) for row in shown], noun="findings")
    else:
        run.text(showing.analysis(shown, made.waterfall, run.output, top))


def explain(
    run: Run,
    finding: Annotated[
        str, typer.Argument(metavar="ID", help="of a finding or an action, or its beginning")
    ],
) -> None:
    """Print what a finding rests on: rows, SQL with its parameters, rate and arithmetic.

    Of an action: policy, facts, gates, writes, proofs, outcome and saving, and whether its verdict
    comes out again from the stored rows.
    """
    from runtime.explaining import explanation  # noqa: PLC0415

    settings = run.settings()
    if _explained_action(run, settings, finding):
        return
    with run.warehouse(settings) as warehouse:
        told = explanation(warehouse, finding, settings)
    if run.output is Output.json:
        from runtime.output import document  # noqa: PLC0415

        run.text(document("explanation", told))
        return
    from runtime.explaining import spoken  # noqa: PLC0415

    run.text(spoken(told))


def _explained_action(run: Run, settings: "Settings", prefix: str) -> bool:
    """Explain the action of that id, if the journal has one."""
    from runtime.planned import journal_of  # noqa: PLC0415

    path = journal_of(settings)
    if not path.is_file():
        return False
    from actions.journal import Journal, Record  # noqa: PLC0415
    from runtime import explaining_actions as explaining  # noqa: PLC0415

    with Journal.open(path, run.now, write=False) as journal:
        record = Record(journal).catch_up()
        action = explaining.action_of(record, prefix)
        if action is None:
            return False
        with run.warehouse(settings) as warehouse:
            told = explaining.explanation(warehouse, settings, record, action, run.now())
    if run.output is Output.json:
        from runtime.output import document  # noqa: PLC0415

        run.text(document("action_explanation", told))
    else:
        run.text(explaining.spoken(told))
    return True

"""`fallow analyze` and `fallow explain`: what is wasted, what removing it saves, and why."""

from typing import TYPE_CHECKING, Annotated

import typer

from actions.journal import Journal, JournalState
from fallow.errors import FINDINGS_EXIST, UsageError
from runtime.cli.options import UNTIL, WINDOW, CommandRun, Output, command
from runtime.operations import action_history, analyzer_runs, findings, reconcile, windows
from runtime.operations.explanations import explain_finding, render_explanation
from runtime.operations.plans import journal_path
from runtime.rendering import finding_tables
from runtime.rendering.tables import document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analyzers.ranking import RankedFinding
    from fallow.settings import Settings
    from runtime.operations.analyzer_runs import Analysis

IDLE = "idle"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "analyze")(analyze)
    command(app, "explain")(explain)


def analyze(
    run: CommandRun,
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
        int | None, typer.Option(help="idle: so many busy samples in a row end a run")
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
    if evidence not in (None, "confirmed", "suspected"):
        raise UsageError(f"--evidence {evidence!r} is none of: confirmed, suspected")
    settings = run.settings(
        idle__threshold=threshold,
        idle__min_duration=min_duration,
        idle__max_gap=max_gap,
        idle__exit_threshold=exit_threshold,
        idle__exit_samples=exit_samples,
    )
    analyzer_names = tuple(names or ())
    analyzer_runs.load_analyzers(settings, analyzer_names)
    with run.warehouse(settings) as warehouse:
        analysis = analyzer_runs.analyze(
            warehouse,
            settings,
            analyzer_names,
            windows.end_window(window, until, run.now()),
            now=run.now(),
            cluster=run.options.get("cluster"),
        )
    note = analyzer_runs.store_analysis(settings, analysis, run.options.get("cluster"))
    for line in [*analysis.notes, *([note] if note else [])]:
        run.say(line)
    ranked = [row for row in analysis.ranked if evidence in (None, row.finding.evidence)]
    _show(run, analysis, ranked, analyzer_names, top)
    return FINDINGS_EXIST if fail_on_findings and ranked else 0


def _show(
    run: CommandRun,
    analysis: "Analysis",
    ranked: "Sequence[RankedFinding]",
    analyzer_names: tuple[str, ...],
    top: int,
) -> None:
    if run.output is Output.json:
        body = {
            "window": analysis.window.whole(),
            "findings": [findings.document(row.finding) for row in ranked],
            "waterfall": finding_tables.waterfall_document(analysis.waterfall),
            "reconciliation": reconcile.document(analysis.waterfall),
            "summaries": analysis.summaries,
        }
        if len(analyzer_names) == 1 and analyzer_names[0] in analysis.summaries:
            body["summary"] = analysis.summaries[analyzer_names[0]]
        run.text(document("findings", body))
    elif run.output is Output.csv:
        run.data([findings.row(row) for row in ranked], noun="findings")
    else:
        run.text(finding_tables.render_analysis(ranked, analysis.waterfall, run.output, top))


def explain(
    run: CommandRun,
    finding: Annotated[
        str, typer.Argument(metavar="ID", help="of a finding or an action, or its beginning")
    ],
) -> None:
    """Print what a finding rests on: rows, SQL with its parameters, rate and arithmetic.

    Of an action: policy, facts, gates, writes, proofs, outcome and saving, and whether its verdict
    comes out again from the stored rows.
    """
    settings = run.settings()
    if _explain_action(run, settings, finding):
        return
    with run.warehouse(settings) as warehouse:
        explanation = explain_finding(warehouse, finding, settings)
    if run.output is Output.json:
        run.text(document("explanation", explanation))
        return
    run.text(render_explanation(explanation))


def _explain_action(run: CommandRun, settings: "Settings", prefix: str) -> bool:
    """Explain the action with that id, if the journal has one."""
    path = journal_path(settings)
    if not path.is_file():
        return False
    with Journal.open(path, run.now, write=False) as journal:
        record = JournalState(journal).catch_up()
        action = action_history.find_action(record, prefix)
        if action is None:
            return False
        with run.warehouse(settings) as warehouse:
            explanation = action_history.explain_action(
                warehouse, settings, record, action, run.now()
            )
    if run.output is Output.json:
        run.text(document("action_explanation", explanation))
    else:
        run.text(action_history.render_explanation(explanation))
    return True

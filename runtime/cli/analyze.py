"""`fallow analyze` and `fallow explain`: what is wasted, what removing it saves, and why."""

from textwrap import indent
from typing import TYPE_CHECKING, Annotated

import typer

from fallow.errors import FINDINGS_EXIST
from runtime.cli.options import UNTIL, WINDOW, CommandRun, Output
from runtime.operations.accounting import windows
from runtime.operations.acting import action_history
from runtime.operations.analysis import analyzer_runs, findings
from runtime.operations.analysis.explanations import ACTION, explain_any, render_explanation
from runtime.operations.answers import documents
from runtime.rendering import finding_tables
from runtime.rendering.tables import document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analyzers.ranking import RankedFinding
    from runtime.operations.analysis.analyzer_runs import Analysis


MARKDOWN_CODE = "    "
"""Before a line of Markdown: it is code, in which nothing is markup or a link."""


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
    """Find waste: evidence, price, and what removing it saves.

    Findings are ranked by the dollars they save; together they never save more than the bill.
    Those of the window and settings of `fallow up` are stored: pages and `fallow spend` show what
    they could save. With another window or setting the answer is only printed.
    """
    documents.check_evidence(evidence)
    trial = {
        "idle__threshold": threshold,
        "idle__min_duration": min_duration,
        "idle__max_gap": max_gap,
        "idle__exit_threshold": exit_threshold,
        "idle__exit_samples": exit_samples,
    }
    settings = run.settings(**trial)
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
            changes=[
                f"--{name.removeprefix('idle__').replace('_', '-')}"
                for name, value in trial.items()
                if value is not None
            ],
        )
    note = analyzer_runs.store_analysis(settings, analysis, run.options.get("cluster"))
    for line in [*analysis.notes, *([note] if note else [])]:
        run.say(line)
    ranked = documents.select_findings(analysis, evidence)
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
        body = documents.describe_analysis(analysis, ranked, analyzer_names)
        run.text(document("findings", body))
    elif run.output is Output.csv:
        run.data([findings.build_row(row) for row in ranked], noun="findings")
    else:
        run.text(finding_tables.render_analysis(ranked, analysis.waterfall, run.output, top))


def explain(
    run: CommandRun,
    finding: Annotated[
        str, typer.Argument(metavar="ID", help="of a finding or an action, or its beginning")
    ],
) -> None:
    """Print what a finding rests on: rows, SQL, rate, arithmetic.

    Of an action: policy, facts, gates, writes, proofs, outcome and saving, and whether its verdict
    comes out again from the stored rows.
    """
    settings = run.settings()
    with run.warehouse(settings) as warehouse:
        noun, explanation = explain_any(warehouse, finding, settings, run.now())
    if run.output is Output.json:
        run.text(document(noun, explanation))
        return
    write = action_history.render_explanation if noun == ACTION else render_explanation
    text = write(explanation)
    run.text(indent(text, MARKDOWN_CODE) if run.output is Output.md else text)

"""`fallow plan` and `backtest`: what policies decide now, and what they would have done."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fallow.errors import RefusedError, UsageError
from fallow.window import format_duration, parse_duration, parse_timestamp
from runtime.cli.options import CommandRun, Output
from runtime.cli.why_not import At, Policies
from runtime.operations.acting import plans
from runtime.rendering import plan_tables
from runtime.rendering.tables import document

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from actions.policy.model import Policy
    from fallow.settings import Settings


def plan(
    run: CommandRun,
    policies: Policies = None,
    *,
    at: At = None,
    top: Annotated[int, typer.Option(min=0, help="rows of a table, 0 = all")] = 40,
) -> None:
    """Show what policies decide now: done, notified, held, refused.

    Signs: + done, = held, ~ notified, . only listed, - refused. Reads only; `fallow apply`
    carries it out.
    """
    settings, rules = _read_rules(run, policies)
    with run.warehouse(settings) as warehouse:
        plan_result = plans.make_plan(
            warehouse,
            settings,
            rules,
            at=_parse_at(run, at),
            cluster=run.options.get("cluster"),
        )
    if run.output is Output.json:
        run.text(document("plan", plan_tables.document(plan_result)))
        return
    all_rows = plan_tables.build_rows(plan_result)
    visible_rows = all_rows if run.output is Output.csv or not top else all_rows[:top]
    run.data(visible_rows, noun="plan")
    if len(visible_rows) < len(all_rows):
        run.say(f"{len(all_rows) - len(visible_rows)} more rows: --top 0, or -o csv")
    for line in plan_tables.plan_notes(plan_result):
        run.say(line)


def explain_anew(
    run: CommandRun,
    workload: str,
    policies: list[Path] | None,
    *,
    policy: str | None,
    at: str | None,
    every: bool,
) -> None:
    """Judge why a workload is not acted upon: the answer of each gate under each policy."""
    settings, rules = _read_rules(run, policies)
    candidates = [_find_policy(rules, policy)] if policy else rules
    with run.warehouse(settings) as warehouse:
        report = plans.explain_why_not(
            warehouse,
            settings,
            candidates,
            workload,
            at=_parse_at(run, at),
            cluster=run.options.get("cluster"),
        )
    rows, described = plan_tables.answer_rows(report), plan_tables.describe_report(report)
    if run.output is Output.json:
        run.data(rows, noun="why_not", **described)
        return
    if run.output is Output.csv:
        run.data(rows, noun="why_not")
    elif report.cases:
        run.text(plan_tables.render_answers(report, run.output.value, every=every))
    if not report.cases:
        run.say(f"{described['workload']}: nothing is found about it that a policy could act upon")
        for doubt in report.doubts:
            run.say(f"withheld by {doubt}")


def backtest(
    run: CommandRun,
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="its name")],
    policies: Policies = None,
    *,
    since: Annotated[str, typer.Option("--window", "--since", help="30d, or START/END")] = "30d",
    within: Annotated[
        str | None, typer.Option(help="used again so soon counts as a reversal [the policy's]")
    ] = None,
    step: Annotated[
        str | None, typer.Option(help="between evaluations, a multiple of 5m [1h]")
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="rows of a table, 0 = all")] = 40,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="do not write the verdict into the journal")
    ] = False,
) -> int:
    """Replay a policy over the site's own past.

    Exit code 3 where it does not prove the rate of reversals that the policy declares: then the
    policy may only notify. `fallow policy trust` opens it by hand.
    """
    settings, rules = _read_rules(run, policies)
    rule = _find_policy(rules, policy)
    with run.warehouse(settings) as warehouse:
        result = plans.run_backtest(
            warehouse,
            settings,
            rule,
            since=since,
            step=parse_duration(step) if step else None,
            within=parse_duration(within) if within else None,
            now=run.now(),
            cluster=run.options.get("cluster"),
        )
    lax = result.within < rule.reversals.within
    if lax:
        declared = format_duration(rule.reversals.within.total_seconds())
        run.say(f"not for the journal: --within {within} is shorter than the policy's {declared}")
    if not (dry_run or lax):
        plans.record_backtest(settings, result, run.now(), actor=settings.actions.actor)
    if run.output is Output.json:
        run.text(document("backtest", plan_tables.build_backtest_document(result)))
    else:
        every = run.output is Output.csv or not top
        run.data(plan_tables.stop_rows(result, 0 if every else top), noun="backtest")
        if not every and len(result.stops) > top:
            run.say(f"{len(result.stops) - top} more stops: --top 0, or -o csv")
        for line in plan_tables.write_backtest_notes(result, 0 if every else top):
            run.say(line)
    return 0 if result.met else RefusedError.exit_code


def _read_rules(run: CommandRun, files: list[Path] | None) -> "tuple[Settings, tuple[Policy, ...]]":
    settings = run.settings()
    return settings, plans.load_policies(settings, files or ())


def _find_policy(rules: "Sequence[Policy]", name: str) -> "Policy":
    for rule in rules:
        if rule.name == name:
            return rule
    listed = ", ".join(rule.name for rule in rules) or "none"
    raise UsageError(f"no policy called {name!r}", hint=f"there are: {listed}")


def _parse_at(run: CommandRun, at: str | None) -> "datetime":
    now = run.now()
    timestamp = now if at is None else parse_timestamp(at, now=now)
    if timestamp > now:
        raise UsageError(f"--at {at} lies in the future", hint="a plan is of rows that are there")
    return timestamp

"""`fallow plan`, `why-not` and `backtest`: what policies decide now, why not, and what they did."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runtime.cli.frame import Output, Run, command

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from actions.policy.model import Policy
    from fallow.settings import Settings

Policies = Annotated[
    list[Path] | None,
    typer.Option("--policies", metavar="FILE", help="files and folders [actions.policies]"),
]
At = Annotated[
    str | None, typer.Option("--at", help="as of a moment, or so long ago, such as 2h [now]")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "plan")(plan)
    command(app, "why-not")(why_not)
    command(app, "backtest")(backtest)


def plan(
    run: Run,
    policies: Policies = None,
    *,
    at: At = None,
    top: Annotated[int, typer.Option(min=0, help="rows of a table, 0 = all")] = 40,
) -> None:
    """Show what policies decide now: done (+), told (~), held (=), refused (-), and why.

    Reads only. `fallow apply` carries it out.
    """
    from runtime import planned, planning_shown  # noqa: PLC0415

    settings, rules = _rules(run, policies)
    with run.warehouse(settings) as warehouse:
        made = planned.plan(
            warehouse,
            settings,
            rules,
            at=_moment(run, at),
            cluster=run.options.get("cluster"),
        )
    if run.output is Output.json:
        from runtime.output import document  # noqa: PLC0415

        run.text(document("plan", planning_shown.document(made)))
        return
    whole = planning_shown.rows(made)
    shown = whole if run.output is Output.csv or not top else whole[:top]
    run.data(shown, noun="plan")
    if len(shown) < len(whole):
        run.say(f"{len(whole) - len(shown)} more rows: --top 0, or -o csv")
    for line in planning_shown.said(made):
        run.say(line)


def why_not(
    run: Run,
    workload: Annotated[
        str, typer.Argument(metavar="WORKLOAD", help="Kind/namespace/name, or a part of it")
    ],
    policies: Policies = None,
    *,
    policy: Annotated[str | None, typer.Option(help="only under this policy")] = None,
    at: At = None,
    every: Annotated[bool, typer.Option("--all", help="gates that are open, too")] = False,
) -> None:
    """Say why a workload is not acted upon: every gate's answer, and what would have to change."""
    from runtime import planned, planning_shown  # noqa: PLC0415

    settings, rules = _rules(run, policies)
    asked = [_named(rules, policy)] if policy else rules
    with run.warehouse(settings) as warehouse:
        told = planned.why_not(
            warehouse,
            settings,
            asked,
            workload,
            at=_moment(run, at),
            cluster=run.options.get("cluster"),
        )
    rows = planning_shown.answered(told)
    subject = f"{told.subject.workload_kind}/{told.subject.namespace}/{told.subject.workload}"
    if run.output is Output.json:
        run.data(rows, noun="why_not", workload=subject, at=told.at, doubts=list(told.doubts))
        return
    if run.output is Output.csv:
        run.data(rows, noun="why_not")
    elif told.cases:
        run.text(planning_shown.answered_text(told, run.output.value, every=every))
    if not told.cases:
        run.say(f"{subject}: nothing is found about it that a policy could act upon")
        for doubt in told.doubts:
            run.say(f"withheld by {doubt}")


def backtest(
    run: Run,
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="its name")],
    policies: Policies = None,
    *,
    since: Annotated[str, typer.Option(help="30d, or START/END")] = "30d",
    within: Annotated[
        str | None, typer.Option(help="used again so soon is regret [the policy's]")
    ] = None,
    step: Annotated[str | None, typer.Option(help="between moments, a multiple of 5m [1h]")] = None,
    top: Annotated[int, typer.Option(min=0, help="rows of a table, 0 = all")] = 40,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="do not write the verdict into the journal")
    ] = False,
) -> int:
    """Replay a policy over the site's own past, with data only up to each moment.

    Exit code 3 where it does not prove the rate of reversals that the policy declares: then the
    policy may only notify. `fallow policy trust` opens it by hand.
    """
    from fallow.errors import RefusedError  # noqa: PLC0415
    from fallow.window import format_duration, parse_duration  # noqa: PLC0415
    from runtime import planned, planning_shown  # noqa: PLC0415

    settings, rules = _rules(run, policies)
    rule = _named(rules, policy)
    with run.warehouse(settings) as warehouse:
        made = planned.backtest(
            warehouse,
            settings,
            rule,
            since=since,
            step=parse_duration(step) if step else None,
            within=parse_duration(within) if within else None,
            now=run.now(),
            cluster=run.options.get("cluster"),
        )
    lax = made.within < rule.regret.within
    if lax:
        declared = format_duration(rule.regret.within.total_seconds())
        run.say(f"not for the journal: --within {within} is shorter than the policy's {declared}")
    if not (dry_run or lax):
        planned.note(settings, made, run.now(), actor=settings.actions.actor)
    if run.output is Output.json:
        from runtime.output import document  # noqa: PLC0415

        run.text(document("backtest", planning_shown.backtest_document(made)))
    else:
        every = run.output is Output.csv or not top
        run.data(planning_shown.stops(made, 0 if every else top), noun="backtest")
        if not every and len(made.stops) > top:
            run.say(f"{len(made.stops) - top} more stops: --top 0, or -o csv")
        for line in planning_shown.backtest_said(made, 0 if every else top):
            run.say(line)
    return 0 if made.met else RefusedError.exit_code


def _rules(run: Run, files: list[Path] | None) -> "tuple[Settings, tuple[Policy, ...]]":
    from runtime import planned  # noqa: PLC0415

    settings = run.settings()
    return settings, planned.policies(settings, files or ())


def _named(rules: "Sequence[Policy]", name: str) -> "Policy":
    from fallow.errors import UsageError  # noqa: PLC0415

    for rule in rules:
        if rule.name == name:
            return rule
    listed = ", ".join(rule.name for rule in rules) or "none"
    raise UsageError(f"no policy called {name!r}", hint=f"there are: {listed}")


def _moment(run: Run, at: str | None) -> "datetime":
    from fallow.errors import UsageError  # noqa: PLC0415
    from fallow.window import parse_moment  # noqa: PLC0415

    now = run.now()
    moment = now if at is None else parse_moment(at, now=now)
    if moment > now:
        raise UsageError(f"--at {at} lies in the future", hint="a plan is of rows that are there")
    return moment

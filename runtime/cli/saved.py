"""`fallow saved`: what acting saved, predicted and measured, in one kind of dollars each."""

from typing import Annotated

import typer

from dashboards.figures.savings import KINDS
from fallow.errors import UsageError
from fallow.window import parse_timestamp
from runtime.cli.options import CommandRun, Output, command
from runtime.operations.accounting import savings

BY = ("policy", "action", "team", "kind")


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "saved")(saved)


def saved(
    run: CommandRun,
    *,
    since: Annotated[
        str, typer.Option("--window", "--since", help="of what was done since, such as 30d")
    ] = "30d",
    by: Annotated[str, typer.Option(help=" | ".join(BY))] = "policy",
    cases: Annotated[
        bool, typer.Option("--cases", help="each case: identified, approved, acted, verified")
    ] = False,
) -> None:
    """Show what acting saved: predicted and measured.

    Dollars are cash (node gone), served (others ran there), released (nobody took it) or sunk
    (reserved); together never more than the devices cost.
    """
    if by not in BY:
        raise UsageError(f"--by {by!r} is none of: {', '.join(BY)}")
    settings, now = run.settings(), run.now()
    since_at = parse_timestamp(since, now=now)
    with run.warehouse(settings) as warehouse:
        if cases:
            cluster = run.options.get("cluster")
            rows = savings.read_cases(warehouse, since=since_at, cluster=cluster)
            run.data(rows, noun="cases")
            return
        groups, total = savings.sum_savings(warehouse, settings, since=since_at, by=by, now=now)
    if run.output is Output.json:
        run.data(groups, noun="savings", by=by, since=since_at, until=now, total=total)
        return
    run.data(groups, noun="savings")
    if run.output is Output.csv:
        return
    usd = "no price" if total["usd"] is None else f"${total['usd']:,.2f}"
    parts = [f"${total[k]:,.2f} {k}: {words}" for k, words in KINDS.items() if total[k]]
    run.say(
        f"{total['actions']} actions since {since_at:%Y-%m-%d %H:%M} UTC saved "
        f"{total['gpu_hours']:,.1f} GPU-hours, {usd}" + (f" ({'; '.join(parts)})" if parts else "")
    )
    if total["unknown_gpu_hours"]:
        run.say(
            f"{total['unknown_gpu_hours']:,.1f} GPU-hours more are unknown: their telemetry ended "
            "and nothing says that their nodes were deleted, so they are counted neither way"
        )
    if total["actions"]:
        run.say(
            f"reversed by their owners within 24 h: {total['reversed']} of {total['actions']} "
            f"({total['reversal_low']:.1%} to {total['reversal_high']:.1%})"
        )

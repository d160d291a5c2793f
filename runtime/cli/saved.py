"""`fallow saved`: what acting saved, predicted and measured, in one kind of dollars each."""

from typing import Annotated

import typer

from dashboards.figures.savings import KINDS
from fallow.errors import UsageError
from runtime.cli.options import CommandRun, Output
from runtime.operations.accounting import savings, windows
from warehouse.coverage import find_extent, require_data

BY = ("policy", "action", "team", "kind")


def saved(
    run: CommandRun,
    *,
    since: Annotated[
        str, typer.Option("--window", "--since", help="of what was done then: 30d, or START/END")
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
    cluster, window = run.options.get("cluster"), windows.parse_since(since, now)
    with run.warehouse(settings) as warehouse:
        extent = find_extent(warehouse, cluster)
        if extent is not None:
            require_data(window, extent, cluster)
        if cases:
            run.data(savings.read_cases(warehouse, window, cluster), noun="cases")
            return
        groups, total = savings.sum_savings(warehouse, settings, window=window, by=by, now=now)
    if run.output is Output.json:
        run.data(groups, noun="savings", by=by, since=window.start, until=window.end, total=total)
        return
    run.data(groups, noun="savings")
    if run.output is Output.csv:
        return
    usd = "no price" if total["usd"] is None else f"${total['usd']:,.2f}"
    parts = [f"${total[k]:,.2f} {k}: {words}" for k, words in KINDS.items() if total[k]]
    run.say(
        f"{total['actions']} actions since {window.start:%Y-%m-%d %H:%M} UTC saved "
        f"{total['gpu_hours']:,.1f} GPU-hours, {usd}" + (f" ({'; '.join(parts)})" if parts else "")
    )
    if total["predicted_usd"] is not None and total["actions"]:
        run.say(
            f"predicted for the same time: ${total['predicted_usd']:,.2f}; the waste until the act "
            "is in neither"
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

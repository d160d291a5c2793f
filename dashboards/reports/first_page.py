"""Build the first page: figures with their change, a verdict, and the three largest savings."""

from decimal import Decimal
from typing import Any

import msgspec

from dashboards.figures import analysis_runs, inbox, overview, savings, spend
from dashboards.reports import amounts, report_request
from dashboards.reports.amounts import format_hours, format_usd
from dashboards.reports.columns import read_columns
from dashboards.reports.document import HeadlineFigure, ReportTable, Tone
from dashboards.reports.report_request import ReportRequest
from dashboards.text import count, format_share
from fallow.window import Window

ACTIONS = 3
ACTION_COLUMNS = read_columns("actions")


class PeriodBefore(msgspec.Struct, frozen=True):
    """The period before a report's; totals None = it cannot be compared, and `why`."""

    window: Window
    totals: spend.SpendTotals | None = None
    stages: savings.Stages | None = None
    why: str = ""


def list_workloads(request: ReportRequest) -> list[dict[str, Any]]:
    """Return a row per workload that would save something, as the page Findings, snoozed ones too.

    Columns: those of `inbox.list_workloads`; gpu_hours and usd are of all findings of the workload.
    """
    rows = inbox.list_workloads(
        request.views,
        request.window,
        request.filters,
        inbox.FindingChoice(snoozed=True),
        most=None,
    ).to_pylist()
    return [
        {**row, "gpu_hours": row["gpu_hours_all"], "usd": row["usd_all"]}
        for row in rows
        if row["gpu_hours_all"] or row["usd_all"]
    ]


def list_steps(request: ReportRequest) -> list[dict[str, Any]]:
    """Return the steps that save most, as Overview has them: each with its own dollars."""
    rows = inbox.list_inbox(request.views, request.window, request.filters).to_pylist()
    return inbox.choose_steps(rows, ACTIONS)


def list_actions(steps: list[dict[str, Any]], workloads: int, clusters: int) -> ReportTable | None:
    """Return the steps that save most, of so many workloads and clusters; None = there is none."""
    if not steps:
        return None
    columns = report_request.add_cluster(ACTION_COLUMNS, clusters)
    rows = [row | {"team": row["team"] or "several teams"} for row in steps]
    return ReportTable(columns, rows, max(0, workloads - sum(row["workloads"] for row in steps)))


def read_before(request: ReportRequest) -> PeriodBefore:
    """Return the period to compare with; it needs data in every hour of both."""
    views, filters = request.views, request.filters
    window = overview.get_window_before(request.window)
    if why := overview.explain_incomparable(views, request.window, filters.cluster):
        return PeriodBefore(window, why=why)
    totals = spend.read_totals(views, window, filters)
    return PeriodBefore(window, totals, savings.read_stages(views, window, filters))


def build_figures(
    now: spend.SpendTotals, stages: savings.Stages, before: PeriodBefore
) -> tuple[HeadlineFigure, ...]:
    """Return paid, used, wasted, cash, saveable and verified dollars, each with its change."""
    totals = before.totals
    of_bill = "" if now.usd is None else f"{format_share(now.wasted_usd, now.usd)} of the bill; "
    earlier_stages = before.stages
    is_whole = earlier_stages is not None and earlier_stages.is_whole
    judged = earlier_stages if is_whole else None
    saveable = judged.saveable_usd if judged else None
    verified = (earlier_stages.verified_usd or Decimal()) if earlier_stages else None

    def build(
        label: str, value: Decimal | None, earlier: Decimal | None, about: str, tone: Tone
    ) -> HeadlineFigure:
        why = before.why
        if totals and label in ("Cash", "Could be saved") and not is_whole:
            why = "the last analysis did not judge the period before"
        return HeadlineFigure(
            label, format_usd(value), about, tone, describe_change(value, earlier, why)
        )

    return (
        build(
            "Paid", now.usd, totals.usd if totals else None, format_hours(now.gpu_hours), "plain"
        ),
        build(
            "Used",
            now.used_usd,
            totals.used_usd if totals else None,
            f"{format_share(now.used_gpu_hours, now.gpu_hours)} of the hours",
            "good",
        ),
        build(
            "Wasted",
            now.wasted_usd,
            totals.wasted_usd if totals else None,
            f"{of_bill}{format_hours(now.wasted_gpu_hours)}, "
            f"{format_share(now.wasted_gpu_hours, now.gpu_hours)} of the hours",
            "waste",
        ),
        build(
            "Cash",
            stages.cash_usd,
            judged.cash_usd if judged else None,
            "the bill falls by it" + ", at least" * stages.gap.is_material,
            "good",
        ),
        build(
            "Could be saved",
            stages.saveable_usd,
            saveable,
            describe_savings(stages),
            "warn",
        ),
        build(
            "Verified saved",
            stages.verified_usd if stages.verified else Decimal(),
            verified,
            count(stages.verified, "action") if stages.verified else "nothing was measured yet",
            "good",
        ),
    )


def describe_savings(stages: savings.Stages) -> str:
    """Return what stands beside the dollars that could be saved: their kinds, and the findings."""
    kinds = savings.describe_kinds(stages, format_usd)
    return "; ".join(filter(None, (kinds, savings.describe_saveable(stages))))


def describe_change(now: Decimal | None, before: Decimal | None, why: str = "") -> str:
    """Return a change in words; without a value before it is unknown, never 0."""
    if now is None or before is None:
        return f"change unknown: {why or 'no price'}"
    share_changed = overview.change(now, before)
    if share_changed is None:
        return f"{format_usd(before)} before"
    return f"{share_changed:+.1%}, {format_usd(before)} before"


def write_verdict(
    request: ReportRequest,
    now: spend.SpendTotals,
    stages: savings.Stages,
    before: PeriodBefore,
    rows: list[dict[str, Any]],
) -> str:
    """Return one sentence: the share that was wasted, its change, and what could be saved."""
    words = overview.describe_window_before(request.window)
    earlier = before.totals
    if now.usd is None:
        part = format_share(now.wasted_gpu_hours, now.gpu_hours)
        lead = f"{part} of {format_hours(now.gpu_hours)} was wasted (no price)"
        change = overview.change(
            now.wasted_gpu_hours, earlier.wasted_gpu_hours if earlier else None
        )
    else:
        lead = (
            f"{format_share(now.wasted_usd, now.usd)} of the {format_usd(now.usd)} paid was wasted"
        )
        change = overview.change(now.wasted_usd, earlier.wasted_usd if earlier else None)
    if change is None:
        compared = f"the change against {words} is unknown"
        if earlier is not None and before.totals is not None:
            compared = f"nothing was wasted in {words}, or it has no price"
    else:
        more = "more" if change >= 0 else "less"
        compared = f"{abs(change):.1%} {more} than in {words}"
    if not rows:
        absence = analysis_runs.explain_absence(request.views, request.window)
        advice = "what could be saved is unknown" if absence.summary else "nothing is advised"
        return f"{lead}, {compared}; {advice}."
    saves = format_usd(stages.saveable_usd) if stages.saveable_usd is not None else "hours"
    saves = "at least " * stages.gap.is_material + saves
    advised = f"{count(len(rows), 'workload')} could save {saves}"
    team = inbox.order_by_dollars(rows)[0]["team"]
    most = f", most of all in team {amounts.name(team, 40)}" if team else ""
    return f"{lead}, {compared}; {advised}{most}."

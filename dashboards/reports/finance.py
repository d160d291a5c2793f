"""Build Finance's report: what was paid, wasted, by which owner, done, to do and saved."""

from dashboards import chart_data, charts
from dashboards.figures import (
    anomalies,
    bridge,
    chargeback,
    commitments,
    extent,
    inbox,
    overview,
    spend,
    units,
    waste,
)
from dashboards.figures.query import Filters
from dashboards.reports import (
    common_sections,
    first_page,
    report_figures,
    report_request,
    summary,
)
from dashboards.reports.amounts import format_hours, format_usd
from dashboards.reports.columns import read_columns
from dashboards.reports.document import (
    Block,
    HeadlineFigure,
    ReportChart,
    ReportDocument,
    ReportSection,
    Statement,
    TextBlock,
)
from dashboards.reports.report_request import ReportRequest, build_table
from dashboards.text import format_share

WASTE = read_columns("waste")
TEAMS = read_columns("teams")
BRIDGE = read_columns("bridge")
COMMITTED = read_columns("committed")
BUDGETS = read_columns("budgets")
UNITS = read_columns("units")


def document(request: ReportRequest) -> ReportDocument:
    """Return the report; its numbers are those of Finance's pages."""
    views, window, filters = request.views, request.window, request.filters
    figures = report_figures.read_report_figures(request)
    waterfall_total, stages = figures.waterfall_total, figures.stages
    owners = waste.read_statement(views, window, filters, "team").to_pylist()
    advice = inbox.order_by_dollars(figures.advice)
    budget = anomalies.find_budget(request.settings.finance, filters)
    month = spend.read_month(views, window.end, filters, budget)
    worked = figures.paid.productive_gpu_hours
    headline = (
        *first_page.build_figures(figures.paid, stages, figures.before),
        HeadlineFigure(
            "Worked",
            format_share(worked, waterfall_total.gpu_hours),
            f"{format_hours(worked)}; {summary.format_effective(figures.paid)}",
            "good",
        ),
    )
    story = (
        Statement("Paid", summary.write_paid_sentence(request, waterfall_total, worked)),
        Statement("Wasted", summary.write_waste_sentence(figures.paid, waterfall_total)),
        Statement("By owner", summary.write_owner_sentence(owners, figures.paid.wasted_usd)),
        Statement("Done", summary.write_done_sentence(stages)),
        Statement("To do", summary.write_advice_sentence(request, figures.steps, len(advice))),
        Statement("Saved", summary.write_savings_sentence(figures.verified)),
        Statement(f"{month.start:%B}", _write_month_sentence(month)),
    )
    return report_figures.build_report(
        request,
        figures,
        title="GPU spend and waste",
        audience="finance",
        subject=report_figures.name_subject(request),
        headline=headline,
        story=story,
        daily_text="Per day, by what the GPUs did",
        daily_px=190,
        sections=(
            common_sections.build_waterfall_section(request, waterfall_total, stages, figures.paid),
            *_change_section(request),
            _build_owner_section(request, owners),
            _build_chargeback_section(request),
            ReportSection(
                "What to do",
                common_sections.build_advice(
                    request, advice, figures.paid.clusters, figures.stages.saveable_usd
                ),
            ),
            common_sections.build_saving(request, stages, figures.verified),
            *_build_budget_section(request, month),
            *_build_commitment_section(request),
            _build_units(request),
        ),
    )


def _change_section(request: ReportRequest) -> tuple[ReportSection, ...]:
    bill_bridge = bridge.bridge(request.views, request.window, request.filters)
    if bill_bridge is None:
        return ()
    rows = [
        {
            "step": "before",
            "meaning": report_request.format_window(bill_bridge.before),
            "usd": bill_bridge.usd_before,
        },
        *(
            {"step": s, "meaning": meaning, "usd": getattr(bill_bridge, s)}
            for s, meaning in chart_data.BRIDGE.items()
        ),
        {
            "step": "after",
            "meaning": report_request.format_window(bill_bridge.after),
            "usd": bill_bridge.usd_after,
        },
    ]
    return (
        ReportSection(
            f"Why it cost more or less than {overview.describe_window_before(request.window)}",
            (
                ReportChart(
                    charts.draw_waterfall(chart_data.bridge_bars(bill_bridge), "USD", height=200),
                    "From the bill before to this one",
                ),
                build_table(request, rows, BRIDGE),
            ),
        ),
    )


def _build_owner_section(request: ReportRequest, owners: list[dict[str, object]]) -> ReportSection:
    owners_with_waste = [row for row in owners if row["waste_usd"]][:10]
    owner_bars = [
        {"name": row["name"], "state": state, "usd": row[f"{state}_usd"]}
        for row in owners_with_waste
        for state in waste.STATES
        if row[f"{state}_usd"]
    ]
    blocks: list[Block] = []
    if owner_bars:
        chart = charts.draw_stacked_bars(
            owner_bars,
            names=[str(r["name"]) for r in owners_with_waste],
            title="USD wasted",
        )
        blocks.append(ReportChart(chart, "Dollars wasted, by team and state"))
    sums = [c.name for c in WASTE if c.kind == "usd"]
    bill = {"usd": spend.read_totals(request.views, request.window, request.filters).usd}
    return ReportSection(
        "Waste by owner", (*blocks, build_table(request, owners, WASTE, total=sums, bills=bill))
    )


def _build_chargeback_section(request: ReportRequest) -> ReportSection:
    rows = chargeback.read_statement(request.views, request.window, request.filters)
    of_cluster = Filters(cluster=request.filters.cluster)
    bill = spend.read_totals(request.views, request.window, of_cluster).usd
    sums = [c.name for c in TEAMS if c.kind in ("usd", "number")]
    explanation = TextBlock(
        (
            (
                "Fully loaded: own GPUs, their part of the node, and a share of what was "
                "not allocated in proportion to the team's dollars; the platform's line is that "
                "share with its sign turned, so that all lines sum to the bill."
            ),
        ),
        small=True,
    )
    table = build_table(request, rows, TEAMS, total=sums, bills={"total_usd": bill}, most=60)
    return ReportSection("Chargeback by team", (table, explanation))


def _build_budget_section(request: ReportRequest, month: spend.Month) -> tuple[ReportSection, ...]:
    blocks: list[Block] = []
    if month.path and month.forecast is not None:
        chart = charts.draw_month_end(chart_data.build_month_days(month), height=180)
        blocks.append(ReportChart(chart, f"{month.start:%B}: paid so far, then expected"))
        blocks.append(TextBlock((f"Line: {month.method}.",), small=True))
    planned = request.settings.finance.teams_usd_per_month
    if planned:
        data_extent = extent.read_extent(request.views)
        at = anomalies.read_budget_time(
            request.window, data_extent.accounted if data_extent else None, request.now
        )
        team_budgets = anomalies.read_budgets(request.views, at, planned)
        rows = [team_budget.describe() for team_budget in team_budgets]
        blocks.append(build_table(request, rows, BUDGETS))
    return (ReportSection("The month and its budgets", tuple(blocks)),) if blocks else ()


def _build_commitment_section(request: ReportRequest) -> tuple[ReportSection, ...]:
    promised = tuple(request.settings.prices.commitments)
    commitment_uses = commitments.read_commitments(request.views, request.window, promised)
    if not commitment_uses:
        return ()
    rows = [
        {
            **{n: getattr(commitment, n) for n in commitment.__struct_fields__},
            **{
                n: None if getattr(commitment, n) is None else 100 * getattr(commitment, n)
                for n in ("utilisation", "coverage", "break_even")
            },
        }
        for commitment in commitment_uses
    ]
    return (ReportSection("Commitments", (build_table(request, rows, COMMITTED),)),)


def _build_units(request: ReportRequest) -> ReportSection:
    rows = units.read_by_owner(request.views, request.window, request.filters, "team")
    return ReportSection("What an hour that worked cost", (build_table(request, rows, UNITS),))


def _write_month_sentence(month: spend.Month) -> str:
    about = _write_budget_sentence(month)
    if month.forecast is None:
        return f"The end of the month is unknown: {month.doubt or 'nothing of it has a price'}."
    ends = "ended" if month.until >= month.end else "will end"
    if month.is_partial:
        lacks = f"{month.missing_hours:,} h of it lack data of a cluster"
        return f"The month {ends} at {format_usd(month.forecast)} at least, {lacks}; {about}."
    return f"The month {ends} at {format_usd(month.forecast)}; {about}."


def _write_budget_sentence(month: spend.Month) -> str:
    if month.budget is not None and month.forecast is not None:
        return (
            f"budget {format_usd(month.budget)}, {'at least ' if month.is_partial else ''}"
            f"{format_share(month.forecast, month.budget)} of it"
        )
    if month.low is not None and month.low != month.high:
        return f"8 in 10: {format_usd(month.low)} to {format_usd(month.high)}"
    return "it has no budget of its own"

"""Month to date, run rate and forecast beside the budget of the month."""

from decimal import Decimal

import streamlit as st

from dashboards import active_settings, chart_data, charts, data, links, page
from dashboards.figures import anomalies, spend
from dashboards.page import PageRequest, format_hours, format_money, format_share
from warehouse.spend import write_estimate_notes

BUDGETS = page.read_columns("spend_forecast/budgets")


def show(request: PageRequest) -> None:
    """Draw the tab."""
    page.show_card(show_month, request)
    page.show_card(show_budgets, request)


def show_figures(request: PageRequest) -> None:
    """Show what the window and the month cost, and the forecast."""
    month_spend = _read_month(request)
    paid = data.query(spend.read_totals, request.window, request.filters)
    has_band = month_spend.low != month_spend.high and not month_spend.is_partial
    band = f"{format_money(month_spend.low)} to {format_money(month_spend.high)}" * has_band
    page.show_metrics(
        ("Paid", format_money(paid.usd), format_hours(paid.gpu_hours)),
        (
            f"{month_spend.start:%B} so far",
            _format_month(month_spend, month_spend.usd),
            _describe_missing(month_spend),
        ),
        ("A month at this rate", format_money(month_spend.run_rate), "the last 24 hours"),
        (
            f"Forecast of {month_spend.start:%B}",
            _format_month(month_spend, month_spend.forecast),
            month_spend.doubt or band or _describe_plan(month_spend),
        ),
    )
    if paid.unpriced_gpu_hours:
        page.note(
            f"{format_hours(paid.unpriced_gpu_hours)} "
            f"({format_share(paid.unpriced_gpu_hours, paid.gpu_hours)}) "
            "have no price and are in no figure of dollars: `fallow doctor` names their nodes."
        )
    for line in write_estimate_notes(paid.estimated_gpu_hours, paid.estimated_usd):
        page.note(line)


def show_month(request: PageRequest) -> None:
    """Show the month in figures and draw it with its forecast and budget."""
    show_figures(request)
    month_spend = _read_month(request)
    if month_spend.path:
        page.chart(
            charts.draw_month_end(chart_data.build_month_days(month_spend)),
            f"Dollars since the month began: {month_spend.usd or 0:,.0f} so far, "
            + (
                month_spend.doubt
                or f"{'at least ' if month_spend.is_partial else ''}"
                f"{month_spend.forecast or 0:,.0f} expected at its end"
            ),
        )
        page.note(
            f"Line: paid, then expected; band: {month_spend.method}. "
            f"{_describe_plan(month_spend).capitalize()}."
        )


def show_budgets(request: PageRequest) -> None:
    """List the state of this month's budgets."""
    page.show_heading("Budgets of teams")
    planned = request.settings.finance.teams_usd_per_month
    if not planned:
        page.show_nothing(
            "No team has a budget.", "Set `finance.teams_usd_per_month` to have it watched."
        )
        return
    at = anomalies.read_budget_time(
        request.window, request.extent.accounted, active_settings.get_now()
    )
    team_budgets = data.query(anomalies.read_budgets, at, planned)
    rows = [team_budget.describe() for team_budget in team_budgets]
    page.show_table(
        rows,
        BUDGETS,
        table_name="Budgets of teams",
        open_row=lambda row: links.open_owner("team", str(rows[row]["team"])),
    )
    over = [b for b in team_budgets if b.stands in ("over", "will be over")]
    if over:
        st.warning(f"{len(over)} of {len(team_budgets)} budgets are over or will be.")


def _read_month(request: PageRequest) -> spend.Month:
    budget = anomalies.find_budget(request.settings.finance, request.filters)
    return data.query(spend.read_month, request.window.end, request.filters, budget)


def _format_month(month_spend: spend.Month, usd: Decimal | None) -> str:
    """Write dollars of the month: at least so many where hours are missing."""
    is_least = month_spend.is_partial and usd is not None
    return f"at least {format_money(usd)}" if is_least else format_money(usd)


def _describe_plan(month_spend: spend.Month) -> str:
    return (
        f"budget {format_money(month_spend.budget)}"
        if month_spend.budget
        else "no budget of its own"
    )


def _describe_missing(month_spend: spend.Month) -> str:
    if month_spend.missing_hours:
        return f"{month_spend.missing_hours:,} h lack data of a cluster"
    return f"until {month_spend.until:%d %b %H:%M} UTC"

"""Month to date, run rate and forecast against the budget; by whom and by what."""

from decimal import Decimal

from dashboards import chart_data, charts, data, page
from dashboards.figures import spend
from dashboards.page import PageRequest, hours, money, share

TITLE, ICON, ORDER = "Spend", ":material/payments:", 10

COLUMNS = {
    "name": page.name("name"),
    "usd": page.usd("USD"),
    "gpu_hours": page.number("GPU-hours"),
    "share_pct": page.percent("of all GPU-hours"),
    "busy_pct": page.BUSY,
    "effective_pct": page.EFFECTIVE,
    "idle_usd": page.usd("of it idle", "held, and not used"),
    "unknown_gpu_hours": page.number("unknown hours", "no telemetry, or it contradicts itself"),
    "unpriced_gpu_hours": page.number("hours without a price"),
}


def show(request: PageRequest) -> None:
    """Draw the page."""
    page.card(month, request)
    page.card(over_time, request)
    page.card(by_name, request)


def month(request: PageRequest) -> None:
    """Show what the month cost so far, and its forecast."""
    month_spend = data.query(spend.month, request.window.end, request.filters, budget(request))
    paid = data.query(spend.totals, request.window, request.filters)
    band = (
        f"{money(month_spend.low)} to {money(month_spend.high)}"
        if month_spend.low != month_spend.high
        else ""
    )
    planned = f"budget {money(month_spend.budget)}" if month_spend.budget else "no budget is set"
    page.metrics(
        ("Paid in this window", money(paid.usd), hours(paid.gpu_hours)),
        (f"{month_spend.start:%B} so far", money(month_spend.usd), _missing(month_spend)),
        ("A month at this rate", money(month_spend.run_rate), "the last 24 hours"),
        (
            f"Forecast of {month_spend.start:%B}",
            money(month_spend.forecast),
            month_spend.doubt or band or planned,
        ),
    )
    if month_spend.path:
        page.chart(
            charts.month_end(chart_data.month_days(month_spend)),
            f"Dollars since the month began: {month_spend.usd or 0:,.0f} so far, "
            + (month_spend.doubt or f"{month_spend.forecast or 0:,.0f} expected at its end"),
        )
        page.note(f"Line: paid, then expected; band: {month_spend.method}. {planned.capitalize()}.")
    if paid.unpriced_gpu_hours:
        page.note(
            f"{hours(paid.unpriced_gpu_hours)} ({share(paid.unpriced_gpu_hours, paid.gpu_hours)}) "
            "have no price and are in no figure of dollars: `fallow doctor` names their nodes."
        )


def over_time(request: PageRequest) -> None:
    """Draw dollars per day and state."""
    rows = data.query(spend.daily, request.window, request.filters)
    if not rows.num_rows:
        page.show_no_data(request)
        return
    priced = any(usd is not None for usd in rows["usd"].to_pylist())
    page.heading("What was paid, by what the GPUs did")
    unit = "usd" if priced else "gpu_hours"
    page.chart(charts.states_over_time(rows, unit), "Per day, stacked by state of the GPUs")


def by_name(request: PageRequest) -> None:
    """List the spend by name."""
    page.heading("Who spent it")
    key = page.by(spend.KEYS)
    rows = data.query(spend.by, request.window, request.filters, key)
    if rows.num_rows:
        page.table(rows, COLUMNS, table_name=f"Spend by {key}")
    else:
        page.show_no_data(request)


def budget(request: PageRequest) -> Decimal | None:
    """Return the month's budget for the filters: a team's, or all teams'."""
    planned, filter_names = request.settings.finance, request.filters.named
    if set(filter_names) == {"team"}:
        return planned.teams_usd_per_month.get(filter_names["team"])
    return None if filter_names else planned.usd_per_month


def _missing(month_spend: spend.Month) -> str:
    return f"{month_spend.missing_hours:,} h unknown" if month_spend.missing_hours else "UTC"

"""Month to date, run rate and forecast against the budget; by whom and by what."""

from decimal import Decimal

from dashboards import charts, data, drawn, page
from dashboards.figures import spend
from dashboards.page import Asked, hours, money, share

TITLE, ICON, ORDER = "Spend", ":material/payments:", 10

COLUMNS = {
    "name": page.name("name"),
    "usd": page.usd("USD"),
    "gpu_hours": page.number("GPU-hours"),
    "share_pct": page.percent("of all GPU-hours"),
    "idle_usd": page.usd("of it idle", "held, and not used"),
    "unknown_gpu_hours": page.number("unknown hours", "no telemetry, or it contradicts itself"),
    "unpriced_gpu_hours": page.number("hours without a price"),
}


def show(asked: Asked) -> None:
    """Draw the page."""
    page.card(month, asked)
    page.card(over_time, asked)
    page.card(by_name, asked)


def month(asked: Asked) -> None:
    """Say what the month cost so far, and where it will end."""
    made = data.ask(spend.month, asked.window.end, asked.filters, budget(asked))
    paid = data.ask(spend.totals, asked.window, asked.filters)
    band = f"{money(made.low)} to {money(made.high)}" if made.low != made.high else ""
    planned = f"budget {money(made.budget)}" if made.budget else "no budget is set"
    page.metrics(
        ("Paid in this window", money(paid.usd), hours(paid.gpu_hours)),
        (f"{made.start:%B} so far", money(made.usd), _missing(made)),
        ("A month at this rate", money(made.run_rate), "the last 24 hours"),
        (f"Forecast of {made.start:%B}", money(made.forecast), band or planned),
    )
    if made.path:
        page.chart(
            charts.month_end(drawn.month(made)),
            f"Dollars since the month began: {made.usd or 0:,.0f} so far, "
            f"{made.forecast or 0:,.0f} expected at its end",
        )
        page.note(f"Line: paid, then expected; band: {made.method}. {planned.capitalize()}.")
    if paid.unpriced_gpu_hours:
        page.note(
            f"{hours(paid.unpriced_gpu_hours)} ({share(paid.unpriced_gpu_hours, paid.gpu_hours)}) "
            "have no price and are in no figure of dollars: `fallow doctor` names their nodes."
        )


def over_time(asked: Asked) -> None:
    """Draw dollars per day and state."""
    rows = data.ask(spend.daily, asked.window, asked.filters)
    if not rows.num_rows:
        page.nobody(asked)
        return
    priced = any(usd is not None for usd in rows["usd"].to_pylist())
    page.heading("What was paid, by what the GPUs did")
    unit = "usd" if priced else "gpu_hours"
    page.chart(charts.states_over_time(rows, unit), "Per day, stacked by state of the GPUs")


def by_name(asked: Asked) -> None:
    """List who spent it."""
    page.heading("Who spent it")
    key = page.by(spend.KEYS)
    rows = data.ask(spend.by, asked.window, asked.filters, key)
    if rows.num_rows:
        page.table(rows, COLUMNS, called=f"Spend by {key}")
    else:
        page.nobody(asked)


def budget(asked: Asked) -> Decimal | None:
    """Return the month's budget of whom the filters name: a team's, or everybody's."""
    planned, chosen = asked.settings.finance, asked.filters.named
    if set(chosen) == {"team"}:
        return planned.teams_usd_per_month.get(chosen["team"])
    return None if chosen else planned.usd_per_month


def _missing(made: spend.Month) -> str:
    return f"{made.missing_hours:,} h unknown" if made.missing_hours else "UTC"

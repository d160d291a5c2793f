"""What was paid, by any dimension; forecast and budget, the change, commitments, waste."""

from dashboards import charts, data, links, page, tabs
from dashboards.figures import spend
from dashboards.page import PageRequest
from dashboards.views import spend_bridge, spend_commitments, spend_forecast, spend_waste

TITLE, ICON = "Spend", ":material/payments:"

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
    tabs.show_tabs(TABS, request)


def show_dimensions(request: PageRequest) -> None:
    """Draw the tab of spend by any dimension of the ledger."""
    page.card(spend_forecast.figures, request)
    page.card(over_time, request)
    page.card(by_name, request)


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
        names = rows["name"].to_pylist()
        page.table(
            rows,
            COLUMNS,
            table_name=f"Spend by {key}",
            open_row=lambda row: links.open_owner(key, names[row]),
        )
        page.note(links.OPENS)
    else:
        page.show_no_data(request)


TABS: tabs.Tabs = {
    "By dimension": show_dimensions,
    "Forecast and budget": spend_forecast.show,
    "Bridge": spend_bridge.show,
    "Commitments": spend_commitments.show,
    "Waste by owner": spend_waste.show,
}

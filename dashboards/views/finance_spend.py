"""Spend: month to date, run rate and forecast against the budget; by whom and by what."""

import streamlit as st

from dashboards import charts, data, page
from dashboards.figures import spend
from dashboards.page import Asked, money

TITLE, ICON, ORDER = "Spend", ":material/payments:", 10

COLUMNS = {
    "name": st.column_config.TextColumn("name", width="large"),
    "usd": st.column_config.NumberColumn("USD", format="dollar"),
    "gpu_hours": st.column_config.NumberColumn("GPU-hours", format="localized"),
    "share_pct": st.column_config.ProgressColumn(
        "of all GPU-hours", format="%.1f%%", min_value=0, max_value=100
    ),
    "idle_usd": st.column_config.NumberColumn("of it idle, USD", format="dollar"),
    "unpriced_gpu_hours": st.column_config.NumberColumn("without a price", format="localized"),
}


def show(asked: Asked) -> None:
    """Draw the page."""
    page.card(month, asked)
    page.card(over_time, asked)
    page.card(by_name, asked)


def month(asked: Asked) -> None:
    """Say what the month cost so far, and where it will end."""
    made = data.ask(spend.month, asked.window.end, asked.filters)
    paid = data.ask(spend.totals, asked.window, asked.filters)
    cells = st.columns(4)
    cells[0].metric(
        "In this window",
        money(paid.usd),
        page.hours(paid.gpu_hours),
        delta_arrow="off",
        delta_color="off",
        border=True,
    )
    cells[1].metric(f"Month to date ({made.start:%B})", money(made.usd), border=True)
    cells[2].metric("Run rate of a month", money(made.run_rate), border=True)
    cells[3].metric("Forecast of the month", money(made.forecast), border=True)


def over_time(asked: Asked) -> None:
    """Draw dollars per day and state."""
    rows = data.ask(spend.daily, asked.window, asked.filters)
    if not rows.num_rows:
        page.nothing("No hour of this is accounted.", "Choose another window or other filters.")
        return
    page.chart(charts.states_over_time(rows), "US dollars per day, stacked by state")


def by_name(asked: Asked) -> None:
    """Draw and list who spent it."""
    key = st.segmented_control(
        "By", spend.KEYS, default="team", required=True, key="by", bind="query-params"
    )
    rows = data.ask(spend.by, asked.window, asked.filters, key)
    page.table(rows, COLUMNS, name=f"Spend by {key}")

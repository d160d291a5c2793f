"""What is out of the usual, and of what was planned."""

import json
from datetime import UTC, datetime

import streamlit as st

from dashboards import charts, data, page
from dashboards.figures import anomalies
from dashboards.page import PageRequest

TITLE, ICON, ORDER = "Anomalies", ":material/notification_important:", 90

RISE_COLUMNS = {
    "name": page.name("whose"),
    "kind": page.name("what", "small"),
    "usd": page.usd("more than usual, USD"),
    "gpu_hours": page.number("GPU-hours more"),
    "why": page.name("why", "large"),
    "reasons": page.name("because"),
    "start": page.time_column("since"),
    "end": page.time_column("until"),
    "weeks_compared": page.number("weeks compared"),
    "id": page.name("finding", "small"),
}
BUDGETS = {
    "team": page.name("team"),
    "stands": page.name("stands", "small"),
    "budget": page.usd("budget of the month"),
    "usd": page.usd("paid so far"),
    "used_pct": page.percent("used"),
    "forecast": page.usd("forecast"),
    "high": page.usd("at most, 9 in 10"),
}


def show(request: PageRequest) -> None:
    """Draw the page."""
    page.card(usual, request)
    page.card(rises, request)
    page.card(budgets, request)


def usual(request: PageRequest) -> None:
    """Draw each hour beside the same hour of the weeks before."""
    rows = data.query(anomalies.usual, request.window, request.filters)
    if not rows.num_rows:
        page.show_no_data(request)
        return
    recent = rows.slice(max(0, rows.num_rows - charts.MOST_POINTS // 3))
    page.chart(charts.usual_lines(recent), "Dollars per hour beside what is usual in that hour")
    weeks = max(rows["weeks"].to_pylist())
    if not weeks:
        page.note("There is no week before this window yet, so nothing is called usual.")


def rises(request: PageRequest) -> None:
    """List the rises of the last analysis."""
    page.heading("Rises of spend and waste")
    rows = data.query(anomalies.list_rises, request.window, request.filters).to_pylist()
    if not rows:
        page.show_no_findings(
            request,
            ("anomalies",),
            "No rise was found in this window.",
            "The analyzer needs three weeks before an hour to call it unusual; planned changes "
            "belong into `anomalies.known_changes`.",
        )
        return
    page.table(
        [{**r, "reasons": _reason_text(r["reasons"])} for r in rows],
        RISE_COLUMNS,
        table_name="Rises",
    )


def budgets(request: PageRequest) -> None:
    """List the state of this month's budgets."""
    page.heading("Budgets of teams")
    planned = request.settings.finance.teams_usd_per_month
    if not planned:
        page.show_nothing(
            "No team has a budget.", "Set `finance.teams_usd_per_month` to have it watched."
        )
        return
    at = anomalies.budget_time(request.window, request.extent.accounted, datetime.now(UTC))
    team_budgets = data.query(anomalies.budgets, at, request.filters, planned)
    rows = [
        {
            **{name: getattr(b, name) for name in b.__struct_fields__},
            "stands": b.stands,
            "used_pct": None if b.usd is None else float(100 * b.usd / b.budget),
        }
        for b in team_budgets
    ]
    page.table(rows, BUDGETS, table_name="Budgets of teams")
    over = [b for b in team_budgets if b.stands in ("over", "will be over")]
    if over:
        st.warning(f"{len(over)} of {len(team_budgets)} budgets are over or will be.")


def _reason_text(text: str | None) -> str:
    parts = json.loads(text) if text else {}
    return ", ".join(f"{name} {value:+,.2f}" for name, value in parts.items())

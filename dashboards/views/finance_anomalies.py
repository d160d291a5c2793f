"""What is out of the usual, and of what was planned."""

import json

import streamlit as st

from dashboards import charts, data, page
from dashboards.figures import anomalies
from dashboards.page import Asked

TITLE, ICON, ORDER = "Anomalies", ":material/notification_important:", 90

FOUND = {
    "name": page.name("whose"),
    "kind": page.name("what", "small"),
    "usd": page.usd("more than usual, USD"),
    "gpu_hours": page.number("GPU-hours more"),
    "why": page.name("why", "large"),
    "because": page.name("because"),
    "start": page.moment("since"),
    "end": page.moment("until"),
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


def show(asked: Asked) -> None:
    """Draw the page."""
    page.card(usual, asked)
    page.card(found, asked)
    page.card(budgets, asked)


def usual(asked: Asked) -> None:
    """Draw each hour beside the same hour of the weeks before."""
    rows = data.ask(anomalies.usual, asked.window, asked.filters)
    if not rows.num_rows:
        page.nobody(asked)
        return
    drawn = rows.slice(max(0, rows.num_rows - charts.MOST_POINTS // 3))
    page.chart(charts.usual_lines(drawn), "Dollars per hour beside what is usual in that hour")
    weeks = max(rows["weeks"].to_pylist())
    if not weeks:
        page.note("There is no week before this window yet, so nothing is called usual.")


def found(asked: Asked) -> None:
    """List the rises that the last analysis saw."""
    page.heading("Rises of spend and waste")
    rows = data.ask(anomalies.found, asked.window, asked.filters).to_pylist()
    if not rows:
        page.none(
            asked,
            ("anomalies",),
            "No rise was found in this window.",
            "The analyzer needs three weeks before an hour to call it unusual; planned changes "
            "belong into `anomalies.known`.",
        )
        return
    page.table([{**r, "because": _because(r["because"])} for r in rows], FOUND, called="Rises")


def budgets(asked: Asked) -> None:
    """List where budgets stand this month."""
    page.heading("Budgets of teams")
    planned = asked.settings.finance.teams_usd_per_month
    if not planned:
        page.nothing(
            "No team has a budget.", "Set `finance.teams_usd_per_month` to have it watched."
        )
        return
    made = data.ask(anomalies.budgets, asked.window.end, asked.filters, planned)
    rows = [
        {
            **{name: getattr(b, name) for name in b.__struct_fields__},
            "stands": b.stands,
            "used_pct": None if b.usd is None else float(100 * b.usd / b.budget),
        }
        for b in made
    ]
    page.table(rows, BUDGETS, called="Budgets of teams")
    over = [b for b in made if b.stands in ("over", "will be over")]
    if over:
        st.warning(f"{len(over)} of {len(made)} budgets are over or will be.")


def _because(text: str | None) -> str:
    parts = json.loads(text) if text else {}
    return ", ".join(f"{name} {value:+,.2f}" for name, value in parts.items())

"""What each team pays: its own GPUs, their part of the node, and its share of what nobody held."""

from decimal import Decimal

import streamlit as st

from dashboards import data, page
from dashboards.figures import chargeback
from dashboards.figures.asking import PLATFORM
from dashboards.page import Asked, hours, money, share

TITLE, ICON, ORDER = "Chargeback", ":material/receipt_long:", 50

TEAMS = {
    "team": page.name("team"),
    "total_usd": page.usd("fully loaded", "with its share of what nobody held"),
    "total_usd_gpu": page.usd("GPU only", "GPU part, with its share of the GPU part nobody held"),
    "usd_gpu": page.usd("own GPUs"),
    "usd_node": page.usd("their part of the node", "CPU, memory and disk beside the GPUs"),
    "shared_usd": page.usd("shared", "of what nobody held, in proportion to its dollars"),
    "gpu_hours": page.number("GPU-hours"),
    "used_gpu_hours": page.number("used"),
    "idle_gpu_hours": page.number("idle"),
    "idle_usd": page.usd("of own, idle"),
    "unpriced_gpu_hours": page.number("without a price"),
}
LINES = {
    "workload": page.name("workload", "large"),
    "pool": page.name("pool", "small"),
    "model": page.name("model", "small"),
    "gpu_hours": page.number("GPU-hours"),
    "usd_per_gpu_hour": page.usd("rate"),
    "usd_gpu": page.usd("GPU part"),
    "usd_node": page.usd("node part"),
    "usd_loaded": page.usd("USD"),
    "used_gpu_hours": page.number("used"),
    "idle_gpu_hours": page.number("idle"),
}


def show(asked: Asked) -> None:
    """Draw the page."""
    page.card(summary, asked)
    page.card(statement, asked)


def summary(asked: Asked) -> None:
    """List every team's line; they sum to the bill."""
    rows = data.ask(chargeback.teams, asked.window, asked.filters)
    if not rows.num_rows:
        page.nobody(asked)
        return
    page.heading("All teams")
    page.table(rows, TEAMS, called="Chargeback by team")
    total = [usd for usd in rows["total_usd"].to_pylist() if usd is not None]
    page.note(
        f"Rows sum to the bill, {money(sum(total, Decimal()) if total else None, cents=True)}. "
        "What nobody held goes to the teams of its cluster in proportion to their dollars; it is "
        "the platform's line with the sign turned. Of the filters only the cluster counts here."
    )


def statement(asked: Asked) -> None:
    """Show one team's statement and its lines."""
    rows = data.ask(chargeback.teams, asked.window, asked.filters)
    listed = {row["team"]: row for row in rows.to_pylist()}
    if not listed:
        return
    page.heading("Statement of one team")
    team = asked.filters.team or next(iter(listed))
    st.text(page.visible(team))
    line = listed.get(team)
    if line is None:
        page.nothing(
            "This team held no GPU in this window.", "Choose another team or a longer window."
        )
        return
    page.metrics(
        ("Fully loaded", money(line["total_usd"], cents=True), "own + node + shared"),
        ("GPU only", money(line["total_usd_gpu"], cents=True), "own + shared GPU part"),
        ("Shared", money(line["shared_usd"], cents=True), "of what nobody held"),
        (
            "Idle",
            money(line["idle_usd"], cents=True),
            f"{hours(line['idle_gpu_hours'])}, {share(line['idle_usd'], line['usd_loaded'])}",
        ),
    )
    if team == PLATFORM:
        page.note("What nobody held: free, stranded and broken GPUs, shared out above.")
    detail = data.ask(chargeback.lines, asked.window, asked.filters, team)
    page.table(detail, LINES, called="Lines of the statement")
    page.note("Choose the team in the filters; the table's menu exports it as CSV.")

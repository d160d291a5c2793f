"""What each team pays: its GPUs, their part of the node, its share of what was not allocated."""

from typing import Any

import msgspec
import streamlit as st

from dashboards import data, links, page
from dashboards.figures import chargeback, spend
from dashboards.figures.query import Filters
from dashboards.page import PageRequest, format_hours, format_money, format_share
from fallow.models import PLATFORM

TITLE, ICON = "Chargeback", ":material/receipt_long:"

TEAMS = page.read_columns("chargeback/teams")
TEAMS_IN_CSV = ("used_gpu_hours",)
"""Columns that only the download has: the busy share says the same."""
LINES = page.read_columns("chargeback/lines")
LINES_IN_CSV = ("used_gpu_hours", "model")
TEAM_SUMS = tuple(name for name in TEAMS if name.endswith(("usd", "usd_gpu", "node", "hours")))
LINE_SUMS = ("usd_loaded", "gpu_hours", "usd_gpu", "usd_node", "used_gpu_hours", "idle_gpu_hours")


def show(request: PageRequest) -> None:
    """Draw the page."""
    page.show_card(show_summary, request)
    page.show_card(show_statement, request)


def show_summary(request: PageRequest) -> None:
    """List every team's line; they sum to the bill."""
    rows = data.query(chargeback.read_statement, request.window, request.filters)
    if not rows.num_rows:
        page.show_no_data(request)
        return
    page.show_heading("All teams")
    of_cluster = Filters(cluster=request.filters.cluster)
    now = data.query(spend.read_totals, request.window, of_cluster)
    names, unpriced = (rows[name].to_pylist() for name in ("team", "unpriced_gpu_hours"))
    page.show_table(
        rows,
        TEAMS,
        table_name="Chargeback by team",
        in_csv=TEAMS_IN_CSV if any(unpriced) else (*TEAMS_IN_CSV, "unpriced_gpu_hours"),
        open_row=lambda row: links.set_values(team=names[row]),
        total=page.sum_rows(
            rows,
            TEAM_SUMS,
            team="total, the bill",
            busy_pct=page.compute_percent(now.busy, 1),
            effective_pct=page.compute_percent(now.effective, 1),
        ),
    )
    page.note(
        "What was not allocated goes to the teams of its cluster in proportion to their dollars; "
        "it is the platform's line with the sign turned. Of the filters only the cluster counts "
        "here."
    )


def show_statement(request: PageRequest) -> None:
    """Show one team's statement and its lines."""
    rows = data.query(chargeback.read_statement, request.window, request.filters)
    by_team = {row["team"]: row for row in rows.to_pylist()}
    if not by_team:
        return
    page.show_heading("Statement of one team")
    team = request.filters.team or next(iter(by_team))
    st.text(page.spell_out(team))
    line = by_team.get(team)
    if line is None:
        page.show_nothing(
            "This team had no GPU in this window.", "Choose another team or a longer window."
        )
        return
    page.show_metrics(
        ("Fully loaded", format_money(line["total_usd"], cents=True), "own + node + shared"),
        ("GPU only", format_money(line["total_usd_gpu"], cents=True), "own + shared GPU part"),
        ("Shared", format_money(line["shared_usd"], cents=True), "of what was not allocated"),
        (
            "Idle",
            format_money(line["idle_usd"], cents=True),
            format_idle(line),
        ),
    )
    if team == PLATFORM:
        page.note("Not allocated: free, stranded and broken GPUs, shared out above.")
    of_team = msgspec.structs.replace(request.filters, team=team, view="loaded")
    own = data.query(spend.read_totals, request.window, of_team)
    rate = own.usd_per_gpu_hour
    detail = data.query(chargeback.read_statement_lines, request.window, request.filters, team)
    names, clusters = detail["workload"].to_pylist(), detail["cluster"].to_pylist()
    page.show_table(
        detail,
        LINES,
        table_name="Lines of the statement",
        in_csv=LINES_IN_CSV,
        open_row=lambda row: links.open_owner("workload", names[row], clusters[row]),
        total=page.sum_rows(
            detail,
            LINE_SUMS,
            workload="total",
            usd_per_gpu_hour=None if rate is None else float(rate),
            busy_pct=page.compute_percent(own.busy, 1),
            effective_pct=page.compute_percent(own.effective, 1),
        ),
    )
    page.note(
        "A click on a row of the first table chooses its team, as the filter does; a click on a "
        "line opens the workload's timeline. CSV has every digit, the used "
        "hours and the model."
    )


def format_idle(line: dict[str, Any]) -> str:
    """Return the line under a row's idle dollars: their share, then the hours."""
    part = format_share(line["idle_usd"], line["usd_loaded"])
    return f"{part} of own, {format_hours(line['idle_gpu_hours'])}"

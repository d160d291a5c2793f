"""My workloads: what they cost, how much of it computed, and what is planned for them."""

import streamlit as st

from dashboards import charts, data, filters, links, owner_filter, page
from dashboards.figures import owner_workloads
from dashboards.page import PageRequest, format_hours, format_hours_with_share, format_money
from dashboards.text import count

COLUMNS = page.read_columns("mine_workloads/columns")


def show(request: PageRequest) -> None:
    """Draw the tab."""
    page.show_card(show_workloads, request)


def show_workloads(request: PageRequest) -> None:
    """Draw and list the owner's workloads."""
    figures = st.container()  # they come before the choice
    owners = owner_filter.choose_owners(request)
    if not owners:
        return
    rows = data.query(
        owner_workloads.read_workloads, request.window, request.filters, owners
    ).to_pylist()
    if not rows:
        owner_filter.show_no_allocations(owners)
        return
    usd_known = [row["usd"] for row in rows if row["usd"] is not None]
    idle = [row["idle_usd"] for row in rows if row["idle_usd"] is not None]
    total_hours = sum(row["gpu_hours"] for row in rows)
    lost = sum(row["idle_gpu_hours"] for row in rows)
    planned = [r for r in rows if r["says"] and not r["says"].startswith("nothing")]
    cost = format_money(sum(usd_known) if usd_known else None)
    idle_usd = format_money(sum(idle) if idle else None)
    with figures:
        page.show_metrics(
            ("Cost", cost, count(len(rows), "workload")),
            ("GPU-hours", format_hours(total_hours), "in this window"),
            ("Idle", idle_usd, format_hours_with_share(lost, total_hours)),
            ("Something is planned", f"{len(planned):,}", "see What is coming"),
        )
    bars = [{"name": r["workload"], "usd": r["usd"], "idle": r["idle_usd"]} for r in rows[:15]]
    if any(row["usd"] for row in bars):
        page.chart(
            charts.draw_ranked_bars(bars, part="idle", most=10),
            "Dollars by workload, and how much of them was idle",
        )
    page.show_table(
        rows,
        filters.add_cluster(COLUMNS, request),
        table_name="My workloads, the most expensive first",
        open_row=lambda row: links.open_timeline(
            cluster=rows[row]["cluster"], workload=rows[row]["workload"]
        ),
        on_phone=("usd", "workload", "says"),
    )
    page.note("A click on a row opens the workload's timeline.")

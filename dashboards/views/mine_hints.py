"""What would make my workloads faster or smaller, with the lines to write."""

from typing import Any

import streamlit as st

from dashboards import action_buttons, data, filters, owner_filter, page
from dashboards.figures import owner_workloads
from dashboards.page import PageRequest, escape, format_hours, format_money

HINTS = page.read_columns("mine_hints/hints")
LINES = page.read_columns("mine_hints/lines")


def show(request: PageRequest) -> None:
    """Draw the tab."""
    page.show_card(show_hints, request)


def show_hints(request: PageRequest) -> None:
    """List the hints, and the lines of the chosen one."""
    owners = owner_filter.choose_owners(request)
    if not owners:
        return
    hint_rows = data.query(owner_workloads.read_hints, request.window, request.filters, owners)
    if not hint_rows:
        page.show_no_findings(
            request,
            owner_workloads.list_owner_analyzers(),
            "No hint for these workloads in this window.",
            "Formats, sizes, input and scaling were checked as far as telemetry measures them.",
        )
        return
    usd = [row["usd"] for row in hint_rows if row["usd"] is not None]
    quick = [row for row in hint_rows if row["effort"] == "quick win"]
    page.show_metrics(
        ("Hints", f"{len(hint_rows):,}", f"{len(quick):,} quick wins"),
        ("Would save", format_money(sum(usd) if usd else None), "in this window"),
        ("GPU-hours", format_hours(sum(row["gpu_hours"] for row in hint_rows)), "no hour twice"),
    )
    rows = [_build_row(row, n) for n, row in enumerate(hint_rows)]
    choice = action_buttons.choose(
        rows,
        filters.add_cluster(HINTS, request),
        key="hint",
        label="Hint",
        table_name="Hints, what saves most first",
        name_of=lambda row: f"{row['workload']}: {row['verb']}",
    )
    if choice is None:
        return
    hint = hint_rows[choice["number"]]
    st.markdown(f"**{escape(hint['verb'], 120)}**: {escape(hint['why'], 600)}")
    if hint["caution"]:
        page.note(f"Caution: {escape(hint['caution'], 600)}")
    if hint["lines"]:
        page.show_table(hint["lines"], LINES, table_name="Lines to write, by framework")
        page.note("Nothing was changed. Sign the accuracy off yourself.")


def _build_row(row: dict[str, Any], number: int) -> dict[str, Any]:
    ranges = row["details"].get("ranges") or ()
    first = ranges[0].get("times_as_fast") if ranges and isinstance(ranges[0], dict) else None
    cells = {n: value for n, value in row.items() if n not in ("details", "lines")}
    return cells | {
        "id": f"{row['id']}-{number}",
        "number": number,
        "faster": f"{first[0]:.2g} to {first[1]:.2g}" if first else None,
    }

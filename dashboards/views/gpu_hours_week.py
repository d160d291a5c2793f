"""The hours of the week: when GPUs work, and when they are held and do not."""

import streamlit as st

from dashboards import charts, data, maps, page
from dashboards.figures import heatmap
from dashboards.page import (
    PageRequest,
    format_hours,
    format_hours_with_share,
    format_money,
    format_share,
)

MEASURES = {
    "productive": (
        "productive_pct",
        "% of paid GPU-hours that were productive",
        charts.STATE_COLOURS["productive"],
    ),
    "idle": (
        "idle_pct",
        "% of paid GPU-hours that were allocated and idle",
        charts.STATE_COLOURS["idle"],
    ),
    "idle dollars": (
        "idle_usd",
        "USD of allocated, idle GPUs in this hour of the week",
        charts.AMBER,
    ),
    "free": (
        "free_pct",
        "% of paid GPU-hours that were not allocated",
        charts.STATE_COLOURS["free"],
    ),
    "unknown": (
        "unknown_pct",
        "% of paid GPU-hours that are unknown",
        charts.STATE_COLOURS["unknown"],
    ),
}
TEAMS = page.read_columns("gpu_hours_week/teams")


def show(request: PageRequest) -> None:
    """Draw the tab."""
    page.show_card(show_week, request, height=340)
    page.show_card(show_halves, request)
    page.show_card(show_teams, request)


def show_week(request: PageRequest) -> None:
    """Draw the week."""
    measure_name = st.segmented_control(
        "Show", [*MEASURES], default="idle", required=True, key="measure", bind="query-params"
    )
    rows = data.query(heatmap.read_week, request.window, request.filters, _get_office(request))
    if not rows.num_rows:
        page.show_no_data(request)
        return
    measure, title, colour = MEASURES[measure_name or "idle"]
    records = rows.to_pylist()
    if all(row[measure] is None for row in records):
        page.show_nothing(
            "Nothing here has a price.", "`fallow doctor` says which; choose a share meanwhile."
        )
        return
    page.chart(
        maps.draw_week(records, measure, title, colour), f"Each hour of the week: {title.lower()}"
    )
    few = min(row["days"] for row in records)
    blank = (
        "" if len(records) == 7 * 24 else f" {7 * 24 - len(records)} hours lie outside the window."
    )
    zone = request.settings.dashboard.time_zone
    often = "once" if few == 1 else f"{few:,} times"
    page.note(f"Hours by the clock of {zone}; each was seen {often} or more.{blank}")


def show_halves(request: PageRequest) -> None:
    """Show the idle time in office hours and outside them."""
    week_parts = data.query(
        heatmap.read_halves, request.window, request.filters, _get_office(request)
    )
    if not week_parts:
        return
    page.show_metrics(
        *(
            (
                "Allocated, idle in office hours"
                if part.in_office
                else "Allocated, idle outside them",
                format_money(part.idle_usd),
                format_hours_with_share(part.idle_gpu_hours, part.gpu_hours),
            )
            for part in week_parts
        ),
        *(
            (
                "Productive in office hours" if part.in_office else "Productive outside them",
                format_share(part.productive_gpu_hours, part.gpu_hours),
                f"of {format_hours(part.gpu_hours)}",
            )
            for part in week_parts
        ),
    )
    office = _get_office(request)
    page.note(
        f"Office hours: Monday to Friday, {office.first}:00 to {office.last}:00, {office.zone} "
        "(`dashboard.office_hours`, `dashboard.time_zone`)."
    )


def show_teams(request: PageRequest) -> None:
    """List the teams with idle GPUs at night and at weekends."""
    page.show_heading("Who holds GPUs idle outside office hours")
    rows = data.query(heatmap.read_teams, request.window, request.filters, _get_office(request))
    if not rows.num_rows:
        page.show_nothing(
            "No allocated GPU is idle outside office hours.",
            "A policy for quiet hours would save nothing here.",
        )
        return
    page.show_table(rows, TEAMS, table_name="Teams that hold GPUs idle outside office hours")


def _get_office(request: PageRequest) -> heatmap.Office:
    dashboard_settings = request.settings.dashboard
    return heatmap.Office(dashboard_settings.time_zone, *dashboard_settings.office_hours)

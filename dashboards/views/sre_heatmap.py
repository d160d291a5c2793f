"""The hours of the week: when GPUs work, and when they are held and do not."""

import streamlit as st

from dashboards import charts, data, maps, page
from dashboards.figures import heatmap
from dashboards.page import Asked, hours, money, share

TITLE, ICON, ORDER = "Hours of the week", ":material/calendar_view_week:", 50

MEASURES = {
    "productive": ("productive_pct", "% of paid GPU-hours that were productive", charts.BLUE),
    "idle": ("idle_pct", "% of paid GPU-hours that were held idle", charts.AMBER),
    "idle dollars": ("idle_usd", "USD held idle in this hour of the week", charts.AMBER),
    "free": ("free_pct", "% of paid GPU-hours that nobody held", charts.SLATE),
    "unknown": ("unknown_pct", "% of paid GPU-hours that nobody can tell", charts.VIOLET),
}
TEAMS = {
    "team": page.name("team"),
    "idle_usd": page.usd("idle outside office hours, USD"),
    "idle_gpu_hours": page.number("GPU-hours"),
    "office_idle_gpu_hours": page.number("GPU-hours in office hours"),
    "outside_pct": page.percent("of its idle hours, outside"),
}


def show(asked: Asked) -> None:
    """Draw the page."""
    page.card(week, asked, height=340)
    page.card(halves, asked)
    page.card(teams, asked)


def week(asked: Asked) -> None:
    """Draw the week."""
    chosen = st.segmented_control(
        "Show", [*MEASURES], default="idle", required=True, key="measure", bind="query-params"
    )
    rows = data.ask(heatmap.week, asked.window, asked.filters, _office(asked))
    if not rows.num_rows:
        page.nobody(asked)
        return
    measure, title, colour = MEASURES[chosen or "idle"]
    listed = rows.to_pylist()
    if all(row[measure] is None for row in listed):
        page.nothing(
            "Nothing here has a price.", "`fallow doctor` says which; choose a share meanwhile."
        )
        return
    page.chart(maps.week(listed, measure, title, colour), f"Each hour of the week: {title.lower()}")
    few = min(row["days"] for row in listed)
    blank = (
        "" if len(listed) == 7 * 24 else f" {7 * 24 - len(listed)} hours lie outside the window."
    )
    zone = asked.settings.dashboard.time_zone
    often = "once" if few == 1 else f"{few:,} times"
    page.note(f"Hours by the clock of {zone}; each was seen {often} or more.{blank}")


def halves(asked: Asked) -> None:
    """Say what lies idle in office hours and outside them."""
    made = data.ask(heatmap.halves, asked.window, asked.filters, _office(asked))
    if not made:
        return
    page.metrics(
        *(
            (
                "Held idle in office hours" if part.in_office else "Held idle outside them",
                money(part.idle_usd),
                f"{hours(part.idle_gpu_hours)}, {share(part.idle_gpu_hours, part.gpu_hours)}",
            )
            for part in made
        ),
        *(
            (
                "Productive in office hours" if part.in_office else "Productive outside them",
                share(part.productive_gpu_hours, part.gpu_hours),
                f"of {hours(part.gpu_hours)}",
            )
            for part in made
        ),
    )
    office = _office(asked)
    page.note(
        f"Office hours: Monday to Friday, {office.first}:00 to {office.last}:00, {office.zone} "
        "(`dashboard.office_hours`, `dashboard.time_zone`)."
    )


def teams(asked: Asked) -> None:
    """List who leaves GPUs idle at night and at weekends."""
    page.heading("Who holds GPUs idle outside office hours")
    rows = data.ask(heatmap.teams, asked.window, asked.filters, _office(asked))
    if not rows.num_rows:
        page.nothing(
            "Nobody holds a GPU idle outside office hours.",
            "A policy for quiet hours would save nothing here.",
        )
        return
    page.table(rows, TEAMS, called="Teams that hold GPUs idle outside office hours")


def _office(asked: Asked) -> heatmap.Office:
    told = asked.settings.dashboard
    return heatmap.Office(told.time_zone, *told.office_hours)

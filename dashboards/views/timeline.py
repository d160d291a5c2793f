"""One workload, node or device over time, also before and after an action: use, cost, events."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import streamlit as st

from dashboards import charts, data, links, maps, page, tabs
from dashboards.figures import timeline
from dashboards.figures.timeline import TimelineSubject
from dashboards.page import (
    PageRequest,
    escape,
    format_hours,
    format_hours_with_share,
    format_money,
    format_share,
)
from dashboards.text import count
from dashboards.views import timeline_action

TITLE, ICON = "Timeline", ":material/timeline:"

SUBJECT_COLUMNS = page.read_columns("timeline/subject_columns")
UUID_PX = 310
"""Width of a column with UUIDs of GPUs."""
PLACES = {
    "workload": page.configure_workload(),
    "of_workload": links.configure_column("timeline"),
    "node": page.name("node", 130),
    "of_node": links.configure_column("timeline"),
    "device": page.name("device", UUID_PX),
    "of_device": links.configure_column("timeline"),
    "first_hour": page.configure_time("from"),
    "last_hour": page.configure_time("until"),
    "usd": page.configure_usd("USD"),
    "idle_usd": page.configure_usd("idle, USD"),
    "gpu_hours": page.configure_number("GPU-hours"),
    "idle_gpu_hours": page.configure_number("idle GPU-hours"),
    "team": page.name("team", "small"),
    "model": page.name("model", "small"),
}
EVENTS = page.read_columns("timeline/events")
MOST_INCIDENTS = 5
"""Incidents that are named above the tracks; the table below has all."""
TRACKS = (
    ("activity_pct", "activity, %", {"activity_pct": "mean", "most_pct": "most of any device"}),
    ("memory_gb", "memory, GB", {"memory_gb": "memory in use"}),
    ("power_w", "power, W", {"power_w": "power"}),
    ("temp_c", "temp., °C", {"temp_c": "hottest device"}),
    ("clock_mhz", "SM clock, MHz", {"clock_mhz": "mean", "least_clock_mhz": "slowest device"}),
    ("xid", "XID", {"xid": "code that a device shows"}),
)


def show(request: PageRequest) -> None:
    """Draw the page."""
    figures = st.container()  # they come before the choices
    subject = choose_subject(request)
    action = timeline_action.choose(request, subject.workload)
    if action:
        timeline_action.show(request, action)
        return
    if not subject:
        page.show_card(list_workloads, request)
        return
    with figures:
        page.show_card(show_figures, request)
    page.show_card(show_tracks, request, height=600)
    page.show_card(show_more, request)


def choose_subject(request: PageRequest) -> TimelineSubject:
    """Let people name a subject; the names are in the URL."""
    picked: dict[str, str | None] = {}
    line = st.container(horizontal=True)
    for key in timeline.KEYS:
        names: list[str] = []
        if key != "device":
            rows = data.query(
                timeline.list_subjects, request.window, request.filters, TimelineSubject(), key
            )
            names = rows["name"].to_pylist()
        with line:
            picked[key] = st.selectbox(
                key.capitalize(),
                names,
                index=None,
                key=key,
                placeholder="namespace/kind/name" if key == "workload" else "name or UUID",
                accept_new_options=True,
                bind="query-params",
            )
    return TimelineSubject(**picked)


def get_subject() -> TimelineSubject:
    """Return the subject in the URL."""
    return TimelineSubject(**{key: st.session_state.get(key) or None for key in timeline.KEYS})


def list_workloads(request: PageRequest) -> None:
    """List workloads to choose from."""
    search = st.query_params.get("search", "")
    rows = _find_workloads(request, search).to_pylist()
    if not rows and search:
        page.show_nothing(
            f"No workload of this window has {escape(search)} in its name.",
            "Search for a shorter part of the name, or choose a longer window.",
        )
        return
    if not rows:
        page.show_no_data(request)
        return
    page.show_heading("Choose a workload, a node or a device")
    if search:
        page.note(f"Workloads with {escape(search)} in their names.")
    page.show_table(
        rows,
        SUBJECT_COLUMNS,
        table_name="Workloads by idle cost",
        open_row=lambda row: links.set_values(
            cluster=rows[row]["cluster"], workload=rows[row]["name"]
        ),
    )
    page.note("A click on a row opens the workload's timeline.")


def _find_workloads(request: PageRequest, search: str) -> pa.Table:
    """Return the workloads with a text in their names; of all, those that the box offers."""
    if search:
        return data.query(timeline.find_workloads, request.window, request.filters, search)
    subject = TimelineSubject()
    return data.query(timeline.list_subjects, request.window, request.filters, subject, "workload")


def show_figures(request: PageRequest) -> None:
    """Show the subject in figures."""
    subject_totals = data.query(
        timeline.read_totals, request.window, request.filters, get_subject()
    )
    if not subject_totals.gpu_hours:
        page.show_nothing(
            "Nothing is accounted for it in this window.",
            "Check the name as `fallow spend --by workload` writes it, choose a longer window, or "
            "see below what happened to it.",
        )
        return
    page.show_metrics(
        ("Cost", format_money(subject_totals.usd), format_hours(subject_totals.gpu_hours)),
        (
            "Productive",
            format_share(subject_totals.productive_gpu_hours, subject_totals.gpu_hours),
            format_hours(subject_totals.productive_gpu_hours),
        ),
        (
            "Allocated, idle",
            format_money(subject_totals.idle_usd),
            format_hours_with_share(subject_totals.idle_gpu_hours, subject_totals.gpu_hours),
        ),
        (
            "Where",
            count(subject_totals.devices, "GPU"),
            f"{count(subject_totals.nodes, 'node')}, {count(subject_totals.workloads, 'workload')}",
        ),
    )


def show_tracks(request: PageRequest) -> None:
    """Draw the subject over time: allocation, use, cost and events."""
    timeline_subject, span = get_subject(), (request.window.start, request.window.end)
    subject_totals = data.query(
        timeline.read_totals, request.window, request.filters, timeline_subject
    )
    if not subject_totals.gpu_hours:
        return
    events = data.query(
        timeline.read_events, request.window, request.filters, timeline_subject
    ).to_pylist()
    marks = _show_incidents([event for event in events if event["incident"]])
    rows = data.query(
        timeline.read_states, request.window, request.filters, timeline_subject
    ).to_pylist()
    page.chart(
        maps.mark_timestamps(
            maps.draw_state_track(rows, span, value="gpus", title="GPUs", form=maps.GPU_FORMAT),
            marks,
            span,
            colour=charts.RED,
        ),
        "Allocated GPUs, by what they did; incidents are lines",
    )
    measure_rows = data.query(
        timeline.read_measures, request.window, request.filters, timeline_subject
    ).to_pylist()
    for key, title, lines in TRACKS:
        if any(row[key] is not None for row in measure_rows):
            drawing = maps.track(
                measure_rows, lines, span, title=title, form=maps.GPU_FORMAT, points=key == "xid"
            )
            page.chart(
                maps.mark_timestamps(drawing, marks, span, named=False, colour=charts.RED),
                f"{title} over time",
            )
    if any(row["usd_h"] is not None for row in rows):
        page.chart(
            maps.draw_state_track(rows, span, value="usd_h", title="USD per hour", form="$~s"),
            "Dollars per hour, by state",
        )
    if events:
        page.chart(maps.draw_marks(events, span, height=320), "What happened, as ticks over time")
    unknown = format_share(subject_totals.unknown_gpu_hours, subject_totals.gpu_hours)
    page.note(
        "GPUs and dollars are those of the ledger, hour by hour; the other tracks are what "
        f"telemetry said of the devices meanwhile. A gap: there is no sample. {unknown} is unknown."
    )


def _show_incidents(events: list[dict[str, Any]]) -> list[tuple[datetime, str]]:
    """Name the newest incidents with links to their details; return all as marks of the tracks."""
    if events:
        # The newest first, as the events are.
        links_shown = [
            f"[{event['at']:%Y-%m-%d %H:%M} {escape(event['detail'].partition(':')[0], 80)}]"
            f"({links.build_page_link('health', incident=event['incident'])})"
            for event in events[:MOST_INCIDENTS]
        ]
        more = len(events) - len(links_shown)
        st.markdown(
            f"**{count(len(events), 'incident')}:** {', '.join(links_shown)}"
            + (f" and {more:,} more below." if more else ".")
        )
    return [
        (event["at"].replace(tzinfo=UTC), event["detail"].partition(",")[0]) for event in events
    ]


def show_more(request: PageRequest) -> None:
    """List which workload had which device, or the events."""
    tabs.choose_tab({"where": show_places, "what happened": show_events}, request)


def show_places(request: PageRequest) -> None:
    """List which workload had which device."""
    rows = data.query(
        timeline.read_places, request.window, request.filters, get_subject()
    ).to_pylist()
    if not rows:
        page.show_nothing("None of its devices was allocated here.", "Choose a longer window.")
        return
    table_rows = [
        {
            **r,
            "of_workload": links.build_timeline_link(cluster=r["cluster"], workload=r["workload"]),
            "of_node": links.build_timeline_link(cluster=r["cluster"], node=r["node"]),
            "of_device": links.build_timeline_link(cluster=r["cluster"], device=r["device"]),
        }
        for r in rows
    ]
    page.show_table(table_rows, PLACES, table_name="Who had which device")
    page.note("A sign in a row opens the timeline of its workload, node or device.")
    if len(rows) == timeline.MOST:
        page.note(f"The {timeline.MOST} with the most GPU-hours.")


def show_events(request: PageRequest) -> None:
    """Draw and list the events."""
    rows = data.query(
        timeline.read_events, request.window, request.filters, get_subject()
    ).to_pylist()
    if not rows:
        page.show_nothing(
            "Nothing is known to have happened to it in this window.",
            "Pods and events come from the Kubernetes collector, findings from `fallow analyze`.",
        )
        return

    def open_row(row: int) -> None:
        if rows[row]["incident"]:
            links.open_page("health", incident=rows[row]["incident"])
        elif rows[row]["finding"]:
            links.open_page("findings", finding=rows[row]["finding"])

    page.show_table(
        rows,
        EVENTS,
        table_name="What happened, the newest first",
        open_row=open_row,
        row_names=[f"{row['at']:%Y-%m-%d %H:%M} {row['kind']}" for row in rows],
    )
    page.note("A click on an incident or a finding opens it.")

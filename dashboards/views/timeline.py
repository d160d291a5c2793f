"""One workload, node or device over time, also before and after an action: use, cost, events."""

import streamlit as st

from dashboards import data, links, maps, page, tabs
from dashboards.figures import timeline
from dashboards.figures.timeline import TimelineSubject
from dashboards.page import PageRequest, hours, hours_of, money, plain, share
from dashboards.views import timeline_action

TITLE, ICON = "Timeline", ":material/timeline:"

SUBJECT_COLUMNS = {
    "name": page.workload(),
    "idle_usd": page.usd("idle, USD"),
    "idle_gpu_hours": page.number("idle GPU-hours"),
    "usd": page.usd("USD"),
    "gpu_hours": page.number("GPU-hours"),
    "team": page.name("team", "small"),
    "cluster": page.name("cluster", "small"),
}
PLACES = {
    "workload": page.workload(),
    "of_workload": links.column("its timeline"),
    "node": page.name("node"),
    "of_node": links.column("its timeline"),
    "device": page.name("device"),
    "of_device": links.column("its timeline"),
    "first_hour": page.time_column("from"),
    "last_hour": page.time_column("until"),
    "usd": page.usd("USD"),
    "idle_usd": page.usd("idle, USD"),
    "gpu_hours": page.number("GPU-hours"),
    "idle_gpu_hours": page.number("idle GPU-hours"),
    "team": page.name("team", "small"),
    "model": page.name("model", "small"),
}
EVENTS = {
    "at": page.time_column("when"),
    "kind": page.name("what"),
    "detail": page.name("of whom", "large"),
}
TRACKS = (
    ("activity_pct", "activity, %", {"activity_pct": "mean", "most_pct": "most of any device"}),
    ("memory_gb", "memory, GB", {"memory_gb": "memory in use"}),
    ("power_w", "power, W", {"power_w": "power"}),
)


def show(request: PageRequest) -> None:
    """Draw the page."""
    subject = choose_subject(request)
    action = timeline_action.choose(request, subject.workload)
    if action:
        timeline_action.show(request, action)
        return
    if not subject:
        page.card(list_workloads, request)
        return
    page.card(tracks, request, height=600)
    page.card(more, request)


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


def subject() -> TimelineSubject:
    """Return the subject in the URL."""
    return TimelineSubject(**{key: st.session_state.get(key) or None for key in timeline.KEYS})


def list_workloads(request: PageRequest) -> None:
    """List workloads to choose from."""
    search = st.query_params.get("search", "")
    rows = data.query(timeline.find_workloads, request.window, request.filters, search).to_pylist()
    if not rows and search:
        page.show_nothing(
            f"No workload of this window has {plain(search)} in its name.",
            "Search for a shorter part of the name, or choose a longer window.",
        )
        return
    if not rows:
        page.show_no_data(request)
        return
    page.heading("Choose a workload, a node or a device")
    if search:
        page.note(f"Workloads with {plain(search)} in their names.")
    page.table(
        rows,
        SUBJECT_COLUMNS,
        table_name="Workloads by idle cost",
        open_row=lambda row: links.set_values(
            cluster=rows[row]["cluster"], workload=rows[row]["name"]
        ),
    )


def tracks(request: PageRequest) -> None:
    """Show the subject in figures and draw it over time: allocation, use, cost and events."""
    timeline_subject, span = subject(), (request.window.start, request.window.end)
    subject_totals = data.query(timeline.totals, request.window, request.filters, timeline_subject)
    if not subject_totals.gpu_hours:
        page.show_nothing(
            "Nothing is accounted for it in this window.",
            "Check the name as `fallow spend --by workload` writes it, choose a longer window, or "
            "see below what happened to it.",
        )
        return
    page.metrics(
        ("Cost", money(subject_totals.usd), hours(subject_totals.gpu_hours)),
        (
            "Productive",
            share(subject_totals.productive_gpu_hours, subject_totals.gpu_hours),
            hours(subject_totals.productive_gpu_hours),
        ),
        (
            "Allocated, idle",
            money(subject_totals.idle_usd),
            hours_of(subject_totals.idle_gpu_hours, subject_totals.gpu_hours),
        ),
        (
            "Where",
            f"{subject_totals.devices:,} GPUs",
            f"{subject_totals.nodes:,} nodes, {subject_totals.workloads:,} workloads",
        ),
    )
    rows = data.query(
        timeline.states, request.window, request.filters, timeline_subject
    ).to_pylist()
    page.chart(
        maps.state_track(rows, span, value="gpus", title="GPUs", form=",.0f"),
        "GPUs held, by what they did",
    )
    measure_rows = data.query(
        timeline.measures, request.window, request.filters, timeline_subject
    ).to_pylist()
    for key, title, lines in TRACKS:
        if any(row[key] is not None for row in measure_rows):
            page.chart(maps.track(measure_rows, lines, span, title=title), f"{title} over time")
    if any(row["usd_h"] is not None for row in rows):
        page.chart(
            maps.state_track(rows, span, value="usd_h", title="USD per hour", form="$~s"),
            "Dollars per hour, by state",
        )
    events = data.query(
        timeline.events, request.window, request.filters, timeline_subject
    ).to_pylist()
    if events:
        page.chart(maps.marks(events, span, height=320), "What happened, as ticks over time")
    unknown = share(subject_totals.unknown_gpu_hours, subject_totals.gpu_hours)
    page.note(
        "GPUs and dollars are those of the ledger, hour by hour; activity, memory and power what "
        f"telemetry said of the devices meanwhile. A gap: there is no sample. {unknown} is unknown."
    )


def more(request: PageRequest) -> None:
    """List which workload had which device, or the events."""
    tabs.choose_tab({"where": places, "what happened": show_events}, request)


def places(request: PageRequest) -> None:
    """List which workload had which device."""
    rows = data.query(timeline.places, request.window, request.filters, subject()).to_pylist()
    if not rows:
        page.show_nothing("None of its devices was allocated here.", "Choose a longer window.")
        return
    table_rows = [
        {
            **r,
            "of_workload": links.timeline(cluster=r["cluster"], workload=r["workload"]),
            "of_node": links.timeline(cluster=r["cluster"], node=r["node"]),
            "of_device": links.timeline(cluster=r["cluster"], device=r["device"]),
        }
        for r in rows
    ]
    page.table(table_rows, PLACES, table_name="Who had which device")
    if len(rows) == timeline.MOST:
        page.note(f"The {timeline.MOST} with the most GPU-hours.")


def show_events(request: PageRequest) -> None:
    """Draw and list the events."""
    rows = data.query(timeline.events, request.window, request.filters, subject()).to_pylist()
    if not rows:
        page.show_nothing(
            "Nothing is known to have happened to it in this window.",
            "Pods and events come from the Kubernetes collector, findings from `fallow analyze`.",
        )
        return
    page.table(rows, EVENTS, table_name="What happened, the newest first", height=320)

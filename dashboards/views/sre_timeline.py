"""One workload, node or device over time: what it held, did and cost, and what happened."""

import streamlit as st

from dashboards import choosing, data, links, maps, page
from dashboards.figures import timeline
from dashboards.figures.timeline import Subject
from dashboards.page import Asked, hours, money, share

TITLE, ICON, ORDER = "Timeline", ":material/timeline:", 20

KNOWN = {
    "name": page.name("workload", "large"),
    "timeline": links.column(),
    "idle_usd": page.usd("idle, USD"),
    "idle_gpu_hours": page.number("idle GPU-hours"),
    "usd": page.usd("USD"),
    "gpu_hours": page.number("GPU-hours"),
    "team": page.name("team", "small"),
    "cluster": page.name("cluster", "small"),
}
PLACES = {
    "workload": page.name("workload", "large"),
    "of_workload": links.column("its timeline"),
    "node": page.name("node"),
    "of_node": links.column("its timeline"),
    "device": page.name("device"),
    "of_device": links.column("its timeline"),
    "first_hour": page.moment("from"),
    "last_hour": page.moment("until"),
    "usd": page.usd("USD"),
    "idle_usd": page.usd("idle, USD"),
    "gpu_hours": page.number("GPU-hours"),
    "idle_gpu_hours": page.number("idle GPU-hours"),
    "team": page.name("team", "small"),
    "model": page.name("model", "small"),
}
EVENTS = {
    "moment": page.moment("when"),
    "kind": page.name("what"),
    "what": page.name("of whom", "large"),
}
TRACKS = (
    ("activity_pct", "activity, %", {"activity_pct": "mean", "most_pct": "most of any device"}),
    ("memory_gb", "memory, GB", {"memory_gb": "memory in use"}),
    ("power_w", "power, W", {"power_w": "power"}),
)


def show(asked: Asked) -> None:
    """Draw the page."""
    subject = chosen(asked)
    if not subject:
        page.card(offered, asked)
        return
    page.card(tracks, asked, height=600)
    page.card(more, asked)


def chosen(asked: Asked) -> Subject:
    """Let people name whom; the names stand in the URL."""
    picked: dict[str, str | None] = {}
    line = st.container(horizontal=True)
    for key in timeline.KEYS:
        names: list[str] = []
        if key != "device":
            rows = data.ask(timeline.known, asked.window, asked.filters, Subject(), key)
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
    return Subject(**picked)


def subject() -> Subject:
    """Return whom the URL names."""
    return Subject(**{key: st.session_state.get(key) or None for key in timeline.KEYS})


def offered(asked: Asked) -> None:
    """List workloads to choose from."""
    rows = data.ask(timeline.known, asked.window, asked.filters, Subject(), "workload").to_pylist()
    if not rows:
        page.nobody(asked)
        return
    page.heading("Choose a workload, a node or a device")
    made = [
        {**r, "timeline": links.timeline(cluster=r["cluster"], workload=r["name"])} for r in rows
    ]
    page.table(made, KNOWN, called="Workloads by what they burnt idle")


def tracks(asked: Asked) -> None:
    """Say the subject in figures and draw it over time: held, done, paid and happened."""
    whose, span = subject(), (asked.window.start, asked.window.end)
    made = data.ask(timeline.totals, asked.window, asked.filters, whose)
    if not made.gpu_hours:
        page.nothing(
            "Nothing is accounted for it in this window.",
            "Check the name as `fallow spend --by workload` writes it, choose a longer window, or "
            "look below for what happened to it.",
        )
        return
    page.metrics(
        ("Cost", money(made.usd), hours(made.gpu_hours)),
        (
            "Productive",
            share(made.productive_gpu_hours, made.gpu_hours),
            hours(made.productive_gpu_hours),
        ),
        (
            "Held idle",
            money(made.idle_usd),
            f"{hours(made.idle_gpu_hours)}, {share(made.idle_gpu_hours, made.gpu_hours)}",
        ),
        (
            "Where",
            f"{made.devices:,} GPUs",
            f"{made.nodes:,} nodes, {made.workloads:,} workloads",
        ),
    )
    rows = data.ask(timeline.states, asked.window, asked.filters, whose).to_pylist()
    page.chart(
        maps.state_track(rows, span, value="gpus", title="GPUs", form=",.0f"),
        "GPUs held, by what they did",
    )
    said = data.ask(timeline.measures, asked.window, asked.filters, whose).to_pylist()
    for key, title, lines in TRACKS:
        if any(row[key] is not None for row in said):
            page.chart(maps.track(said, lines, span, title=title), f"{title} over time")
    if any(row["usd_h"] is not None for row in rows):
        page.chart(
            maps.state_track(rows, span, value="usd_h", title="USD per hour", form="$~s"),
            "Dollars per hour, by state",
        )
    events = data.ask(timeline.events, asked.window, asked.filters, whose).to_pylist()
    if events:
        page.chart(maps.marks(events, span, height=320), "What happened, as ticks over time")
    unknown = share(made.unknown_gpu_hours, made.gpu_hours)
    page.note(
        "GPUs and dollars are those of the books, hour by hour; activity, memory and power what "
        f"telemetry said of the devices meanwhile. A gap: nobody looked. {unknown} is unknown."
    )


def more(asked: Asked) -> None:
    """List who had which device, or what happened."""
    choosing.one_of({"where": places, "what happened": happened}, asked)


def places(asked: Asked) -> None:
    """List who had which device."""
    rows = data.ask(timeline.places, asked.window, asked.filters, subject()).to_pylist()
    if not rows:
        page.nothing("Nobody held a device of it here.", "Choose a longer window.")
        return
    made = [
        {
            **r,
            "of_workload": links.timeline(cluster=r["cluster"], workload=r["workload"]),
            "of_node": links.timeline(cluster=r["cluster"], node=r["node"]),
            "of_device": links.timeline(cluster=r["cluster"], device=r["device"]),
        }
        for r in rows
    ]
    page.table(made, PLACES, called="Who had which device")
    if len(rows) == timeline.MOST:
        page.note(f"The {timeline.MOST} with the most GPU-hours.")


def happened(asked: Asked) -> None:
    """Draw and list what happened."""
    rows = data.ask(timeline.events, asked.window, asked.filters, subject()).to_pylist()
    if not rows:
        page.nothing(
            "Nothing is known to have happened to it in this window.",
            "Pods and events come from the Kubernetes collector, findings from `fallow analyze`.",
        )
        return
    page.table(rows, EVENTS, called="What happened, the newest first", height=320)

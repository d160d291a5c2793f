"""Every GPU now or at any time: state, utilisation, power, temperature, memory and clocks."""

from datetime import UTC, datetime
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
import streamlit as st

from dashboards import data, links, maps, page, tabs
from dashboards.figures import fleet, timeline
from dashboards.figures.timeline import TimelineSubject
from dashboards.page import PageRequest, format_money

TITLE, ICON = "Fleet", ":material/grid_view:"
NOT_ALLOCATED = "(not allocated)"
AT = "at"
"""The parameter of the URL with the chosen time."""

NODES = page.read_columns("fleet/nodes")
DEVICES = page.read_columns("fleet/devices")
SERIES = (
    ("activity_pct", "utilisation, %", {"activity_pct": "mean", "most_pct": "most of any GPU"}),
    ("memory_gb", "memory, GB", {"memory_gb": "memory in use"}),
    ("power_w", "power, W", {"power_w": "power"}),
    ("temp_c", "temp., °C", {"temp_c": "hottest GPU"}),
)
HOLDERS = page.read_columns("fleet/holders")


def show(request: PageRequest) -> None:
    """Draw the page."""
    figures = st.container()  # they come before the choice
    choose_time(request)
    with figures:
        page.show_card(show_states, request)
    page.show_card(show_cells, request, height=400)
    page.show_card(show_more, request)


def choose_time(request: PageRequest) -> None:
    """Let people choose the time that the page shows; it is in the URL as `at` (UTC)."""
    left, _ = st.columns([2, 5])
    with left:
        st.datetime_input(
            "At (UTC)",
            value=None,
            min_value=_drop_zone(request.extent.samples.start),
            max_value=_drop_zone(request.extent.samples.end),
            step=fleet.FIVE_MINUTES,
            format="YYYY-MM-DD",
            key=AT,
            bind="query-params",
            help="Empty: the end of the window, or of the newest hour in the ledger",
        )


def get_time(request: PageRequest) -> datetime:
    """Return the page's time: the chosen one, else the end of the window or of the ledger."""
    accounted_until = request.extent.accounted
    end = min(request.window.end, accounted_until) if accounted_until else request.window.end
    chosen = st.session_state.get(AT)
    return min(chosen.replace(tzinfo=UTC), end) if chosen else end


def _drop_zone(timestamp: datetime) -> datetime:
    return timestamp.astimezone(UTC).replace(tzinfo=None, second=0, microsecond=0)


def show_states(request: PageRequest) -> None:
    """Show the fleet in four figures."""
    rates = data.query(fleet.read_states, get_time(request), request.filters)
    if not rates:
        page.show_no_data(request)
        return
    rate_by_state = {rate.state: rate for rate in rates}
    gpu_total = sum(rate.gpus for rate in rates)
    priced = [rate.usd_h for rate in rates if rate.usd_h is not None]
    bill = sum(priced, page.convert_exact(0)) if priced else None
    page.show_metrics(
        ("GPUs", f"{gpu_total:,.0f}", f"{format_money(bill)} per hour"),
        *(
            _build_metric(label, rate_by_state.get(state), bool(priced))
            for label, state in _CELL_FIELDS
        ),
    )
    hour = fleet.find_hour(get_time(request)).whole()
    headed = {state for _, state in _CELL_FIELDS}
    others = ", ".join(
        f"{rate.gpus:,.1f} {state}"
        for state, rate in rate_by_state.items()
        if state not in headed and rate.gpus
    )
    page.note(
        f"{f'The other GPUs: {others}. ' if others else ''}"
        f"The hour {hour.start:%Y-%m-%d %H:%M} to {hour.end:%H:%M} UTC of the ledger. A cell shows "
        "the state that its GPU was in longest; the figures count seconds."
    )


def show_cells(request: PageRequest) -> None:
    """Draw the GPUs."""
    rows = data.query(fleet.read_cells, get_time(request), request.filters).to_pylist()
    if not rows:
        return
    gpu_total = sum(
        rate.gpus for rate in data.query(fleet.read_states, get_time(request), request.filters)
    )
    page.chart(
        maps.draw_cells(rows, roles=(("model", "model"), ("device", "device"))),
        "GPUs as cells, node by node, coloured by what they do",
    )
    gpus_shown = sum(row["gpus"] for row in rows)
    if any(row["device"] is None for row in rows):
        page.note("GPUs of one node in one state are one cell, as wide as they are many.")
    if gpus_shown < gpu_total - 0.5:
        page.note(
            f"Drawn are {gpus_shown:,.0f} of {gpu_total:,.0f} GPUs, those of the nodes that burn "
            "the most "
            "idle: a browser takes no more. Filter by cluster or pool to see the others."
        )


def show_more(request: PageRequest) -> None:
    """List every GPU, the workloads with idle GPUs, or the nodes."""
    tabs.choose_tab(
        {
            "GPUs": show_devices,
            "allocated, idle": show_holders,
            "nodes": show_nodes,
            "over time": show_series,
        },
        request,
    )


def show_series(request: PageRequest) -> None:
    """Draw all GPUs over the window: by state, and what telemetry said of them."""
    span = (request.window.start, request.window.end)
    arguments = (request.window, request.filters, TimelineSubject())
    states = data.query(timeline.read_states, *arguments).to_pylist()
    if not states:
        page.show_no_data(request)
        return
    page.chart(
        maps.draw_state_track(states, span, value="gpus", title="GPUs", form=maps.GPU_FORMAT),
        "GPUs by what they did, over time",
    )
    rows = data.query(timeline.read_measures, *arguments).to_pylist()
    for key, title, lines in SERIES:
        if any(row[key] is not None for row in rows):
            page.chart(
                maps.track(rows, lines, span, title=title, form=maps.GPU_FORMAT),
                f"{title} of all GPUs over time",
            )


def show_devices(request: PageRequest) -> None:
    """List every GPU with its telemetry at the time."""
    at = get_time(request)
    rows = data.query(fleet.read_devices, at, request.filters)
    if not rows.num_rows:
        page.show_no_data(request)
        return
    text = st.text_input(
        "Find GPUs", key="find", placeholder="a part of a UUID, a node or a workload", width=300
    )
    if text:
        matches = [
            pc.match_substring(pc.fill_null(rows[name], ""), text.strip(), ignore_case=True)
            for name in ("device", "node", "workload")
        ]
        rows = rows.filter(reduce(pc.or_, matches))
        if not rows.num_rows:
            page.show_nothing("No GPU has that in its names.", "Type a shorter part of the name.")
            return
    # Columns, because there are 10,000 rows and more; a name is read when its row is opened.
    workload = rows.schema.get_field_index("workload")
    filled = pc.fill_null(rows["workload"], "")
    named = pc.if_else(pc.equal(filled, ""), NOT_ALLOCATED, filled)
    offered = rows.slice(0, page.MOST_OFFERED).select(["node", "device"]).to_pylist()
    page.show_table(
        rows.set_column(workload, "workload", named),
        DEVICES,
        table_name="GPUs, trouble first",
        open_row=lambda row: links.open_timeline(
            cluster=rows["cluster"][row].as_py(), device=rows["device"][row].as_py()
        ),
        row_names=[f"{row['node']}: {row['device']}" for row in offered],
    )
    silent = pc.sum(pc.cast(rows["no_samples"], pa.int64())).as_py() or 0
    silent_text = f" {silent:,} GPUs have no sample then: theirs is unknown." if silent else ""
    page.note(
        f"Telemetry: the mean of the five minutes up to {at:%Y-%m-%d %H:%M} UTC, or of that hour "
        f"where they are not kept any more. Unknown: no sample has it.{silent_text} A click on a "
        "row opens the GPU's timeline. Unavailable ones come first, then those that are allocated "
        "and idle, then unknown ones; the others by node."
    )
    if rows.num_rows == fleet.MOST_DEVICES:
        page.note(f"The first {fleet.MOST_DEVICES:,}; filter by cluster or pool to see others.")


def show_holders(request: PageRequest) -> None:
    """List the owners of idle GPUs."""
    rows = data.query(fleet.read_holders, get_time(request), request.filters).to_pylist()
    if not rows:
        page.show_nothing("No allocated GPU is idle then.", "Free ones are above, in grey.")
        return
    page.show_table(
        rows,
        HOLDERS,
        table_name="Workloads with idle GPUs",
        open_row=lambda row: links.open_timeline(
            cluster=rows[row]["cluster"], workload=rows[row]["workload"]
        ),
    )


def show_nodes(request: PageRequest) -> None:
    """List the nodes."""
    rows = data.query(fleet.read_nodes, get_time(request), request.filters).to_pylist()
    if not rows:
        return
    page.show_table(
        rows,
        NODES,
        table_name="Nodes by dollars that burn idle per hour",
        open_row=lambda row: links.open_timeline(
            cluster=rows[row]["cluster"], node=rows[row]["node"]
        ),
    )
    if len(rows) == fleet.MOST_ROWS:
        page.note(f"The {fleet.MOST_ROWS} first; filter by cluster or pool to see others.")


_CELL_FIELDS = (
    ("Productive", "productive"),
    ("Allocated, idle", "idle"),
    ("Free", "free"),
    ("Unknown", "unknown"),
)


def _build_metric(label: str, rate: fleet.StateRate | None, priced: bool) -> tuple[str, str, str]:
    usd = rate.usd_h if rate else (page.convert_exact(0) if priced else None)
    return label, f"{rate.gpus if rate else 0:,.1f}", f"{format_money(usd)} per hour"

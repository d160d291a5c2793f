"""The incidents of a window, and of one of them the GPU, node and network signals around it."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import streamlit as st

from dashboards import action_buttons, charts, data, links, maps, page
from dashboards.figures import analyzer_findings, health, incidents
from dashboards.figures.incidents import IncidentDetail
from dashboards.page import PageRequest, escape, format_hours, format_money
from dashboards.text import count, format_lost, format_missing

CHOICE = "incident"
"""The parameter of the URL with the id of the chosen incident."""
MOST_LINKS = 12
HOLD, UNKNOWN = "hold", "unknown"
"""Kinds of findings of nodes whose GPUs show errors."""
INCIDENTS = page.read_columns("health_incidents/incidents")
SIGNS = page.read_columns("health_incidents/signs")
GPU_TRACKS = (
    ("activity, %", {"activity_pct": "mean of the job's GPUs"}, "named_activity_pct", ".3~g"),
    ("power, W", {"power_w": "mean of the job's GPUs"}, "named_power_w", "~s"),
    ("temp., °C", {"temp_c": "hottest of the job's GPUs"}, "named_temp_c", ".3~g"),
    ("SM clock, MHz", {"clock_mhz": "mean of the job's GPUs"}, "named_clock_mhz", "~s"),
)
"""Title, line of all, column of those that the evidence names, format."""
NODE_TRACK = ("GPUs seen", {"gpus": "GPUs with samples"}, ".3~g")
NETWORK_TRACKS = (
    ("links, GB/s", {"nvlink_gb_s": "NVLink", "pcie_gb_s": "PCIe"}, ".3~g"),
    (
        "network, MB/s",
        {"received_mb_s": "received by its pods", "sent_mb_s": "sent by its pods"},
        ".3~g",
    ),
)
ERRORS = {
    "nvlink_crc": "NVLink CRC",
    "nvlink_replay": "NVLink replay",
    "pcie_replay": "PCIe replay",
    "ecc_dbe": "ECC, double bit",
}
COLOURS = (charts.BLUE, charts.RED, charts.AMBER, charts.SLATE)


def show(request: PageRequest) -> None:
    """List the incidents, and show the chosen one, whose id is in the URL."""
    stored = data.query(health.read_incidents, request.window, request.filters).to_pylist()
    if not stored:
        page.show_nothing(
            "No incident is stored in this window.",
            "`fallow up` stores those of the last three hours with each analysis; "
            "`fallow incidents --window 7d` reads any window.",
        )
        return
    listed = _fold_unknown(stored)
    row = action_buttons.choose(
        [_build_cells(row) for row in listed],
        INCIDENTS,
        key=CHOICE,
        label="Incident",
        table_name="Incidents: cause, evidence, one step",
        name_of=lambda row: f"{row['start']:%Y-%m-%d %H:%M} {row['cause']}, {row['name']}",
        on_phone=("usd", "name", "cause", "step"),
    )
    if row is None:
        page.note(
            "Click a row to see the signals of its GPUs, nodes and network around it."
            + _explain_holds(request, stored)
        )
        return
    show_detail(incidents.decode_incident(row))


def _fold_unknown(stored: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the incidents whose cause is known; the others follow where somebody wants them.

    They are listed too where no cause is known, and where the address names one of them.
    """
    named, unknown = (
        [row for row in stored if (row["cause"] == UNKNOWN) is is_unknown]
        for is_unknown in (False, True)
    )
    if not named or not unknown:
        return [*stored]
    wanted = st.toggle(
        f"With {count(len(unknown), 'incident')} of unknown cause",
        value=st.query_params.get(CHOICE) in {str(row["id"]) for row in unknown},
        key="unknown-causes",
    )
    return [*named, *(unknown if wanted else ())]


def _explain_holds(request: PageRequest, stored: Iterable[Mapping[str, Any]]) -> str:
    """Return why an incident holds on a node that a finding calls sick; empty = none does."""
    findings = data.query(
        analyzer_findings.list_findings, request.window, request.filters, "reliability"
    )
    sick = {(f.cluster, f.workload) for f in findings if f.kind in health.SICK}
    details = [incidents.decode_incident(row) for row in stored if row["step"] == HOLD]
    nodes = sorted({n for d in details for n in d.nodes if (d.cluster, n) in sick})
    if not nodes:
        return ""
    return (
        f" {escape(', '.join(nodes))}: a finding above adds up all signs of a node in the window; "
        "an incident has those of one failure, and holds where they do not name its cause."
    )


def _build_cells(row: Mapping[str, Any]) -> dict[str, Any]:
    detail = incidents.decode_incident(row)
    more = f" +{len(detail.workloads) - 1}" if len(detail.workloads) > 1 else ""
    return {
        **row,
        "name": f"{detail.workloads[0]}{more}" if detail.workloads else "",
        # The cells of the table; the detail reads the rows as they are stored.
        "nodes_text": ", ".join(detail.nodes),
        "timeline": links.build_timeline_link(
            cluster=detail.cluster,
            workload=detail.workloads[0] if detail.workloads else None,
            node=None if detail.workloads or not detail.nodes else detail.nodes[0],
        ),
    }


def show_detail(incident: IncidentDetail) -> None:
    """Show what an incident is, its signs, and the signals around it."""
    page.show_heading(f"{escape(incident.cause)}, {incident.start:%Y-%m-%d %H:%M} UTC")
    lost, recovery = incident.lost_gpu_hours, incident.recovery_gpu_hours
    page.show_metrics(
        ("One step", escape(incident.step), f"{count(len(incident.signs), 'sign')}"),
        (
            "Cost",
            format_missing() if incident.usd is None else format_money(incident.usd),
            "lost work and recovery",
        ),
        (
            "Work lost",
            format_lost(lost, incident.most_lost_gpu_hours),
            "of its workloads' GPUs" if lost is not None else "no progress or checkpoint was seen",
        ),
        (
            "Recovery",
            format_missing() if recovery is None else format_hours(recovery),
            "until work again" if recovery is not None else "no work again was seen",
        ),
    )
    st.markdown(f"{escape(incident.why, 600)}. {_format_links(incident)}")
    _draw_signals(incident)
    page.show_table(
        [
            {name: getattr(sign, name) for name in SIGNS}
            for sign in sorted(incident.signs, key=lambda sign: sign.at)
        ],
        SIGNS,
        table_name="Signs of the incident, the oldest first",
        missing="",
    )


def _format_links(incident: IncidentDetail) -> str:
    """Return links to the timelines of its workloads, nodes and GPUs."""
    subjects = [
        *(("workload", name) for name in incident.workloads),
        *(("node", name) for name in incident.nodes),
        *(("device", name) for name in incident.devices),
    ]
    parts = [
        f"[{escape(name, 60)}]"
        f"({links.build_timeline_link(cluster=incident.cluster, **{key: name})})"
        for key, name in subjects[:MOST_LINKS]
    ]
    more = f" and {len(subjects) - MOST_LINKS:,} more" if len(subjects) > MOST_LINKS else ""
    return f"Timelines: {', '.join(parts)}{more}." if parts else ""


def _draw_signals(incident: IncidentDetail) -> None:
    span = (incident.window.start, incident.window.end)
    signs = [
        {"at": sign.at, "kind": f"sign: {sign.source}", "detail": sign.text}
        for sign in incident.signs
    ]
    happened = data.query(incidents.read_happened, incident).to_pylist()
    page.chart(
        maps.draw_marks([*signs, *happened], span, height=220),
        "Signs of the incident and events of its nodes and pods, as ticks over time",
    )
    rows = data.query(incidents.read_signals, incident).to_pylist()
    named = len(incident.devices)
    for title, lines, key, form in GPU_TRACKS:
        several = named and any(row[key] is not None for row in rows)
        pair = {**lines, key: f"{count(named, 'GPU')} of the evidence"} if several else lines
        _draw_track(incident, rows, span, (title, pair, form))
    for track in (NODE_TRACK, *NETWORK_TRACKS):
        _draw_track(incident, rows, span, track)
    grown = {key: name for key, name in ERRORS.items() if any(row[key] for row in rows)}
    _draw_track(incident, rows, span, ("new errors", grown, ".3~g"))
    none = [ERRORS[key] for key in ERRORS if key not in grown and not _is_unknown(rows, [key])]
    tracks = (*GPU_TRACKS, NODE_TRACK, *NETWORK_TRACKS)
    absent = [
        *(title for title, lines, *_ in tracks if _is_unknown(rows, lines)),
        *(f"errors of {name}" for key, name in ERRORS.items() if _is_unknown(rows, [key])),
    ]
    page.note(
        "Shaded: from the first sign to the last. A gap: there is no sample in these five minutes."
        + (f" No new error: {', '.join(none)}." if none else "")
        + (f" Unknown, because nothing of it was sampled: {'; '.join(absent)}." if absent else "")
    )


def _draw_track(
    incident: IncidentDetail,
    rows: list[dict[str, Any]],
    span: tuple[datetime, datetime],
    track: tuple[str, dict[str, str], str],
) -> None:
    title, lines, form = track
    sampled = {key: name for key, name in lines.items() if not _is_unknown(rows, [key])}
    if not sampled:
        return
    drawing = maps.track(
        rows, sampled, span, title=title, form=form, colours=COLOURS[: len(sampled)]
    )
    stretch = (incident.start, max(incident.end, incident.start + incidents.FIVE_MINUTES))
    page.chart(
        maps.mark_stretch(drawing, stretch, span, incident.cause),
        f"{title} around the incident, which is shaded",
    )


def _is_unknown(rows: list[dict[str, Any]], keys: Iterable[str]) -> bool:
    return all(row[key] is None for row in rows for key in keys)

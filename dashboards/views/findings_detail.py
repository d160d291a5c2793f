"""The findings of one workload: evidence as a chart, what to do, what it saves, and details."""

from datetime import UTC
from typing import Any

import msgspec
import streamlit as st

from dashboards import action_buttons, charts, data, filters, maps, page
from dashboards.detail_words import describe_kind
from dashboards.figures import anomalies, inbox, timeline
from dashboards.figures.inbox import FindingChoice, FindingDetail
from dashboards.figures.timeline import TimelineSubject
from dashboards.page import PageRequest, escape, format_hours, format_money

LINKED = "finding-of-link"
"""The finding that a link named, in the state of the session."""
LENGTHS = ("1d", "7d", "30d")
MOST = 12
"""Findings of one workload that are listed; the table of findings counts all."""
MOST_DETAILS = 40
DECISIONS = {"allow": "allows", "hold": "holds", "deny": "refuses"}


def show(request: PageRequest, choice: FindingChoice, workload: dict[str, Any]) -> None:
    """Draw the worst finding of a workload whole, the further ones folded."""
    rows = data.query(
        inbox.list_findings_of,
        request.window,
        request.filters,
        choice,
        (workload["cluster"], workload["workload"]),
    ).to_pylist()
    if not rows:
        page.show_nothing("That finding does not exist any more.", "Choose another one.")
        return
    worst, *further = rows[:MOST]
    page.show_heading(escape(workload["workload"], 200))
    _show_finding(request, worst)
    if further:
        st.markdown("**Further findings of this workload**")
        options = [row["id"] for row in further]
        by_id = {row["id"]: row for row in further}
        linked = st.session_state.get(LINKED)
        chosen = st.selectbox(
            "Further finding",
            options,
            index=options.index(linked) if linked in by_id else None,
            placeholder="choose one",
            format_func=lambda finding: _name(by_id[finding]),
            key=f"further-{worst['id']}",
        )
        if chosen:
            _show_finding(request, by_id[chosen])
    if len(rows) > MOST:
        page.note(f"{len(rows) - MOST} more findings: choose their kind above.")


def _name(row: dict[str, Any]) -> str:
    saved = "no price" if row["usd"] is None else f"${row['usd']:,.0f}"
    return f"{describe_kind(row['kind'])}: {row['verb']}, saves {saved} ({row['id']})"


def _show_finding(request: PageRequest, row: dict[str, Any]) -> None:
    detail = data.query(inbox.read_finding, row["id"])
    if detail is None:
        page.show_nothing("That finding does not exist any more.", "Choose another one.")
        return
    kind = describe_kind(detail.kind)
    st.markdown(
        f"**{escape(kind[:1].upper() + kind[1:])}**, {escape(detail.evidence)}: "
        f"{escape(detail.why, 600)}"
    )
    where = (
        f"cluster {escape(detail.cluster, 60)} · " if filters.has_several_clusters(request) else ""
    )
    page.note(
        f"{where}{detail.start:%Y-%m-%d %H:%M} to {detail.end:%Y-%m-%d %H:%M} UTC · "
        f"{format_hours(detail.gpu_hours)}, {format_money(detail.usd)} wasted · would save "
        f"{format_money(row['usd'])} in this window{_describe_disruption(row)}. "
        f"{_describe_decision(row)}"
    )
    _show_evidence(request, detail)
    _show_advice(detail)
    left, middle, _ = st.columns([1, 1, 3], vertical_alignment="bottom")
    with left:
        length = st.selectbox("For", LENGTHS, index=1, key=f"snooze-for-{row['id']}") or LENGTHS[1]
    with middle:
        action_buttons.show_button(
            "Snooze",
            "snooze",
            request,
            key=f"snooze-{row['id']}",
            body={"finding": row["id"], "for": length},
        )
    with st.expander("What was measured"):
        listed = detail.details[:MOST_DETAILS]
        lines = [f"- {escape(text, 500)}" for text in listed] or ["- no details"]
        if len(detail.details) > MOST_DETAILS:
            lines.append(f"- and {len(detail.details) - MOST_DETAILS} more")
        st.markdown("\n".join(lines))
        page.note(
            f"Found {detail.found_at:%Y-%m-%d %H:%M} UTC by the analyzer "
            f"{escape(detail.analyzer)}. `fallow explain {row['id']}` shows the rows behind it."
        )


def _describe_disruption(row: dict[str, Any]) -> str:
    times = row["disruption"] - 1
    return f" · its owner took an action back {times:,} times" if times else ""


def _describe_decision(row: dict[str, Any]) -> str:
    if not row["policy"]:
        return "No policy covers it."
    until = f" until {row['next_at']:%Y-%m-%d %H:%M} UTC" if row["next_at"] else ""
    why = f": {escape(row['why'], 300)}" if row["why"] else ""
    decision = DECISIONS.get(row["ruling"] or "", "says")
    return f"Policy {escape(row['policy'])} {decision} {escape(row['step'] or 'it')}{until}{why}."


def _show_advice(detail: FindingDetail) -> None:
    """Say what to do and what it saves, the best first."""
    lines = []
    for number, advice in enumerate(detail.advice, start=1):
        usd, gpu_hours = advice["usd_per_day"], advice["gpu_hours_per_day"]
        saves = [format_money(page.convert_exact(usd))] if usd is not None else []
        saves += [format_hours(gpu_hours)] if gpu_hours else []
        bound = "frees at most" if advice["is_bound"] else "saves"
        text = (
            f"{number}. **{escape(advice['verb'] or 'unknown', 120)}**: "
            f"{escape(advice['why'], 600)}"
        )
        rate = f"{', '.join(saves)} in a whole day at its rate" if saves else "unknown: no price"
        text += f" — {bound} {rate}."
        if advice["caution"]:
            text += f" Caution: {escape(advice['caution'], 500)}."
        if advice["undo"]:
            text += f" Undo: {escape(advice['undo'], 300)}."
        lines.append(text)
    st.markdown("\n".join(["**What to do**", "", *(lines or ["Nothing is advised."])]))


def _show_evidence(request: PageRequest, detail: FindingDetail) -> None:
    """Draw activity and power over the window, with the time of the finding marked."""
    if detail.analyzer == "anomalies":
        _show_rise(request, detail)
        return
    subject = _build_subject(detail)
    if subject is None:
        page.note(
            f"No chart: it is about a {escape(detail.workload_kind)}, which has no activity of its "
            "own."
        )
        return
    of_cluster = msgspec.structs.replace(request.filters, cluster=detail.cluster)
    rows = data.query(timeline.read_measures, request.window, of_cluster, subject).to_pylist()
    if not any(row["activity_pct"] is not None or row["power_w"] is not None for row in rows):
        page.note("Activity and power are unknown: no sample of this window is of its GPUs.")
        return
    span = (request.window.start.astimezone(UTC), request.window.end.astimezone(UTC))
    stretch = (detail.start.replace(tzinfo=UTC), detail.end.replace(tzinfo=UTC))
    several = max(row["devices"] or 0 for row in rows) > 1
    lines = {"activity_pct": "mean of its GPUs", "least_pct": "the least active GPU"}
    drawings = (
        ("activity_pct", "activity, %", lines if several else {"activity_pct": "activity"}),
        ("power_w", "power, W", {"power_w": "power"}),
    )
    for key, title, names in drawings:
        if all(row[key] is None for row in rows):
            page.note(f"{title.partition(',')[0].capitalize()} is unknown: it is not exported.")
            continue
        lines_chart = maps.track(rows, names, span, title=title, height=90)
        marked = maps.mark_stretch(lines_chart, stretch, span, describe_kind(detail.kind))
        page.chart(marked, f"{title} over the window; the time of the finding is shaded")
    page.note("Shaded: the time of the finding. A gap: there is no sample.")


def _show_rise(request: PageRequest, detail: FindingDetail) -> None:
    """Draw the dollars of an anomaly's team or namespace beside the usual ones."""
    owner_key = {"Team": "team", "Namespace": "namespace"}.get(detail.workload_kind)
    if owner_key is None:
        return
    of_owner = msgspec.structs.replace(
        request.filters, **{"cluster": detail.cluster, owner_key: detail.workload}
    )
    rows = data.query(anomalies.read_usual, request.window, of_owner)
    if rows.num_rows:
        recent = rows.slice(max(0, rows.num_rows - charts.MOST_POINTS // 3))
        page.chart(charts.draw_usual_lines(recent, 180), "Dollars per hour beside the usual ones")


def _build_subject(detail: FindingDetail) -> TimelineSubject | None:
    if detail.workload_kind == "Node":
        return TimelineSubject(node=detail.workload)
    if not detail.namespace:
        return None
    return TimelineSubject(workload=f"{detail.namespace}/{detail.workload_kind}/{detail.workload}")

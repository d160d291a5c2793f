"""Before and after an action: the signals, states and dollars of its subject, and what it saved."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import streamlit as st

from dashboards import data, links, maps, page
from dashboards.figures import action_effect, timeline
from dashboards.figures.action_effect import ActionEffect, ActionRow
from dashboards.figures.query import Filters
from dashboards.figures.timeline import TimelineTotals
from dashboards.page import PageRequest, escape, format_hours, format_money
from dashboards.text import format_three_digits
from fallow.texts import spell_out
from fallow.window import Window, format_duration

AROUND = "around"
"""The parameter of the URL with the id of an action."""
LONGEST = 90
"""Characters of a choice in the box."""
TRACKS = (
    ("activity_pct", "activity, %", {"activity_pct": "mean"}),
    ("power_w", "power, W", {"power_w": "power"}),
)


def choose(request: PageRequest, workload: str | None) -> ActionRow | None:
    """Let people choose an action of the journal; its id is in the URL.

    `workload`: only its actions, if it has any.
    """
    rows = _list_actions(request)
    rows = [row for row in rows if row.subject == workload] or rows
    row_by_id = {row.id: row for row in rows}
    linked = st.query_params.get(AROUND)
    if AROUND not in st.session_state and linked in row_by_id:
        st.session_state[AROUND] = linked
    if st.session_state.get(AROUND) not in row_by_id:
        st.session_state[AROUND] = None

    def changed() -> None:
        if st.session_state[AROUND] is None:
            st.query_params.pop(AROUND, None)
        else:
            st.query_params[AROUND] = st.session_state[AROUND]

    choice = st.selectbox(
        "Before and after an action",
        [*row_by_id],
        key=AROUND,
        index=None,
        placeholder="no action" if not rows else "choose an action",
        format_func=lambda name: _name(row_by_id[name]) if name in row_by_id else str(name),
        on_change=changed,
        disabled=not rows,
    )
    return row_by_id.get(choice) if choice else None


def show(request: PageRequest, row: ActionRow) -> None:
    """Draw the time before and after an action."""

    def compare(request: PageRequest) -> None:
        _compare(request, row)

    page.show_card(compare, request, height=600)


def _list_actions(request: PageRequest) -> Sequence[ActionRow]:
    whole = Window(request.extent.samples.start, request.extent.samples.end)
    filters = Filters(cluster=request.filters.cluster)
    rows: Sequence[ActionRow] = data.query(action_effect.list_actions, whole, filters)
    return rows


def _compare(request: PageRequest, row: ActionRow) -> None:
    page.show_heading(f"Before and after: {escape(row.verb)} {escape(row.subject)}")
    accounted = request.extent.accounted
    if accounted is None or accounted <= request.extent.samples.start:
        page.show_no_data(request)
        return
    covered = Window(request.extent.samples.start, accounted)
    filters = Filters(view=request.filters.view)
    effect: ActionEffect = data.query(action_effect.measure, covered, filters, row)
    page.show_metrics(
        _format_side("Cost per day before", effect.before, effect.totals_before),
        _format_side("Cost per day after", effect.after, effect.totals_after),
        (
            "Verified saving",
            "unknown" if row.saved_usd is None else format_money(row.saved_usd),
            "not measured yet"
            if row.saved_gpu_hours is None
            else f"{format_hours(row.saved_gpu_hours)}, measured",
        ),
        ("Result", escape(row.result or "unknown"), f"{row.at:%Y-%m-%d %H:%M} UTC"),
    )
    windows = [window for window in (effect.before, effect.after) if window]
    if not windows:
        page.show_nothing(
            "The ledger has no hour around this action.", "It is written every five minutes."
        )
        return
    _draw(row, filters, Window(windows[0].start, windows[-1].end))
    origin = f"Done by the policy {escape(row.policy)}" if row.policy else "Done by hand"
    origin += f": {escape(row.why, 300)}." if row.why else "."
    undone = ""
    if row.restored_by and row.restored_at:
        undone = f" Undone by {escape(row.restored_by)}, {row.restored_at:%Y-%m-%d %H:%M} UTC."
    page.note(
        f"{origin}{undone} The hour of the action is in neither sum. The saving is measured by who "
        "held the devices afterwards and can differ from the change of the subject's own cost."
    )
    left, right, _ = st.columns([1, 1, 3])
    with left:
        if row.finding and st.button("Open its finding", key="its-finding"):
            links.open_page("findings", finding=row.finding)
            st.rerun()
    with right:
        if st.button("Open the action", key="its-action"):
            links.open_page("actions", tab="Done", action=row.id)
            st.rerun()


def _draw(row: ActionRow, filters: Filters, window: Window) -> None:
    """Draw dollars, states and signals with the action's time marked."""
    span = (window.start, window.end)
    timestamps: list[tuple[datetime, str]] = [(row.time, spell_out(row.verb))]
    if row.restored_at:
        timestamps.append((row.restored_at.replace(tzinfo=row.time.tzinfo), "undone"))
    only = msgspec.structs.replace(filters, cluster=row.cluster)
    arguments = (window, only, row.timeline_subject)
    states = data.query(timeline.read_states, *arguments).to_pylist()
    for value, title, form in (
        ("usd_h", "USD per hour", "$~s"),
        ("gpus", "GPUs", ",.3~g"),
    ):
        if any(state[value] is not None for state in states):
            drawing = maps.draw_state_track(states, span, value=value, title=title, form=form)
            page.chart(
                maps.mark_timestamps(drawing, timestamps, span),
                f"{title} by state, before and after the action",
            )
    measures: list[dict[str, Any]] = data.query(timeline.read_measures, *arguments).to_pylist()
    for key, title, lines in TRACKS:
        if any(step[key] is not None for step in measures):
            drawing = maps.track(measures, lines, span, title=title)
            page.chart(
                maps.mark_timestamps(drawing, timestamps, span, named=False),
                f"{title}, before and after the action",
            )


def _format_side(
    label: str, window: Window | None, totals: TimelineTotals | None
) -> tuple[str, str, str]:
    if window is None or totals is None:
        return label, "unknown", "the ledger has no hour of it"
    gpus = action_effect.read_mean_gpus(window, totals)
    about = f"mean {format_three_digits(gpus)} GPUs, {format_duration(window.seconds)}"
    return label, format_money(action_effect.read_per_day(window, totals)), about


def _name(row: ActionRow) -> str:
    return spell_out(f"{row.at:%Y-%m-%d %H:%M} {row.verb} {row.subject}")[:LONGEST]

"""Findings by dollars over disruption: why, what would remove them, and a word in the matter."""

from typing import Any

import streamlit as st

from dashboards import action_buttons, data, page, tabs
from dashboards.figures import inbox
from dashboards.page import PageRequest, hours, money, plain
from dashboards.views import findings_anomalies

TITLE, ICON = "Findings", ":material/inbox:"

FINDING_COLUMNS = {
    "workload": page.name("about", "large"),
    "usd": page.usd("would save, USD", "in the window; no GPU-hour is counted twice"),
    "disruption": page.number("disruption", "1, and 1 for each time that an owner took it back"),
    "verb": page.name("what to do"),
    "kind": page.name("found", "small"),
    "evidence": page.name("evidence", "small"),
    "gpu_hours": page.number("GPU-hours"),
    "saving": page.name("saves", "small"),
    "effort": page.name("effort", "small"),
    "team": page.name("team", "small"),
    "policy": page.name("policy", "small"),
    "snoozed_until": page.time_column("snoozed until"),
    "since": page.time_column("since"),
    "id": page.name("finding", "small"),
}
DETAILS = {"what": page.name("what"), "value": page.name("value", "large")}
ADVICE = {
    "verb": page.name("what to do"),
    "why": page.name("how", "large"),
    "usd_per_day": page.usd("saves, USD a day"),
    "caution": page.name("caution", "large"),
    "undo": page.name("how it is undone"),
}
LENGTHS = ("1d", "7d", "30d")


def show(request: PageRequest) -> None:
    """Draw the page."""
    action_buttons.show_result()
    tabs.show_tabs(TABS, request)


def show_inbox(request: PageRequest) -> None:
    """Draw the tab of findings."""
    page.card(findings, request, height=420)


def findings(request: PageRequest) -> None:
    """List the findings, and show the chosen one."""
    rows = data.query(inbox.list_inbox, request.window, request.filters).to_pylist()
    if not rows:
        page.show_no_findings(
            request,
            (),
            "Nothing was found to do here.",
            "`fallow analyze` or `fallow up` find waste and store it; clear a filter, or choose a "
            "longer window.",
        )
        return
    now = request.window.end.replace(tzinfo=None)
    rows_shown = _filter_rows(rows, now)
    if not rows_shown:
        page.show_nothing("No finding is left.", "Clear a choice above.")
        return
    usd_known = [row["usd"] for row in rows_shown if row["usd"] is not None]
    sure = [row for row in rows_shown if row["evidence"] == "confirmed"]
    idle_until = sum(1 for row in rows if row["snoozed_until"] and row["snoozed_until"] > now)
    page.metrics(
        ("Findings", f"{len(rows_shown):,}", f"{len(sure):,} confirmed by two signals"),
        ("Would save", money(sum(usd_known) if usd_known else None), "in this window"),
        ("GPU-hours", hours(sum(row["gpu_hours"] for row in rows_shown)), "no hour twice"),
        ("Snoozed", f"{idle_until:,}", "left alone for a while"),
    )
    choice = action_buttons.choose(
        rows_shown,
        FINDING_COLUMNS,
        key="finding",
        label="Finding",
        table_name="Findings by dollars over disruption",
        name_of=lambda row: f"{row['workload']}: {row['kind']} ({row['id']})",
        height=380,
    )
    if choice is None:
        page.note("Ranked by dollars over disruption. Choose one to see why, and what to do.")
        return
    _show_finding(request, choice)


def _filter_rows(rows: list[dict[str, Any]], now: Any) -> list[dict[str, Any]]:
    """Return the rows that match the choices."""
    columns = st.columns(4)
    for column, key in zip(columns, ("analyzer", "kind", "evidence"), strict=False):
        names = sorted({row[key] for row in rows if row[key]})
        with column:
            kind_wanted = st.selectbox(
                key.capitalize(), names, index=None, key=key, placeholder="all", bind="query-params"
            )
        rows = [row for row in rows if kind_wanted is None or row[key] == kind_wanted]
    with columns[3]:
        rest = st.toggle("With what is snoozed", key="snoozed", bind="query-params")
    return [r for r in rows if rest or not r["snoozed_until"] or r["snoozed_until"] <= now]


def _show_finding(request: PageRequest, row: dict[str, Any]) -> None:
    """Show all details of a finding, and let people snooze it."""
    detail = data.query(inbox.read_finding, row["id"])
    if detail is None:
        page.show_nothing("That finding does not exist any more.", "Choose another one.")
        return
    page.heading("Why")
    st.markdown(
        f"**{plain(row['workload'])}**, {plain(detail.kind)}, {plain(detail.evidence)}: "
        f"{plain(detail.why, 600)}"
    )
    page.note(
        f"{detail.start:%Y-%m-%d %H:%M} to {detail.end:%Y-%m-%d %H:%M} UTC · "
        f"{hours(detail.gpu_hours)}, {money(detail.usd)} · found "
        f"{detail.found_at:%Y-%m-%d %H:%M} UTC by "
        f"{plain(detail.analyzer)} · `fallow explain {row['id']}` shows the rows behind it. "
        + _says(row)
    )
    left, middle, _ = st.columns([1, 1, 3], vertical_alignment="bottom")
    with left:
        length = st.selectbox("For", LENGTHS, index=1, key="snooze-for") or LENGTHS[1]
    with middle:
        action_buttons.button(
            "Snooze", "snooze", request, key="snooze-it", body={"finding": row["id"], "for": length}
        )
    if detail.advice:
        page.table(detail.advice, ADVICE, table_name="What would remove the waste")
    if detail.details:
        page.table(detail.details, DETAILS, table_name="What was measured")


def _says(row: dict[str, Any]) -> str:
    if not row["policy"]:
        return "No policy is about it."
    until = f" until {row['next_at']:%Y-%m-%d %H:%M} UTC" if row["next_at"] else ""
    why = f": {plain(row['why'], 300)}" if row["why"] else ""
    ruling_text = {"allow": "allows", "hold": "holds", "deny": "refuses"}.get(
        row["ruling"] or "", "says"
    )
    return f"Policy {plain(row['policy'])} {ruling_text} {plain(row['step'] or 'it')}{until}{why}."


TABS: tabs.Tabs = {"Findings": show_inbox, "Anomalies": findings_anomalies.show}

"""Findings by dollars over disruption, a row per workload: why, what to do, and what it saves."""

from typing import Any

import streamlit as st

from dashboards import action_buttons, data, filters, links, page
from dashboards.detail_words import describe_kind
from dashboards.figures import analysis_runs, inbox
from dashboards.figures.inbox import FindingChoice
from dashboards.page import PageRequest, escape, format_hours, format_money
from dashboards.text import count
from dashboards.views import findings_anomalies, findings_detail
from fallow.finding_kinds import read_declarations

TITLE, ICON = "Findings", ":material/inbox:"
ANOMALIES = "anomalies"
BLOCKS = 3
"""So many rows are shown without a scroll bar of their own."""
OLD_TAB = "Anomalies"
"""The tab of earlier addresses that is now a kind."""

WORKLOAD_COLUMNS = page.read_columns("findings/workload_columns")


def show(request: PageRequest) -> None:
    """Draw the page."""
    action_buttons.show_result()
    if st.query_params.get("tab") == OLD_TAB and "analyzer" not in st.session_state:
        st.session_state["analyzer"] = ANOMALIES
    page.show_card(show_findings, request, height=420)


def show_findings(request: PageRequest) -> None:
    """List the workloads with findings, and show the findings of the chosen one."""
    kinds = data.query(inbox.list_kinds, request.window, request.filters).to_pylist()
    if not kinds:
        page.show_no_findings(
            request,
            (),
            "Nothing was found to do here.",
            "`fallow analyze` or `fallow up` find waste and store it; clear a filter, or choose a "
            "longer window.",
        )
        return
    figures = st.container()  # they come before the choices
    choice = _choose(kinds)
    arguments = (request.window, request.filters, choice)
    rows = data.query(inbox.list_workloads, *arguments).to_pylist()
    if choice.analyzer == ANOMALIES:
        findings_anomalies.show_usual(request)
    if not rows and choice.analyzer == ANOMALIES:
        page.show_no_findings(
            request,
            (ANOMALIES,),
            "No rise was found in this window.",
            "The analyzer needs three weeks before an hour to call it unusual; planned changes "
            "belong into `anomalies.known_changes`.",
        )
        return
    if not rows:
        page.show_nothing(
            "No finding is left.", "Clear a choice above, or include what is snoozed."
        )
        return
    totals = data.query(inbox.read_totals, *arguments)
    gap = data.query(analysis_runs.measure_gap, request.window, request.filters)
    with figures:
        page.show_metrics(
            (
                "Findings",
                f"{totals.findings:,}",
                f"{totals.saving_findings:,} save; {count(totals.workloads, 'workload')}",
            ),
            (
                "Could be saved",
                format_money(totals.usd),
                f"at most {format_money(totals.at_most_usd)} more in hours in use"
                if totals.at_most_usd
                else "in this window",
            ),
            ("GPU-hours", format_hours(totals.gpu_hours), "no hour is counted twice"),
            ("Snoozed", f"{sum(row['snoozed'] for row in kinds):,}", "hidden until a date"),
        )
        if gap.is_material:
            page.note(f"At least: {gap.summary}.")
    _show_blocks(request)
    _open_linked(request, rows)
    row = action_buttons.choose(
        [_build_cells(row) for row in rows],
        filters.add_cluster(WORKLOAD_COLUMNS, request),
        key="finding",
        label="Workload",
        table_name="Workloads by what their findings save",
        name_of=lambda row: f"{row['workload']}: {row['kind']} ({row['id']})",
        on_phone=("usd_all", "workload", "kind", "verb"),
    )
    if len(rows) == inbox.MOST:
        page.note(f"The first {inbox.MOST:,} workloads. Choose a kind, or set a filter.")
    if row is None:
        page.note(
            "Ranked by dollars over disruption: an action that an owner took back counts against "
            "the next. +2: the workload has two findings more. Unknown dollars: the advice saves "
            "no hour of its own, or its hours have no price. Click a row to see its evidence, and "
            "what to do."
        )
        return
    findings_detail.show(request, choice, row)


def _show_blocks(request: PageRequest) -> None:
    """Name the blocks of actions that save most, as Overview does, whatever is chosen here."""
    listed = data.query(inbox.list_inbox, request.window, request.filters).to_pylist()
    blocks = [
        f"{format_money(block['usd'])} {escape(block['verb'] or block['kind'])}: "
        f"{escape(block['workload'])}"
        for block in inbox.choose_steps(listed, BLOCKS)
    ]
    if blocks:
        page.note(f"What saves most: {'; '.join(blocks)}.")


def _choose(kinds: list[dict[str, Any]]) -> FindingChoice:
    """Let people choose which findings they see; the choices are in the URL."""
    columns = st.columns([2, 2, 2, 2], vertical_alignment="bottom")
    with columns[0]:
        analyzer = st.selectbox(
            "Kind",
            _list_analyzers(kinds),
            index=None,
            key="analyzer",
            placeholder="all",
            format_func=_get_title,
            bind="query-params",
        )
    rest = [row for row in kinds if analyzer in (None, row["analyzer"])]
    with columns[1]:
        kind = st.selectbox(
            "Finding",
            sorted({row["kind"] for row in rest}),
            index=None,
            key="kind",
            placeholder="all",
            format_func=describe_kind,
            bind="query-params",
        )
    with columns[2]:
        evidence = st.selectbox(
            "Evidence",
            sorted({row["evidence"] for row in rest}),
            index=None,
            key="evidence",
            placeholder="all",
            bind="query-params",
        )
    with columns[3]:
        snoozed = st.toggle("With snoozed findings", key="snoozed", bind="query-params")
    return FindingChoice(analyzer, kind, evidence, snoozed)


def _list_analyzers(kinds: list[dict[str, Any]]) -> list[str]:
    names = {row["analyzer"] for row in kinds} | {ANOMALIES}
    declared = [name for name in read_declarations() if name in names]
    return [*declared, *sorted(names - {*declared})]


def _get_title(analyzer: str) -> str:
    declaration = read_declarations().get(analyzer)
    return declaration.title if declaration else analyzer


def _open_linked(request: PageRequest, rows: list[dict[str, Any]]) -> None:
    """Open the workload of the finding in the URL, also where it is not its worst one."""
    linked = st.query_params.get("finding")
    if linked is None or "finding" in st.session_state or linked in {row["id"] for row in rows}:
        return
    workload = data.query(inbox.find_workload, request.window, request.filters, linked)
    worst = next((r["id"] for r in rows if (r["cluster"], r["workload"]) == workload), None)
    if worst:
        st.session_state["finding"] = worst
        st.session_state[findings_detail.LINKED] = linked


def _build_cells(row: dict[str, Any]) -> dict[str, Any]:
    kind = describe_kind(row["kind"])
    more = row["findings"] - 1
    return {
        **row,
        "kind": f"{kind} +{more}" if more else kind,
        "verb": f"done: {row['verb']}" if row["is_handled"] else row["verb"],
        "timeline": links.build_timeline_link(cluster=row["cluster"], workload=row["workload"])
        if row["workload"].count("/") > 1
        else None,
    }

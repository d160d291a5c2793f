"""What policies decide now and why not, and what waits for approval."""

from typing import Any

import streamlit as st

from dashboards import action_buttons, data, links, page
from dashboards.figures import policy_actions, policy_status
from dashboards.page import PageRequest, escape, format_money
from dashboards.text import count

WAITING = page.read_columns("actions_plan/waiting")
PLAN = page.read_columns("actions_plan/plan")


def show_plan(request: PageRequest) -> None:
    """Draw the tab of the plan."""
    page.show_card(plan, request)


def show_approvals(request: PageRequest) -> None:
    """Draw the tab of approvals."""
    page.show_card(show_waiting, request)


def show_waiting(request: PageRequest) -> None:
    """List what waits for approval, with the button that approves."""
    requests = data.query(policy_actions.read_waiting, request.filters).to_pylist()
    linked = st.query_params.get("request")
    rows = [row for row in requests if row["planned"] or row["id"] == linked]
    expired = sum(not row["planned"] for row in requests)
    if expired:
        page.note(
            f"{count(expired, 'older request')} expired: the last plan has no such case any more. "
            "Owners see theirs on the page Mine."
        )
    if not rows:
        page.show_nothing(
            "Nothing waits for approval.",
            "Policies with `approvals` ask here before they act, once their notice is over.",
        )
        return
    choice = action_buttons.choose(
        rows,
        WAITING,
        key="request",
        label="Request",
        table_name="Actions that wait for approval",
        name_of=lambda row: f"{row['verb']} {row['subject']} ({row['id']})",
    )
    if choice is None:
        return
    if not choice["planned"]:
        page.note("Its case is not in the last plan any more: an approval has no effect now.")
    action_buttons.show_button(
        "Approve",
        "approve",
        request,
        key="approve-it",
        primary=True,
        body={"request": choice["id"]},
    )


def plan(request: PageRequest) -> None:
    """List the policies' current decisions, with every reason."""
    rows = data.query(policy_actions.plan, request.filters).to_pylist()
    if not rows and request.filters.named:
        page.show_no_cases(request, "The plan has no case")
        return
    if not rows:
        page.show_nothing(
            "There is no plan here.",
            "`fallow up` writes one with each analysis, by the policies in `actions.policies`; "
            "`fallow plan` shows it now.",
        )
        return
    _count_by_decision(rows)
    names = sorted({row["says"] for row in rows})
    decision = st.segmented_control(
        "The plan", names, key="says", bind="query-params", label_visibility="collapsed"
    )
    rows_shown = [_add_link(row) for row in rows if decision is None or row["says"] == decision]
    page.show_table(
        rows_shown,
        PLAN,
        table_name="What policies decide about every case",
        in_csv={"why"},
        on_phone=("usd_per_day", "subject", "says", "reason"),
    )
    dry = sorted({row["cluster"] for row in rows if not row["acts"]})
    at = min(row["at"] for row in rows)
    acts_now = "The service carries it out."
    if len(dry) == len({row["cluster"] for row in rows}):
        acts_now = "Nothing acts: a dry run."
    elif dry:
        acts_now = f"The services carry it out, but in {escape(', '.join(dry), 300)}: a dry run."
    page.note(
        f"As of {at:%Y-%m-%d %H:%M} UTC. {acts_now} `fallow why-not WORKLOAD --gates` shows "
        "every gate's answer."
    )
    for rule in data.query(policy_status.list_policies, request.filters).to_pylist():
        if rule["trusted_by"]:
            page.note(
                escape(f"Policy {rule['policy']} is {policy_status.explain_by_hand(rule)}.", 700)
            )


def _count_by_decision(rows: list[dict[str, Any]]) -> None:
    aborted = {row["cluster"]: row["aborted"] for row in rows if row["aborted"]}
    is_whole = len({row["cluster"] for row in rows}) == 1
    for cluster, why in sorted(aborted.items()):
        where = "" if is_whole else f" in cluster {escape(cluster, 60)}"
        st.warning(f"**Nothing of the plan is done{where}:** {escape(why, 300)}")
    page.show_metrics(
        *(
            (label, f"{len(rows_of):,}", f"{format_money(_sum(rows_of))} in a whole day")
            for label, says in _SAYS
            for rows_of in [[row for row in rows if row["says"] == says]]
        )
    )


def _sum(rows: list[dict[str, Any]]) -> Any:
    usd_known = [row["usd_per_day"] for row in rows if row["usd_per_day"] is not None]
    return sum(usd_known) if usd_known else (None if rows else page.convert_exact(0))


def _add_link(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, **links.build_finding_link(row["finding"])}


_SAYS = (
    ("Acts now", "does it"),
    ("Owners are notified", "notifies its owner"),
    ("Held", "holds"),
    ("Refused", "refuses"),
)

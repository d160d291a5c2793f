"""What policies do: the plan, approvals, what was done, undone and refused, and what it saved."""

import streamlit as st

from dashboards import action_buttons, data, page, tabs
from dashboards.figures import policy_actions
from dashboards.page import PageRequest, escape
from dashboards.text import count
from dashboards.views import actions_history, actions_plan, actions_policies, actions_savings

TITLE, ICON = "Actions", ":material/bolt:"
TABS: tabs.Tabs = {
    "Plan": actions_plan.show_plan,
    "Approvals": actions_plan.show_approvals,
    "Done": actions_history.show_done,
    "Undone": actions_history.show_undone,
    "Refusals": actions_history.show_refusals,
    "Policies": actions_policies.show,
    "Verified savings": actions_savings.show,
}


def show(request: PageRequest) -> None:
    """Draw the page."""
    action_buttons.show_result()
    page.show_card(show_frozen, request, height=0)
    page.show_card(show_approvals, request, height=0)
    tabs.show_tabs(TABS, request, {"request": "Approvals", "action": "Done"})


def show_approvals(request: PageRequest) -> None:
    """Show how many requests wait for somebody's approval, on every tab."""
    waiting = data.query(policy_actions.count_waiting, request.filters)
    if waiting:
        text = f"{count(waiting, 'action')} for approval: tab Approvals"
        st.badge(text, icon=":material/pending_actions:", color="orange")


def show_frozen(request: PageRequest) -> None:
    """Show where nothing acts, and why."""
    for row in data.query(policy_actions.read_frozen, request.filters).to_pylist()[:3]:
        st.warning(
            f"**Nothing acts on cluster {escape(row['cluster'])}:** frozen by "
            f"{escape(row['actor'])} at {row['at']:%Y-%m-%d %H:%M} UTC: {escape(row['why'], 200)}. "
            "`fallow thaw` lets it act again.",
            icon=":material/ac_unit:",
        )

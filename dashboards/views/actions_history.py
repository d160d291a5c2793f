"""What was done, undone and refused, and how to undo it."""

from typing import Any

import msgspec

from dashboards import action_buttons, data, links, page
from dashboards.figures import policy_actions
from dashboards.page import PageRequest, escape
from dashboards.views.timeline_action import AROUND

ACTION_COLUMNS = page.read_columns("actions_history/action_columns")
UNDONE = page.read_columns("actions_history/undone")
BY_GATE = page.read_columns("actions_history/by_gate")
HELD_BACK = page.read_columns("actions_history/held_back")
PLAN_REFUSED = page.read_columns("actions_history/plan_refused")
REFUSED = page.read_columns("actions_history/refused")


def show_done(request: PageRequest) -> None:
    """Draw the tab of actions."""
    page.show_card(show_actions_done, request)


def show_undone(request: PageRequest) -> None:
    """Draw the tab of undone actions."""
    page.show_card(show_actions_undone, request)


def show_refusals(request: PageRequest) -> None:
    """Draw the tab of refusals."""
    page.show_card(show_refusals_by_gate, request)
    page.show_card(show_held_back, request)
    page.show_card(list_refusals, request)
    page.show_card(show_late_refusals, request)


def show_actions_done(request: PageRequest) -> None:
    """List the actions, with the button that undoes one."""
    rows = data.query(policy_actions.read_actions_done, request.window, request.filters).to_pylist()
    if not rows:
        page.show_nothing(
            "Nothing was done in this window.",
            "With `actions.enabled` the service acts by its policies; `fallow apply` does a turn.",
        )
        return
    choice = action_buttons.choose(
        [_add_link(row) for row in rows],
        ACTION_COLUMNS,
        key="action",
        label="Action",
        table_name="Actions, the newest first",
        name_of=lambda row: f"{row['verb']} {row['subject']} ({row['id']})",
    )
    if choice is None:
        return
    now = request.extent.samples.end.replace(tzinfo=None)
    if not policy_actions.can_undo(
        choice["result"], choice["at"], now, request.settings.actions.watch
    ):
        page.note(f"It is {escape(choice['result'])}: it cannot be undone.")
        return
    if choice["lost"]:
        page.note(f"This is not restored: {escape(choice['lost'], 300)}.")
    action_buttons.show_button(
        "Undo", "undo", request, key="undo-it", owner=choice["owner"], body={"action": choice["id"]}
    )


def show_actions_undone(request: PageRequest) -> None:
    """List the actions that were undone, and by whom."""
    rows = data.query(policy_actions.read_actions_done, request.window, request.filters).to_pylist()
    undone = [row for row in rows if row["restored_by"]]
    if not undone:
        page.show_nothing(
            "No action of this window was undone.",
            "Owners undo an action on the page Mine, approvers in the tab Done.",
        )
        return
    undone = [_add_link(row) for row in undone]
    page.show_table(undone, UNDONE, table_name="Actions that were undone, the newest first")


def show_refusals_by_gate(request: PageRequest) -> None:
    """Count the cases that are not acted upon by gate, and say what would change it."""
    rows = data.query(policy_actions.count_refused_by_gate, request.filters)
    page.show_heading("Why not, by gate")
    if not rows:
        page.show_nothing(
            "No gate stops a case of the current plan.",
            "`fallow why-not WORKLOAD --gates` shows the answer of every gate for one workload.",
        )
        return
    page.show_table(rows, BY_GATE, table_name="Cases that are not acted upon, by gate")
    page.note(
        f"A case is one waste over time; a gate is one check before an action. "
        f"{sum(row['cases'] for row in rows):,} cases, each at its first gate; a held case goes on "
        "by itself. `fallow why-not WORKLOAD --gates` shows the answer of every gate."
    )


def show_held_back(request: PageRequest) -> None:
    """Show the dollars that each team's own words hold back: requests, budgets, annotations."""
    rows = data.query(policy_actions.read_held_back, request.filters)
    page.show_heading("Held back by its own team")
    if not rows:
        page.show_nothing(
            "No team's requests, budgets, standby roles or annotations hold an idle case.",
            "They would be listed here with their dollars.",
        )
        return
    table_name = "What teams hold back, by reason"
    page.show_table([msgspec.to_builtins(r) for r in rows], HELD_BACK, table_name=table_name)
    page.note("A case with two reasons counts at each; `allow.held_by` of a policy lifts by name.")


def list_refusals(request: PageRequest) -> None:
    """List the cases that the current plan refuses, and the reasons."""
    rows = data.query(policy_actions.plan, request.filters).to_pylist()
    refused_rows = [row for row in rows if row["says"] == "refuses"]
    page.show_heading("Refused by the plan")
    if not refused_rows:
        page.show_nothing(
            "The current plan refuses nothing.",
            "`fallow why-not WORKLOAD --gates` shows the answer of every gate for one workload.",
        )
        return
    page.show_table(refused_rows, PLAN_REFUSED, table_name="Cases that the plan refuses")


def show_late_refusals(request: PageRequest) -> None:
    """List what a gate refused just before the action."""
    rows = data.query(policy_actions.read_refused, request.window, request.filters)
    page.show_heading("Refused just before the action")
    if not rows.num_rows:
        page.show_nothing(
            "No gate refused a planned action in this window.",
            "Every gate is checked again just before an action.",
        )
        return
    page.show_table(rows, REFUSED, table_name="What gates refused although a plan allowed it")


def _add_link(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, AROUND: links.build_page_link("timeline", **{AROUND: row["id"]})}

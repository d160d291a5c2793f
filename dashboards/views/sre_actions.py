"""What policies decide now and why not, what waits for a yes, what was done, and the way back."""

from typing import Any

import streamlit as st

from dashboards import action_buttons, data, links, page
from dashboards.figures import policy_actions, policy_status
from dashboards.page import PageRequest, money, plain

TITLE, ICON, ORDER = "Actions", ":material/bolt:", 60

FINDING = "finding_link"
WAITING = {
    "subject": page.name("whom", "large"),
    "verb": page.name("what it would do"),
    "usd_per_day": page.usd("saves, USD a day"),
    "gpus": page.number("GPUs"),
    "owner": page.name("owner", "small"),
    "policy": page.name("policy", "small"),
    "requested_at": page.time_column("requested"),
    "approved_by": page.name("agreed already", "small"),
    "id": page.name("request", "small"),
}
ACTION_COLUMNS = {
    "at": page.time_column("when"),
    "subject": page.name("whom", "large"),
    "verb": page.name("what was done"),
    "result": page.name("result", "small"),
    "saved_usd": page.usd("saved so far, USD"),
    "freed_gpus": page.number("GPUs freed"),
    "why": page.name("why", "large"),
    "restored_by": page.name("taken back by", "small"),
    "policy": page.name("policy", "small"),
    "actor": page.name("by", "small"),
    "id": page.name("action", "small"),
}
PLAN = {
    "says": page.name("the plan"),
    "subject": page.name("whom", "large"),
    "verb": page.name("what to do"),
    "why": page.name("why not now", "large"),
    "next_at": page.time_column("goes on at"),
    "usd_per_day": page.usd("USD a day"),
    "gpus": page.number("GPUs"),
    "policy": page.name("policy", "small"),
    "owner": page.name("owner", "small"),
    FINDING: action_buttons.findings(),
}
REFUSED = {
    "at": page.time_column("when"),
    "subject": page.name("whom", "large"),
    "why": page.name("why", "large"),
    "policy": page.name("policy", "small"),
}


def show(request: PageRequest) -> None:
    """Draw the page."""
    action_buttons.show_result()
    page.card(frozen, request, height=0)
    page.card(waiting, request)
    page.card(actions_done, request)
    page.card(plan, request)
    page.card(refused, request, height=0)


def frozen(request: PageRequest) -> None:
    """Show where nothing acts, and why."""
    for row in data.query(policy_actions.frozen, request.filters).to_pylist()[:3]:
        st.warning(
            f"**Nothing acts on cluster {plain(row['cluster'])}:** frozen by "
            f"{plain(row['actor'])} at {row['at']:%Y-%m-%d %H:%M} UTC: {plain(row['why'], 200)}. "
            "`fallow thaw` lets it act again.",
            icon=":material/ac_unit:",
        )


def waiting(request: PageRequest) -> None:
    """List what waits for approval, with the button that approves."""
    page.heading("Waits for approval")
    rows = data.query(policy_actions.waiting, request.filters).to_pylist()
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
    action_buttons.button(
        "Approve",
        "approve",
        request,
        key="approve-it",
        primary=True,
        body={"request": choice["id"]},
    )


def actions_done(request: PageRequest) -> None:
    """List the actions, with the button that undoes one."""
    page.heading("Done")
    rows = data.query(policy_actions.actions_done, request.window, request.filters).to_pylist()
    if not rows:
        page.show_nothing(
            "Nothing was done in this window.",
            "With `actions.enabled` the service acts by its policies; `fallow apply` does a turn.",
        )
        return
    choice = action_buttons.choose(
        rows,
        ACTION_COLUMNS,
        key="action",
        label="Action",
        table_name="Actions, the newest first",
        name_of=lambda row: f"{row['verb']} {row['subject']} ({row['id']})",
    )
    if choice is None:
        return
    now = request.extent.samples.end.replace(tzinfo=None)
    if not policy_actions.undo_state(
        choice["result"], choice["at"], now, request.settings.actions.watch
    ):
        page.note(f"It is {plain(choice['result'])}: there is nothing to take back.")
        return
    if choice["lost"]:
        page.note(f"Cannot be brought back: {plain(choice['lost'], 300)}.")
    action_buttons.button(
        "Undo", "undo", request, key="undo-it", owner=choice["owner"], body={"action": choice["id"]}
    )


def plan(request: PageRequest) -> None:
    """List the policies' current decisions, with every reason."""
    page.heading("The plan")
    rows = data.query(policy_actions.plan, request.filters).to_pylist()
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
    rows_shown = [_linked(row) for row in rows if decision is None or row["says"] == decision]
    page.table(rows_shown, PLAN, table_name="What policies decide about every case", height=420)
    first = rows[0]
    acts_now = "The service carries it out." if first["acts"] else "Nothing acts: a dry run."
    page.note(
        f"As of {first['at']:%Y-%m-%d %H:%M} UTC. {acts_now} `fallow why-not WORKLOAD` tells every "
        "gate's answer."
    )
    for rule in data.query(policy_status.list_policies, request.filters).to_pylist():
        if rule["trusted_by"]:
            page.note(plain(f"Policy {rule['policy']} is {policy_status.by_hand(rule)}.", 700))


def refused(request: PageRequest) -> None:
    """List what a gate refused just before the action."""
    rows = data.query(policy_actions.refused, request.window, request.filters)
    if rows.num_rows:
        page.heading("Refused just before the act")
        page.table(rows, REFUSED, table_name="What gates refused although a plan allowed it")


def _count_by_decision(rows: list[dict[str, Any]]) -> None:
    aborted = next((row["aborted"] for row in rows if row["aborted"]), None)
    if aborted:
        st.warning(f"**Nothing of the plan is done:** {plain(aborted, 300)}")
    page.metrics(
        *(
            (label, f"{len(rows_of):,}", f"{money(_sum(rows_of))} a day")
            for label, says in _SAYS
            for rows_of in [[row for row in rows if row["says"] == says]]
        )
    )


def _sum(rows: list[dict[str, Any]]) -> Any:
    usd_known = [row["usd_per_day"] for row in rows if row["usd_per_day"] is not None]
    return sum(usd_known) if usd_known else (None if rows else page.exact(0))


def _linked(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, FINDING: links.page_link("inbox", finding=row["finding"])}


_SAYS = (
    ("Acts now", "does it"),
    ("Owners are notified", "tells its owner"),
    ("Held", "holds"),
    ("Refused", "refuses"),
)

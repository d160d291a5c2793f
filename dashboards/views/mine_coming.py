"""What will happen to my workloads, when and why; keep them, or take back what was done."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import streamlit as st

from dashboards import action_buttons, data, filters, owner_filter, page
from dashboards.figures import owner_workloads, policy_actions
from dashboards.page import PageRequest, escape, format_money
from fallow.window import format_duration

COMING = page.read_columns("mine_coming/coming")
ACTION_COLUMNS = page.read_columns("mine_coming/action_columns")
REQUESTS = page.read_columns("mine_coming/requests")
WAITS, EXPIRED = "waits for an approval", "expired: the plan has no such case any more"
LENGTHS = ("24h", "3d", "7d", "30d")
QUIET = "nothing: it is only watched"


def show(request: PageRequest) -> None:
    """Draw the tab."""
    page.show_card(show_coming, request)
    page.show_card(show_requests, request, height=0)
    page.show_card(show_actions_taken, request)


def show_requests(request: PageRequest) -> None:
    """List what was requested about the owner's workloads, and whether it still waits."""
    owners = owner_filter.list_names(request)
    rows = [
        {**row, "says": WAITS if row["planned"] else EXPIRED}
        for row in data.query(policy_actions.read_waiting, request.filters).to_pylist()
        if {row["owner"], row["namespace"]} & {*owners}
    ]
    if rows:
        page.show_heading("What waits for approval")
        page.show_table(
            rows, REQUESTS, table_name="Requests about my workloads, those that wait first"
        )


def show_coming(request: PageRequest) -> None:
    """List what policies plan, with the button that keeps a workload."""
    owners = owner_filter.choose_owners(request)
    if not owners:
        return
    rows = data.query(owner_workloads.read_coming, request.filters, owners).to_pylist()
    busy = [row for row in rows if row["says"] not in (QUIET, "nothing")]
    if not busy:
        _show_nothing_coming(request, owners, len(rows))
        return
    soon = [row for row in busy if row["next_at"]]
    usd = [row["usd_per_day"] for row in busy if row["usd_per_day"] is not None]
    first = min((row["next_at"] for row in soon), default=None)
    page.show_metrics(
        ("Cases", f"{len(busy):,}", f"{len(rows) - len(busy):,} more are only watched"),
        ("They waste", format_money(sum(usd) if usd else None), "in a whole day"),
        (
            "The next",
            f"{first:%d %b %H:%M}" if first else "no date",
            "UTC" if first else "nothing has one",
        ),
    )
    for number, row in enumerate(busy):
        row["id"] = f"{row['workload_kind']}/{row['namespace']}/{row['workload']}"
        row["number"] = number
    choice = action_buttons.choose(
        busy,
        filters.add_cluster(COMING, request, after="says"),
        key="case",
        label="Workload",
        table_name="What will happen, the soonest first",
        name_of=lambda row: f"{row['subject']}: {row['says']}",
    )
    written = max(row["at"] for row in busy)
    if not busy[0]["acts"]:
        page.note("Nothing acts here yet: this is what policies would do.")
    else:
        page.note(
            f"As of the turn of {written:%Y-%m-%d %H:%M} UTC; where the service runs, a turn "
            f"follows every {format_duration(request.settings.actions.every.total_seconds())}."
        )
    if choice is None:
        return
    st.markdown(_describe(choice))
    left, right, _ = st.columns([1, 1, 3], vertical_alignment="bottom")
    with left:
        length = st.selectbox("For", LENGTHS, key="keep-for") or LENGTHS[0]
    with right:
        action_buttons.show_button(
            "Keep",
            "keep",
            request,
            key="keep-it",
            owner=choice["owner"],
            body={"workload": choice["id"], "for": length},
        )


def _show_nothing_coming(request: PageRequest, owners: Sequence[str], cases: int) -> None:
    """Say that no policy plans anything, and which stopped jobs resume on request."""
    evaluated = (
        f"Policies evaluated {cases} cases of them and only observe."
        if cases
        else "No policy has a case about them."
    )
    pending = _count_pending_resumes(request, owners)
    if not pending:
        page.show_nothing("Nothing will happen to these workloads.", evaluated)
        return
    jobs = "1 stopped job resumes" if pending == 1 else f"{pending} stopped jobs resume"
    page.show_nothing(
        "No policy will stop these workloads.",
        f"{evaluated} {jobs} once there is room, as requested: see what was done, below.",
    )


def _count_pending_resumes(request: PageRequest, owners: Sequence[str]) -> int:
    """Return how many of the owners' stops have a request to resume that waits for room."""
    pending_resumes = data.query(owner_workloads.read_resumable, request.extent.samples.end)
    if not any(pending_resumes.values()):
        return 0
    stops = _read_actions_taken(request, owners).select(["cluster", "id"]).to_pylist()
    return sum(pending_resumes.get((s["cluster"], s["id"])) is not None for s in stops)


def _read_actions_taken(request: PageRequest, owners: Sequence[str]) -> pa.Table:
    """Return the actions on the owners' workloads that are still watched."""
    oldest = request.extent.samples.end - request.settings.actions.watch
    return data.query(owner_workloads.read_actions_taken, request.filters, tuple(owners), oldest)


def _describe(row: dict[str, Any]) -> str:
    """Say in words what will happen to a workload, when and why, and what its owner can do."""
    when = f" It is due {row['next_at']:%Y-%m-%d %H:%M} UTC." if row["next_at"] else ""
    why = f" Why not earlier: {escape(row['why'], 400)}." if row["why"] else ""
    usd = row["usd_per_day"]
    cost = "" if usd is None else f" It wastes {format_money(usd)} in a whole day."
    until = row["kept_until"]
    keep = f" You keep it until {until:%Y-%m-%d %H:%M} UTC." if until else ""
    return (
        f"**{escape(row['subject'], 200)}**: {escape(row['says'], 200)}.{when}{cost}{why}{keep} "
        f"Policy: {escape(row['policy'])}. Keep it if you still need it; a stop can be undone "
        "below."
    )


def show_actions_taken(request: PageRequest) -> None:
    """List the actions on the owner's workloads, with the button that undoes one."""
    owners = owner_filter.list_names(request)
    if not owners:
        return
    page.show_heading("What was done")
    now = request.extent.samples.end
    rows = _read_actions_taken(request, owners)
    if not rows.num_rows:
        page.show_nothing(
            "Nothing was done to these workloads.", "What is done can be undone here."
        )
        return
    choice = action_buttons.choose(
        rows.to_pylist(),
        filters.add_cluster(ACTION_COLUMNS, request, after="subject"),
        key="action",
        label="Action",
        table_name="What was done, the newest first",
        name_of=lambda row: f"{row['verb']} {row['subject']} ({row['id']})",
    )
    if choice is None:
        return
    at, watch = now.replace(tzinfo=None), request.settings.actions.watch
    if not policy_actions.can_undo(
        choice["result"], choice["at"], at, watch + timedelta(minutes=1)
    ):
        page.note(f"It is {escape(choice['result'])}: there is nothing to take back.")
        return
    pending_resumes = data.query(owner_workloads.read_resumable, now)
    place = (choice["cluster"], choice["id"])
    left, right = st.columns([1, 3])
    with left:
        action_buttons.show_button(
            "Resume now",
            "undo",
            request,
            key="resume-it",
            owner=choice["owner"],
            body={"action": choice["id"]},
        )
    if place not in pending_resumes:
        return
    pending = pending_resumes[place]
    with right:
        if pending is None:
            action_buttons.show_button(
                "Resume when there is room",
                "resume",
                request,
                key="resume-later",
                owner=choice["owner"],
                body={"action": choice["id"]},
            )
    if pending is not None:
        page.note(
            f"Requested by {escape(pending.by)}: it waits for room since "
            f"{pending.at:%Y-%m-%d %H:%M} UTC. Once it has room, the list above says what a "
            "policy does; `fallow doctor` says why not yet. Resume now withdraws it."
        )

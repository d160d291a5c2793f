"""What will happen to my workloads, when and why; keep them, or take back what was done."""

from datetime import timedelta

import streamlit as st

from dashboards import data, doing, page, whose
from dashboards.figures import acts, mine
from dashboards.page import Asked, money, plain

TITLE, ICON, ORDER = "What is coming", ":material/event_upcoming:", 20

COMING = {
    "whom": page.name("workload", "large"),
    "says": page.name("what will happen", "large"),
    "next_at": page.moment("when"),
    "kept_until": page.moment("kept until"),
    "usd_per_day": page.usd("costs, USD a day"),
    "gpus": page.number("GPUs"),
    "why": page.name("why not before", "large"),
    "told_at": page.moment("notice given"),
    "policy": page.name("policy", "small"),
}
TAKEN = {
    "at": page.moment("when"),
    "whom": page.name("workload", "large"),
    "verb": page.name("what was done"),
    "result": page.name("result", "small"),
    "lost": page.name("lost", "large"),
    "restored_by": page.name("taken back by", "small"),
    "policy": page.name("policy", "small"),
    "id": page.name("action", "small"),
}
LENGTHS = ("24h", "3d", "7d", "30d")
QUIET = "nothing: it is watched"


def show(asked: Asked) -> None:
    """Draw the page."""
    doing.told()
    page.card(coming, asked)
    page.card(taken, asked)


def coming(asked: Asked) -> None:
    """List what policies have in mind, with the button that keeps a workload."""
    owners = whose.owners(asked)
    if not owners:
        return
    rows = data.ask(mine.coming, asked.filters, owners).to_pylist()
    busy = [row for row in rows if row["says"] not in (QUIET, "nothing")]
    if not busy:
        page.nothing(
            "Nothing will happen to these workloads.",
            f"Policies looked at {len(rows)} cases of them and only watch."
            if rows
            else "No policy has a case about them.",
        )
        return
    soon = [row for row in busy if row["next_at"]]
    usd = [row["usd_per_day"] for row in busy if row["usd_per_day"] is not None]
    first = min((row["next_at"] for row in soon), default=None)
    page.metrics(
        ("Cases", f"{len(busy):,}", f"{len(rows) - len(busy):,} more are only watched"),
        ("They cost", money(sum(usd) if usd else None), "a day"),
        ("The next", f"{first:%d %b %H:%M}" if first else "no date", "UTC"),
    )
    for number, row in enumerate(busy):
        row["id"] = f"{row['workload_kind']}/{row['namespace']}/{row['workload']}"
        row["number"] = number
    chosen = doing.choose(
        busy,
        COMING,
        key="case",
        label="Workload",
        called="What policies have in mind, the soonest first",
        named=lambda row: f"{row['whom']}: {row['says']}",
    )
    if not busy[0]["acts"]:
        page.note("Nothing acts here yet: this is what policies would do.")
    if chosen is None:
        return
    page.note(f"{plain(chosen['policy'])}: {plain(chosen['why'] or chosen['says'], 400)}")
    left, right, _ = st.columns([1, 1, 3], vertical_alignment="bottom")
    with left:
        length = st.selectbox("For", LENGTHS, key="keep-for") or LENGTHS[0]
    with right:
        doing.button(
            "Keep",
            "keep",
            asked,
            key="keep-it",
            owner=chosen["owner"],
            body={"workload": chosen["id"], "for": length},
        )


def taken(asked: Asked) -> None:
    """List what was done to one's workloads, with the button that gives it back."""
    owners = whose.names(asked)
    if not owners:
        return
    page.heading("What was done")
    now = asked.extent.looks.end
    rows = data.ask(mine.taken, asked.filters, owners, now - asked.settings.actions.watch)
    if not rows.num_rows:
        page.nothing("Nothing was done to these workloads.", "What is done can be taken back here.")
        return
    chosen = doing.choose(
        rows.to_pylist(),
        TAKEN,
        key="action",
        label="Action",
        called="What was done, the newest first",
        named=lambda row: f"{row['verb']} {row['whom']} ({row['id']})",
    )
    if chosen is None:
        return
    at, watch = now.replace(tzinfo=None), asked.settings.actions.watch
    if not acts.stands(chosen["result"], chosen["at"], at, watch + timedelta(minutes=1)):
        page.note(f"It is {plain(chosen['result'])}: there is nothing to take back.")
        return
    doing.button(
        "Resume",
        "undo",
        asked,
        key="resume-it",
        owner=chosen["owner"],
        body={"action": chosen["id"]},
    )

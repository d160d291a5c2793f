"""What policies decide now and why not, what waits for a yes, what was done, and the way back."""

from typing import Any

import streamlit as st

from dashboards import data, doing, links, page
from dashboards.figures import acts, rules
from dashboards.page import Asked, money, plain

TITLE, ICON, ORDER = "Actions", ":material/bolt:", 60

FINDING = "finding_link"
WAITING = {
    "whom": page.name("whom", "large"),
    "verb": page.name("what it would do"),
    "usd_per_day": page.usd("saves, USD a day"),
    "gpus": page.number("GPUs"),
    "owner": page.name("owner", "small"),
    "policy": page.name("policy", "small"),
    "asked_at": page.moment("asked"),
    "approved_by": page.name("agreed already", "small"),
    "id": page.name("request", "small"),
}
DONE = {
    "at": page.moment("when"),
    "whom": page.name("whom", "large"),
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
    "whom": page.name("whom", "large"),
    "verb": page.name("what to do"),
    "why": page.name("why not now", "large"),
    "next_at": page.moment("goes on at"),
    "usd_per_day": page.usd("USD a day"),
    "gpus": page.number("GPUs"),
    "policy": page.name("policy", "small"),
    "owner": page.name("owner", "small"),
    FINDING: doing.findings(),
}
REFUSED = {
    "at": page.moment("when"),
    "whom": page.name("whom", "large"),
    "why": page.name("why", "large"),
    "policy": page.name("policy", "small"),
}


def show(asked: Asked) -> None:
    """Draw the page."""
    doing.told()
    page.card(frozen, asked, height=0)
    page.card(waiting, asked)
    page.card(done, asked)
    page.card(plan, asked)
    page.card(refused, asked, height=0)


def frozen(asked: Asked) -> None:
    """Say where nothing acts, and why."""
    for row in data.ask(acts.frozen, asked.filters).to_pylist()[:3]:
        st.warning(
            f"**Nothing acts on cluster {plain(row['cluster'])}:** frozen by "
            f"{plain(row['actor'])} at {row['at']:%Y-%m-%d %H:%M} UTC: {plain(row['why'], 200)}. "
            "`fallow thaw` lets it act again.",
            icon=":material/ac_unit:",
        )


def waiting(asked: Asked) -> None:
    """List what waits for approval, with the button that gives it."""
    page.heading("Waits for approval")
    rows = data.ask(acts.waiting, asked.filters).to_pylist()
    if not rows:
        page.nothing(
            "Nothing waits for approval.",
            "Policies with `approvals` ask here before they act, once their notice is over.",
        )
        return
    chosen = doing.choose(
        rows,
        WAITING,
        key="request",
        label="Request",
        called="Actions that wait for approval",
        named=lambda row: f"{row['verb']} {row['whom']} ({row['id']})",
    )
    if chosen is None:
        return
    if not chosen["planned"]:
        page.note("Its case is not in the last plan any more: an approval has no effect now.")
    doing.button(
        "Approve", "approve", asked, key="approve-it", primary=True, body={"request": chosen["id"]}
    )


def done(asked: Asked) -> None:
    """List what was done, with the button that takes it back."""
    page.heading("Done")
    rows = data.ask(acts.done, asked.window, asked.filters).to_pylist()
    if not rows:
        page.nothing(
            "Nothing was done in this window.",
            "With `actions.enabled` the service acts by its policies; `fallow apply` does a turn.",
        )
        return
    chosen = doing.choose(
        rows,
        DONE,
        key="action",
        label="Action",
        called="Actions, the newest first",
        named=lambda row: f"{row['verb']} {row['whom']} ({row['id']})",
    )
    if chosen is None:
        return
    now = asked.extent.looks.end.replace(tzinfo=None)
    if not acts.stands(chosen["result"], chosen["at"], now, asked.settings.actions.watch):
        page.note(f"It is {plain(chosen['result'])}: there is nothing to take back.")
        return
    if chosen["lost"]:
        page.note(f"Cannot be brought back: {plain(chosen['lost'], 300)}.")
    doing.button(
        "Undo", "undo", asked, key="undo-it", owner=chosen["owner"], body={"action": chosen["id"]}
    )


def plan(asked: Asked) -> None:
    """List what policies decide now, with every reason."""
    page.heading("The plan")
    rows = data.ask(acts.plan, asked.filters).to_pylist()
    if not rows:
        page.nothing(
            "There is no plan here.",
            "`fallow up` writes one with each analysis, by the policies in `actions.policies`; "
            "`fallow plan` shows it now.",
        )
        return
    _counted(rows)
    names = sorted({row["says"] for row in rows})
    wanted = st.segmented_control(
        "The plan", names, key="says", bind="query-params", label_visibility="collapsed"
    )
    shown = [_linked(row) for row in rows if wanted is None or row["says"] == wanted]
    page.table(shown, PLAN, called="What policies decide about every case", height=420)
    first = rows[0]
    acts_now = "The service carries it out." if first["acts"] else "Nothing acts: a dry run."
    page.note(
        f"As of {first['at']:%Y-%m-%d %H:%M} UTC. {acts_now} `fallow why-not WORKLOAD` tells every "
        "gate's answer."
    )
    for rule in data.ask(rules.listed, asked.filters).to_pylist():
        if rule["trusted_by"]:
            page.note(plain(f"Policy {rule['policy']} is {rules.by_hand(rule)}.", 700))


def refused(asked: Asked) -> None:
    """List what a gate refused at the last moment."""
    rows = data.ask(acts.refused, asked.window, asked.filters)
    if rows.num_rows:
        page.heading("Refused at the last moment")
        page.table(rows, REFUSED, called="What gates refused although a plan allowed it")


def _counted(rows: list[dict[str, Any]]) -> None:
    aborted = next((row["aborted"] for row in rows if row["aborted"]), None)
    if aborted:
        st.warning(f"**Nothing of the plan is done:** {plain(aborted, 300)}")
    page.metrics(
        *(
            (label, f"{len(mine):,}", f"{money(_sum(mine))} a day")
            for label, says in _SAYS
            for mine in [[row for row in rows if row["says"] == says]]
        )
    )


def _sum(rows: list[dict[str, Any]]) -> Any:
    known = [row["usd_per_day"] for row in rows if row["usd_per_day"] is not None]
    return sum(known) if known else (None if rows else page.exact(0))


def _linked(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, FINDING: links.to("inbox", finding=row["finding"])}


_SAYS = (
    ("Acts now", "does it"),
    ("Owners are told", "tells its owner"),
    ("Held", "holds"),
    ("Refused", "refuses"),
)

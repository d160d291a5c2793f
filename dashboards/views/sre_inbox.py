"""Findings by dollars over disruption: why, what would remove them, and a word in the matter."""

from typing import Any

import streamlit as st

from dashboards import data, doing, page
from dashboards.figures import inbox
from dashboards.page import Asked, hours, money, plain

TITLE, ICON, ORDER = "Findings", ":material/inbox:", 50

FOUND = {
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
    "snoozed_until": page.moment("snoozed until"),
    "since": page.moment("since"),
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


def show(asked: Asked) -> None:
    """Draw the page."""
    doing.told()
    page.card(found, asked, height=420)


def found(asked: Asked) -> None:
    """List the findings, and tell of the one that is chosen."""
    rows = data.ask(inbox.listed, asked.window, asked.filters).to_pylist()
    if not rows:
        page.none(
            asked,
            (),
            "Nothing was found to do here.",
            "`fallow analyze` or `fallow up` find waste and store it; clear a filter, or choose a "
            "longer window.",
        )
        return
    now = asked.window.end.replace(tzinfo=None)
    shown = _narrowed(rows, now)
    if not shown:
        page.nothing("No finding is left.", "Clear a choice above.")
        return
    known = [row["usd"] for row in shown if row["usd"] is not None]
    sure = [row for row in shown if row["evidence"] == "confirmed"]
    rests = sum(1 for row in rows if row["snoozed_until"] and row["snoozed_until"] > now)
    page.metrics(
        ("Findings", f"{len(shown):,}", f"{len(sure):,} confirmed by two witnesses"),
        ("Would save", money(sum(known) if known else None), "in this window"),
        ("GPU-hours", hours(sum(row["gpu_hours"] for row in shown)), "no hour twice"),
        ("Snoozed", f"{rests:,}", "left alone for a while"),
    )
    chosen = doing.choose(
        shown,
        FOUND,
        key="finding",
        label="Finding",
        called="Findings by dollars over disruption",
        named=lambda row: f"{row['workload']}: {row['kind']} ({row['id']})",
        height=380,
    )
    if chosen is None:
        page.note("Ranked by dollars over disruption. Choose one to see why, and what to do.")
        return
    _one(asked, chosen)


def _narrowed(rows: list[dict[str, Any]], now: Any) -> list[dict[str, Any]]:
    """Return the rows that the choices leave."""
    columns = st.columns(4)
    for column, key in zip(columns, ("analyzer", "kind", "evidence"), strict=False):
        names = sorted({row[key] for row in rows if row[key]})
        with column:
            wanted = st.selectbox(
                key.capitalize(), names, index=None, key=key, placeholder="all", bind="query-params"
            )
        rows = [row for row in rows if wanted is None or row[key] == wanted]
    with columns[3]:
        rest = st.toggle("With what is snoozed", key="snoozed", bind="query-params")
    return [r for r in rows if rest or not r["snoozed_until"] or r["snoozed_until"] <= now]


def _one(asked: Asked, row: dict[str, Any]) -> None:
    """Say everything about a finding, and let people have it left alone."""
    made = data.ask(inbox.one, row["id"])
    if made is None:
        page.nothing("That finding is gone.", "Choose another one.")
        return
    page.heading("Why")
    st.markdown(
        f"**{plain(row['workload'])}**, {plain(made.kind)}, {plain(made.evidence)}: "
        f"{plain(made.why, 600)}"
    )
    page.note(
        f"{made.start:%Y-%m-%d %H:%M} to {made.end:%Y-%m-%d %H:%M} UTC · "
        f"{hours(made.gpu_hours)}, {money(made.usd)} · found {made.found_at:%Y-%m-%d %H:%M} UTC by "
        f"{plain(made.analyzer)} · `fallow explain {row['id']}` shows the rows behind it. "
        + _says(row)
    )
    left, middle, _ = st.columns([1, 1, 3], vertical_alignment="bottom")
    with left:
        length = st.selectbox("For", LENGTHS, index=1, key="snooze-for") or LENGTHS[1]
    with middle:
        doing.button(
            "Snooze", "snooze", asked, key="snooze-it", body={"finding": row["id"], "for": length}
        )
    if made.advice:
        page.table(made.advice, ADVICE, called="What would remove the waste")
    if made.details:
        page.table(made.details, DETAILS, called="What was measured")


def _says(row: dict[str, Any]) -> str:
    if not row["policy"]:
        return "No policy is about it."
    until = f" until {row['next_at']:%Y-%m-%d %H:%M} UTC" if row["next_at"] else ""
    why = f": {plain(row['why'], 300)}" if row["why"] else ""
    what = {"allow": "allows", "hold": "holds", "deny": "refuses"}.get(row["ruling"] or "", "says")
    return f"Policy {plain(row['policy'])} {what} {plain(row['step'] or 'it')}{until}{why}."

"""Buttons that ask the actor for something, and how people choose what it is about."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from dashboards import data, page, writing
from dashboards.page import Asked, plain
from dashboards.text import visible
from dashboards.writing import What
from fallow.errors import FallowError, TemporaryError

ICONS: Mapping[What, str] = {
    "approve": ":material/check:",
    "snooze": ":material/snooze:",
    "keep": ":material/shield:",
    "undo": ":material/undo:",
}
SAID = "said-of-deed"
LONGEST = 90
"""Characters of a choice."""


def told() -> None:
    """Say once what came of the last button, above all cards."""
    said = st.session_state.pop(SAID, None)
    if said is None:
        return
    kind, text = said
    {"done": st.success, "later": st.warning, "no": st.error}[kind](text)


def button(
    label: str,
    what: What,
    asked: Asked,
    *,
    key: str,
    owner: str | None = None,
    primary: bool = False,
    body: Mapping[str, str],
) -> None:
    """Show a button that asks for something; who may not sees why it is grey.

    The first value of `body` is what it is about.
    """
    allowed = writing.may(asked.person, what, owner)
    role = writing.NEEDS[what]
    why = None if allowed else f"You are {asked.person.role}; this takes the role {role}."
    pressed = st.button(
        label,
        key=key,
        icon=ICONS[what],
        disabled=not allowed,
        help=why,
        type="primary" if primary else "secondary",
    )
    if pressed:
        st.session_state[SAID] = _done(what, asked, owner, body)
        st.rerun()


def _done(what: What, asked: Asked, owner: str | None, body: Mapping[str, str]) -> tuple[str, str]:
    try:
        said = writing.ask(asked.settings, asked.person, what, owner=owner, **body)
    except FallowError as error:
        kind = "later" if isinstance(error, TemporaryError) else "no"
        hint = f" {plain(error.hint, 300)}" if error.hint else ""
        return kind, f"**{plain(error.message, 400)}**{hint}"
    data.forget()
    about = next(iter(body.values()))
    until = f" until {str(said['until'])[:16].replace('T', ' ')} UTC" if "until" in said else ""
    came = f": {plain(said['result'])}" if "result" in said else ""
    return "done", f"{_PAST[what]} {plain(about, 120)}{until}{came}, by {plain(said['by'])}."


def findings() -> Any:
    """Return how a column of links to findings is shown."""
    return st.column_config.LinkColumn("finding", display_text=":material/inbox:", width="small")


def choose(
    rows: Sequence[dict[str, Any]],
    columns: dict[str, Any],
    *,
    key: str,
    label: str,
    called: str,
    named: Callable[[dict[str, Any]], str],
    height: int | None = None,
) -> dict[str, Any] | None:
    """Show rows as a table and return the one that is chosen, by a click or in the box below.

    The choice (a row's `id`) stands in the URL under `key`.
    """
    of = {str(row["id"]): row for row in rows}
    ids = [*of]

    if key not in st.session_state and st.query_params.get(key) in of:
        st.session_state[key] = st.query_params[key]
    if st.session_state.get(key) not in of:
        st.session_state[key] = None

    def clicked() -> None:
        picked = st.session_state[f"{key}-table"].selection.rows
        if picked and picked[0] < len(ids):
            st.session_state[key] = ids[picked[0]]
            changed()

    def changed() -> None:
        # Bound parameters hold labels; ours are ids, so that links can be made of them.
        if st.session_state[key] is None:
            st.query_params.pop(key, None)
        else:
            st.query_params[key] = st.session_state[key]

    page.table(rows, columns, called=called, height=height, key=f"{key}-table", on_select=clicked)
    chosen = st.selectbox(
        label,
        ids,
        key=key,
        index=None,
        placeholder="choose one, or click a row",
        format_func=lambda one: visible(named(of[one]))[:LONGEST] if one in of else str(one),
        on_change=changed,
    )
    return of.get(chosen) if chosen else None


_PAST: Mapping[What, str] = {
    "approve": "Approved",
    "snooze": "Snoozed",
    "keep": "Kept",
    "undo": "Undone",
}

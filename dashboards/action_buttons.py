"""Show buttons that send requests to the actor, and tables in which people choose a row."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from dashboards import api_client, data, page
from dashboards.api_client import RequestKind
from dashboards.page import PageRequest, escape
from fallow.errors import FallowError, TemporaryError
from fallow.texts import spell_out

ICONS: Mapping[RequestKind, str] = {
    "approve": ":material/check:",
    "snooze": ":material/snooze:",
    "keep": ":material/shield:",
    "undo": ":material/undo:",
    "resume": ":material/schedule:",
}
RESULT_KEY = "said-of-deed"
LONGEST = 90
"""Characters of a choice in the box."""


def show_result() -> None:
    """Show the result of the last button once, above all cards."""
    result = st.session_state.pop(RESULT_KEY, None)
    if result is None:
        return
    kind, text = result
    {"done": st.success, "later": st.warning, "no": st.error}[kind](text)


def show_button(
    label: str,
    request_kind: RequestKind,
    request: PageRequest,
    *,
    key: str,
    owner: str | None = None,
    primary: bool = False,
    body: Mapping[str, str],
) -> None:
    """Show a button that sends a request; without the role it is disabled, with the reason.

    The first value of `body` is the id of the row that the request is about.
    """
    allowed = api_client.may(request.person, request_kind, owner)
    role = api_client.NEEDS[request_kind]
    why = None if allowed else f"You are {request.person.role}; this takes the role {role}."
    if why and request.person.local:
        setting = "`dashboard.approve_without_sign_in`"
        why = f"Nobody signs in here: type `fallow {request_kind}`, or set {setting}."
    pressed = st.button(
        label,
        key=key,
        icon=ICONS[request_kind],
        disabled=not allowed,
        help=why,
        type="primary" if primary else "secondary",
    )
    if pressed:
        st.session_state[RESULT_KEY] = _send(request_kind, request, owner, body)
        st.rerun()


def _send(
    request_kind: RequestKind, request: PageRequest, owner: str | None, body: Mapping[str, str]
) -> tuple[str, str]:
    try:
        answer = api_client.send_request(
            request.settings, request.person, request_kind, owner=owner, **body
        )
    except FallowError as error:
        kind = "later" if isinstance(error, TemporaryError) else "no"
        hint = f" {escape(error.hint, 300)}" if error.hint else ""
        return kind, f"**{escape(error.message, 400)}**{hint}"
    data.forget()
    about = next(iter(body.values()))
    until = f" until {str(answer['until'])[:16].replace('T', ' ')} UTC" if "until" in answer else ""
    came = f": {escape(answer['result'])}" if "result" in answer else ""
    return (
        "done",
        f"{_PAST[request_kind]} {escape(about, 120)}{until}{came}, by {escape(answer['by'])}.",
    )


def choose(
    rows: Sequence[dict[str, Any]],
    columns: dict[str, Any],
    *,
    key: str,
    label: str,
    table_name: str,
    name_of: Callable[[dict[str, Any]], str],
    on_phone: Sequence[str] = (),
) -> dict[str, Any] | None:
    """Show rows as a table and return the chosen one, by a click or in the box below.

    The choice (a row's `id`) is in the URL under `key`.
    """
    row_by_id = {str(row["id"]): row for row in rows}
    ids = [*row_by_id]

    if key not in st.session_state and st.query_params.get(key) in row_by_id:
        st.session_state[key] = st.query_params[key]
    if st.session_state.get(key) not in row_by_id:
        st.session_state[key] = None

    def clicked() -> None:
        selection = st.session_state[f"{key}-table"].selection
        picked = [*selection.rows, *(row for row, _ in selection.cells)]
        if picked and picked[0] < len(ids):
            st.session_state[key] = ids[picked[0]]
            changed()

    def changed() -> None:
        # Bound parameters would have labels; these have ids, so that links can be made of them.
        if st.session_state[key] is None:
            st.query_params.pop(key, None)
        else:
            st.query_params[key] = st.session_state[key]

    page.show_table(
        rows,
        columns,
        table_name=table_name,
        key=f"{key}-table",
        on_select=clicked,
        on_phone=on_phone,
    )
    choice = st.selectbox(
        label,
        ids,
        key=key,
        index=None,
        placeholder="choose one, or click a row",
        format_func=lambda row_id: (
            spell_out(name_of(row_by_id[row_id]))[:LONGEST] if row_id in row_by_id else str(row_id)
        ),
        on_change=changed,
    )
    return row_by_id.get(choice) if choice else None


_PAST: Mapping[RequestKind, str] = {
    "approve": "Approved",
    "snooze": "Snoozed",
    "keep": "Kept",
    "undo": "Undone",
    "resume": "Requested to resume",
}

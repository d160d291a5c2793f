"""Select the owner of a page: the signed-in person, or a chosen owner."""

import streamlit as st

from dashboards import data, page
from dashboards.figures import extent as extents
from dashboards.page import PageRequest, escape
from fallow.models import PLATFORM
from fallow.window import Window

KEY = "owner"


def choose_owners(request: PageRequest) -> tuple[str, ...]:
    """Let people choose an owner; return its teams and namespaces; () = a choice is needed."""
    data_window = request.extent.samples
    names_offered = data.query_rarely(
        extents.read_names, Window(data_window.start, data_window.end)
    )
    owners_listed = [
        *dict.fromkeys((*names_offered.get("team", ()), *names_offered.get("namespace", ())))
    ]
    st.selectbox(
        "Owner",
        [name for name in owners_listed if name != PLATFORM],
        index=None,
        key=KEY,
        placeholder=_explain_mine(request),
        accept_new_options=True,
        bind="query-params",
    )
    owner_names = list_names(request)
    if not owner_names:
        page.show_nothing(
            "Nothing says yet what is yours.",
            "Choose your team or namespace above: it stays in the address.",
        )
    return owner_names


def list_names(request: PageRequest) -> tuple[str, ...]:
    """Return the requested owners: chosen here, else the filter's, else the person's."""
    chosen = st.session_state.get(KEY) or st.query_params.get(KEY)
    choice = chosen or request.filters.team or request.filters.namespace
    if choice:
        return (str(choice),)
    person = request.person
    if person.local:
        return ()
    return tuple(dict.fromkeys((person.name, person.name.partition("@")[0], *person.groups)))


def show_no_allocations(owner_names: tuple[str, ...]) -> None:
    """Show that these owners held no GPUs."""
    page.show_nothing(
        f"No workload of {', '.join(escape(name, 40) for name in owner_names[:5])} had a GPU here.",
        "Choose another owner or a longer window.",
    )


def _explain_mine(request: PageRequest) -> str:
    return "choose a team or namespace" if request.person.local else "mine"

"""Whose workloads a page is about: the signed-in person's, or those of a chosen owner."""

import streamlit as st

from dashboards import data, page
from dashboards.figures import extent as extents
from dashboards.page import Asked, plain
from fallow.window import Window

KEY = "owner"


def owners(asked: Asked) -> tuple[str, ...]:
    """Let people choose whose, and return the teams and namespaces; () = say who first."""
    looks = asked.extent.looks
    offered = data.ask_seldom(extents.names, Window(looks.start, looks.end))
    listed = [*dict.fromkeys((*offered.get("team", ()), *offered.get("namespace", ())))]
    st.selectbox(
        "Whose",
        [name for name in listed if name != "(platform)"],
        index=None,
        key=KEY,
        placeholder=_mine(asked),
        accept_new_options=True,
        bind="query-params",
    )
    found = names(asked)
    if not found:
        page.nothing(
            "Nothing says yet what is yours.",
            "Choose your team or namespace above: it stays in the address.",
        )
    return found


def names(asked: Asked) -> tuple[str, ...]:
    """Return the owners that are asked about: chosen here, else the filter's, else the person's."""
    chosen = st.session_state.get(KEY) or asked.filters.team or asked.filters.namespace
    if chosen:
        return (str(chosen),)
    person = asked.person
    if person.local:
        return ()
    return tuple(dict.fromkeys((person.name, person.name.partition("@")[0], *person.groups)))


def none(found: tuple[str, ...]) -> None:
    """Say that these owners held nothing."""
    page.nothing(
        f"No workload of {', '.join(plain(name, 40) for name in found[:5])} held a GPU here.",
        "Choose another owner or a longer window.",
    )


def _mine(asked: Asked) -> str:
    return "choose a team or namespace" if asked.person.local else "mine"

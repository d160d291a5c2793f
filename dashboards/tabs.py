"""Show one of several parts of a page: the choice is in the URL, the others cost nothing."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import streamlit as st

from dashboards.page import PageRequest

Tabs: TypeAlias = Mapping[str, Callable[[PageRequest], None]]
"""The parts of a page by the words on their tabs."""
TAB = "tab"
"""The parameter of the URL with the open tab of a page."""


def show_tabs(
    parts: Tabs, request: PageRequest, opened_by: Mapping[str, str] | None = None
) -> None:
    """Show a page's tabs and draw the open one; the first opens without a choice.

    `opened_by` maps a parameter of the URL to the tab that shows its object: a link to an object
    opens its tab.
    """
    for parameter, label in (opened_by or {}).items():
        if parameter in st.query_params and not {TAB} & {*st.query_params, *st.session_state}:
            st.session_state[TAB] = label
    for container, show in zip(
        st.tabs([*parts], key=TAB, bind="query-params"), parts.values(), strict=True
    ):
        if container.open:
            with container:
                show(request)


def choose_tab(parts: Tabs, request: PageRequest) -> None:
    """Let people choose one of the tables of a card and draw it; the default is the first one."""
    names = [*parts]
    choice = st.segmented_control(
        "Show", names, default=names[0], required=True, key="show", bind="query-params"
    )
    parts[choice if choice in parts else names[0]](request)

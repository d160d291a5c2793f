"""Show one of several tables: the choice is in the URL, the others cost nothing."""

from collections.abc import Callable, Mapping

import streamlit as st

from dashboards.page import PageRequest


def choose_tab(parts: Mapping[str, Callable[[PageRequest], None]], request: PageRequest) -> None:
    """Let people choose one of the parts and draw it; the default is the first one."""
    names = [*parts]
    choice = st.segmented_control(
        "Show", names, default=names[0], required=True, key="show", bind="query-params"
    )
    parts[choice if choice in parts else names[0]](request)

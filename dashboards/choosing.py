"""Several tables of which one is shown: the choice stands in the URL, the others cost nothing."""

from collections.abc import Callable, Mapping

import streamlit as st

from dashboards.page import Asked


def one_of(parts: Mapping[str, Callable[[Asked], None]], asked: Asked) -> None:
    """Let people choose one of the parts and draw it; the first one unless they do."""
    names = [*parts]
    chosen = st.segmented_control(
        "Show", names, default=names[0], required=True, key="show", bind="query-params"
    )
    parts[chosen if chosen in parts else names[0]](asked)

"""Links from page to page that keep the window: the names of things stand in the URL."""

from typing import Any
from urllib.parse import urlencode

import streamlit as st

KEPT = ("window", "view")


def to(page: str, **names: str | None) -> str:
    """Return the address of a page about somebody, relative to the page that shows it."""
    asked = {name: st.query_params[name] for name in KEPT if name in st.query_params}
    known = {name: value for name, value in names.items() if value}
    return f"{page}?{urlencode(asked | known)}"


def timeline(**names: str | None) -> str | None:
    """Return where the timeline of a workload, node or device is; None = nobody's."""
    subject = {name: value for name, value in names.items() if name != "cluster"}
    if not any(subject.values()) or names.get("workload") == "(platform)":
        return None
    return to("timeline", **names)


def column(label: str = "timeline") -> Any:
    """Return how a column of links is shown."""
    return st.column_config.LinkColumn(label, display_text=":material/timeline:", width="small")

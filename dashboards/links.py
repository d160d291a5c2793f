"""Build links between pages that keep the window: names are in the URL."""

from typing import Any
from urllib.parse import urlencode

import streamlit as st

from fallow.models import PLATFORM

KEPT_PARAMETERS = ("window", "view")


def page_link(page: str, **names: str | None) -> str:
    """Return the address of a page about an owner or workload, relative to the current page."""
    kept_parameters = {
        name: st.query_params[name] for name in KEPT_PARAMETERS if name in st.query_params
    }
    named_values = {name: value for name, value in names.items() if value}
    return f"{page}?{urlencode(kept_parameters | named_values)}"


def timeline(**names: str | None) -> str | None:
    """Return the address of a workload's, node's or device's timeline; None = unallocated."""
    subject = {name: value for name, value in names.items() if name != "cluster"}
    if not any(subject.values()) or names.get("workload") == PLATFORM:
        return None
    return page_link("timeline", **names)


def column(label: str = "timeline") -> Any:
    """Return the configuration of a column of links."""
    return st.column_config.LinkColumn(label, display_text=":material/timeline:", width="small")

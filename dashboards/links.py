"""Build links between pages that keep window and filters: names are in the URL."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from fallow.models import PLATFORM

DEFAULTS = {"window": "7d", "view": "loaded", "refresh": "off"}
KEPT_PARAMETERS = (*DEFAULTS, "cluster", "team", "namespace", "model", "pool")
OPENS = (
    "Click a row: a team opens its statement, a workload its timeline, any other name its "
    "workloads."
)
TARGET = "page-to-open"
"""The address and parameters of the page that somebody asked for, until the next run opens it."""


def list_parameters() -> dict[str, str]:
    """Return the window and the filters that differ from the defaults, as they are in the URL."""
    parameters: dict[str, str] = {}
    for name in KEPT_PARAMETERS:
        value = st.session_state[name] if name in st.session_state else st.query_params.get(name)
        if value and value != DEFAULTS.get(name):
            parameters[name] = str(value)
    return parameters


def build_page_link(page: str, **names: str | None) -> str:
    """Return the address of a page about an owner or workload, relative to the current page."""
    named_values = {name: value for name, value in names.items() if value}
    return f"{page}?{urlencode(list_parameters() | named_values)}"


def build_finding_link(finding: str) -> dict[str, str]:
    """Return the cell of a table that links a finding, by the name of its column."""
    return {"finding_link": build_page_link("findings", finding=finding)}


def open_page(address: str, **names: str | None) -> None:
    """Open a page of the app with the next run; window and filters stay unless they are named."""
    st.session_state[TARGET] = (address, {name: value for name, value in names.items() if value})


def switch_page(pages: Mapping[str, st.Page]) -> None:
    """Go to the page that `open_page` asked for, if it did. No filter may be drawn before."""
    address, names = st.session_state.pop(TARGET, (None, {}))
    if address in pages:
        # A filter's parameter belongs to its box: the box is set, and it writes the address.
        for name in {*names} & {*KEPT_PARAMETERS}:
            st.session_state[name] = names.pop(name)
        st.switch_page(pages[address], query_params=names)


def set_values(**values: str) -> None:
    """Set boxes of this page: their parameters belong to them, and they write the address."""
    st.session_state.update(values)


def open_owner(key: str, name: str, cluster: str | None = None) -> None:
    """Open the details of a row of a table that is grouped by `key`; `cluster` is a workload's.

    A workload has its timeline, a team its statement, a state the map of the fleet; of any other
    name this page lists the workloads.
    """
    match key:
        case "workload" if name != PLATFORM:
            open_page("timeline", workload=name, cluster=cluster)
        case "team":
            open_page("chargeback", team=name)
        case "state" | "workload":
            open_page("fleet")
        case _:
            set_values(**{key: name, "by": "workload"})


def open_timeline(**names: str | None) -> None:
    """Open the timeline of a workload, node or device; of none of them there is nothing to open."""
    subject = {name: value for name, value in names.items() if name != "cluster"}
    if any(subject.values()) and names.get("workload") != PLATFORM:
        open_page("timeline", **names)


def build_timeline_link(**names: str | None) -> str | None:
    """Return the address of a workload's, node's or device's timeline; None = unallocated."""
    subject = {name: value for name, value in names.items() if name != "cluster"}
    if not any(subject.values()) or names.get("workload") == PLATFORM:
        return None
    return build_page_link("timeline", **names)


def configure_column(label: str = "timeline", icon: str = "timeline") -> Any:
    """Return the configuration of a column of links, drawn as an icon."""
    return st.column_config.LinkColumn(label, display_text=f":material/{icon}:", width="small")

"""Choose window, filters, search and refresh: one row at the top of every page, in the URL."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import streamlit as st

from dashboards import active_settings, data, links, page
from dashboards.figures import extent as extents
from dashboards.figures.query import Filters
from fallow.errors import UsageError
from fallow.models import CLUSTER_SCOPED
from fallow.window import Window
from warehouse import coverage

WINDOWS = ("24h", "7d", "30d", *coverage.MONTHS, "90d")
DEFAULT = WINDOWS[1]
REFRESH_S = {"off": None, "1m": 60, "5m": 300}
NAMED = timedelta(days=31)
"""Filters offer the names of this many days; other names may be typed."""
DAY = timedelta(days=1)
DATES = "dates"
SEARCH = "search-workloads"
JUST_DRAWN = "just-drawn"


def choose(extent: extents.DataExtent) -> tuple[str, Filters]:
    """Show the row of filters and return the window's text and the filters."""
    offered = list_names(extent)
    chosen: dict[str, str | None] = {}
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="filters"):
        window = _choose_window(extent)
        chosen["team"] = _choose_name("team", offered.get("team", ()), width=140)
        others = [key for key in ("cluster", "namespace", "model", "pool") if _get_value(key)]
        others += ["view"] if _get_value("view") == "gpu" else []
        label = f"Filters: {len(others)} more" if others else "More filters"
        with st.popover(label, icon=":material/filter_list:"):
            for key in ("cluster", "namespace", "model", "pool"):
                chosen[key] = _choose_name(key, offered.get(key, ()))
            view = st.segmented_control(
                "Cost of a GPU",
                ("loaded", "gpu"),
                default="loaded",
                required=True,
                key="view",
                bind="query-params",
                help="loaded: with its part of the node's CPU, memory and disk; gpu: the GPU part "
                "only",
            )
        st.text_input(
            "Search workloads",
            key=SEARCH,
            placeholder="a part of a name",
            icon=":material/search:",
            width=150,
            on_change=_search,
        )
        refresh = st.selectbox(
            "Refresh",
            [*REFRESH_S],
            key="refresh",
            width=85,
            bind="query-params",
            help="Read the page again every minute or every five minutes; off pauses it.",
        )
    _refresh_every(REFRESH_S[refresh or "off"])
    return window, Filters(view="gpu" if view == "gpu" else "loaded", **chosen)


def list_names(extent: extents.DataExtent) -> dict[str, tuple[str, ...]]:
    """Return the names that filters offer, by filter."""
    names: dict[str, tuple[str, ...]] = data.query_rarely(
        extents.read_names, _parse_days(extent.samples)
    )
    return names


def has_several_clusters(request: page.PageRequest) -> bool:
    """Return whether rows of a page may be of several clusters: each has to name its own."""
    if request.filters.cluster:
        return False
    return len(list_names(request.extent).get("cluster", ())) > 1


def add_cluster(
    columns: Mapping[str, Any], request: page.PageRequest, after: str = "workload"
) -> dict[str, Any]:
    """Return the columns of a table, with that of the cluster where the fleet has several."""
    added = {"cluster": page.name("cluster", 80)} if has_several_clusters(request) else {}
    columns_with: dict[str, Any] = {}
    for name, column in columns.items():
        columns_with |= {name: column, **(added if name == after else {})}
    return columns_with


def add_cluster_of_workloads(
    columns: Mapping[str, Any], request: page.PageRequest, key: str
) -> dict[str, Any]:
    """Return the columns of a table grouped by `key`: what has a cluster names it.

    Workloads have room.
    """
    if key not in CLUSTER_SCOPED:
        return dict(columns)
    wide = {**columns, "name": page.configure_workload("name")} if key == "workload" else columns
    return add_cluster(wide, request, after="name")


def read_window(
    text: str, extent: extents.DataExtent, newest: coverage.NewestHour | None
) -> Window | None:
    """Return the window that a text means; None = it is none, and the page says so."""
    now = active_settings.get_now()
    hour = Window(now - coverage.HOUR, now).whole().end
    end = min(newest.end, hour) if newest else min(extent.samples.end, now)
    try:
        return coverage.parse_window(text, now, end).whole()
    except UsageError as error:
        page.complain(error)
        return None


def _choose_window(extent: extents.DataExtent) -> str:
    choice = st.selectbox(
        "Window",
        WINDOWS,
        index=1,
        key="window",
        accept_new_options=True,
        bind="query-params",
        width=105,
        help="7d (until the newest hour in the ledger), 7d/now, month (so far), last-month, or "
        "START/END such as 2026-11-01/2026-11-08 (UTC)",
    )
    with st.popover("Dates", icon=":material/calendar_month:"):
        last = extent.samples.end - timedelta(microseconds=1)
        st.date_input(
            "First and last day (UTC)",
            [],
            min_value=extent.samples.start.date(),
            max_value=max(last, active_settings.get_now()).date(),
            key=DATES,
            on_change=_use_dates,
            help=f"There are data from {extent.samples.start:%Y-%m-%d} to {last:%Y-%m-%d}.",
        )
    return choice or DEFAULT


def _use_dates() -> None:
    """Make the chosen days the window: an absolute one, in the URL as every other."""
    days: Any = st.session_state[DATES]
    if isinstance(days, Sequence) and len(days) == 2:  # noqa: PLR2004  (one day: half a choice)
        first, last = days
        st.session_state["window"] = f"{first:%Y-%m-%d}/{last + DAY:%Y-%m-%d}"


def _search() -> None:
    text = st.session_state[SEARCH].strip()
    if text:
        links.open_page("timeline", search=text)


def _choose_name(key: str, names: Sequence[str], **layout: Any) -> str | None:
    choice: str | None = st.selectbox(
        key.capitalize(),
        names,
        index=None,
        key=key,
        placeholder="all",
        accept_new_options=True,
        bind="query-params",
        **layout,
    )
    return choice


def _get_value(key: str) -> str | None:
    return links.list_parameters().get(key)


def _refresh_every(seconds: int | None) -> None:
    """Draw the whole page again each time that so many seconds went by; None = never."""
    if seconds is None:
        return

    def tick() -> None:
        # The fragment also runs as a part of the page: only later runs are the timer's.
        if not st.session_state.pop(JUST_DRAWN, False):
            data.forget()
            st.rerun()

    st.session_state[JUST_DRAWN] = True
    st.fragment(tick, run_every=seconds)()


def _parse_days(data_window: Window) -> Window:
    """Return whole days around a window, so that their names are queried once a day."""
    end = _find_midnight(data_window.end + DAY)
    return Window(max(_find_midnight(data_window.start), end - NAMED), end)


def _find_midnight(timestamp: datetime) -> datetime:
    return timestamp.replace(hour=0, minute=0, second=0, microsecond=0)

"""Draw the pages. `fallow dashboard` serves this script, with headers of security.

`SECTIONS` lists the pages: modules of `dashboards/views` in the order of the navigation. All pages
have the same window and filters, which are in the URL.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Literal
from urllib.parse import urlsplit

import streamlit as st

from dashboards import active_settings, data, filters, links, page, signin, views
from dashboards.figures import analysis_runs, data_health
from dashboards.figures import extent as extents
from dashboards.page import PageRequest
from fallow.demo_marker import is_demo_home
from fallow.errors import SettingsError
from fallow.window import format_duration
from warehouse import coverage

SECTIONS = {
    "Cost": ("overview", "spend", "gpu_hours", "chargeback", "unit_cost"),
    "Fleet": ("fleet", "timeline", "queues", "capacity", "health", "data"),
    "Waste and actions": ("findings", "actions", "mine"),
}
NO_PAGE = "No such page"
MARK = Path(__file__).with_name("mark.png")
"""The browser fetches a Material icon for a tab from the internet; a file is local."""
STALE = timedelta(hours=1)
"""Data older than this are shown as old."""
MOST_STALE = 5
"""At most this many clusters with stale data have their own banner."""
MOST_BANNER = 900
"""Characters of the banner of audits: names in it come from outside."""
STYLE = Path(__file__).with_name("app.css")
"""Margins of 80 pixels would cut tables on a screen of 1,280."""


def main() -> None:
    """Draw the page in the URL."""
    st.set_page_config(page_title="Fallow", page_icon=str(MARK), layout="wide")
    st.html(STYLE)
    try:
        person = signin.find_person(active_settings.get_settings())
    except SettingsError as error:
        page.complain(error)
        return
    if person is None:
        return
    requests: list[PageRequest] = []
    first, *_ = list_names()
    sections = {
        section: [_build_entry(_import_page(name), requests, first=name == first) for name in pages]
        for section, pages in SECTIONS.items()
    }
    # The first page's address is `/`, but its name is valid too.
    hidden = [_build_entry(_import_page(first), requests, visibility="hidden")]
    unknown = _find_unknown_address()
    if unknown:
        hidden.append(_build_missing_page(unknown, sections))
    sections[next(iter(sections))] += hidden
    navigation = st.navigation(sections, expanded=True)
    st.set_page_config(page_title=f"{navigation.title} · Fallow")
    with st.sidebar:
        _show_person(person)
    links.switch_page({entry.url_path: entry for pages in sections.values() for entry in pages})
    if navigation.title != NO_PAGE:
        _begin(navigation.title, person, requests)
    navigation.run()


def _begin(title: str, person: signin.Person, requests: list[PageRequest]) -> None:
    """Show title, window and filters and add the request that they make to a list.

    They belong to the app and not to a page: so they stay when people go from page to page.
    """
    st.title(title)
    page.guard(page.show_demo)
    page.guard(_read_request, person, requests)


def _show_person(person: signin.Person) -> None:
    if person.local:
        st.caption(
            "No sign-in is configured: these pages answer on this machine only.",
            help="Set `dashboard.oidc` to let people sign in from elsewhere.",
        )
        return
    st.text(f"{person.name}, {person.role}")
    st.button("Sign out", icon=":material/logout:", on_click=st.logout, key="sign-out")


def list_names() -> list[str]:
    """Return the names of the pages in the order of the navigation."""
    return [name for pages in SECTIONS.values() for name in pages]


def get_title(name: str) -> str:
    """Return the title of a page, which its link in the menu has too."""
    return str(_import_page(name).TITLE)


def list_parts() -> list[str]:
    """Return every page, and every tab of a page as `page/tab`."""
    return [
        part
        for name in list_names()
        for part in ([f"{name}/{tab}" for tab in getattr(_import_page(name), "TABS", ())] or [name])
    ]


def build_url_path(name: str) -> str:
    """Return the address of a page, relative to the app's."""
    return name.replace("_", "-")


def draw_page(name: str) -> None:
    """Draw one page alone, as tests do."""
    draw(_import_page(name), signin.get_local_person())


def draw(module: ModuleType, person: signin.Person) -> None:
    """Draw a page: first its title, then window and filters, then its cards."""
    requests: list[PageRequest] = []
    _begin(module.TITLE, person, requests)
    for request in requests:
        page.guard(_draw_cards, module, request)


def _read_request(person: signin.Person, requests: list[PageRequest]) -> None:
    settings = active_settings.get_settings()
    extent_known = data.query(extents.read_extent)
    if extent_known is None:
        page.show_nothing(
            "Nothing was collected yet.",
            "`fallow collect --once`, `fallow up` or `fallow import` bring telemetry in; "
            "`fallow doctor` says what is missing. This page will fill by itself.",
        )
        return
    text, chosen = filters.choose(extent_known)
    line = st.empty()
    newest = data.query(coverage.find_newest, settings.ledger.max_lag, chosen.cluster)
    window = filters.read_window(text, extent_known, newest)
    if window is None:
        return
    behind = newest.behind if newest else {}
    known_coverage = data.query(coverage.measure_coverage, window, behind, chosen.cluster)
    request = PageRequest(window, chosen, extent_known, known_coverage, person, settings)
    line.caption(_format_window(request))
    requests.append(request)


def _draw_cards(module: ModuleType, request: PageRequest) -> None:
    page.show_card(_show_warnings, request, height=0)
    window, extent_known = request.window, request.extent
    if window.start >= extent_known.samples.end or window.end <= extent_known.samples.start:
        data_text = (
            f"{extent_known.samples.start:%Y-%m-%d %H:%M} to "
            f"{extent_known.samples.end:%Y-%m-%d %H:%M} UTC"
        )
        when = "in the future" if window.start >= active_settings.get_now() else "there"
        page.show_nothing(
            f"Nothing lies {when}.", f"The data are {data_text}: choose a window that touches them."
        )
        return
    module.show(request)


def _show_warnings(request: PageRequest) -> None:
    """Show, above every figure, what makes the figures doubtful."""
    extent_known = request.extent
    down = [
        collector
        for collector in data.query(
            data_health.read_collector_health, extent_known.samples.end, request.filters.cluster
        )
        if collector.down
    ]
    for collector in down[:3]:
        last = (
            f"{collector.last_success:%Y-%m-%d %H:%M} UTC"
            if collector.last_success
            else "a day ago or more"
        )
        st.warning(
            f"**Collector {page.escape(collector.collector)} of cluster "
            f"{page.escape(collector.cluster)} is "
            f"down:** each of its newest scrapes failed ({collector.scrapes:,}), the last success "
            f"was {last}. What it brings is missing below. "
            f"{page.escape(collector.error or '', 200)}",
            icon=":material/cloud_off:",
        )
    now, interval = active_settings.get_now(), request.settings.service.collect_every
    ages = data.query(coverage.read_ages, request.filters.cluster)
    late = [
        *coverage.name_stale(ages, now, interval, page.escape)[:MOST_STALE],
        *request.coverage.late(now, page.escape),
    ]
    for line in [] if is_demo_home(request.settings.home) else late:  # a demo has its own banner
        st.warning(f"{line[0].upper()}{line[1:]}.", icon=":material/schedule:")
    history = request.settings.prometheus
    if history.url and history.backfill:
        cluster = request.settings.cluster
        unread = data.query(coverage.describe_unread_history, cluster, history.history)
        if unread is not None:
            st.info(
                f"Cluster {page.escape(cluster, 40)}: {unread}.", icon=":material/hourglass_top:"
            )
    for run in data.query(analysis_runs.read_faults)[:MOST_STALE]:
        st.warning(
            page.escape(analysis_runs.read_fault(run), MOST_BANNER), icon=":material/extension_off:"
        )
    failed = page.query_audit_banner(request.window) if extent_known.accounted else None
    if failed:
        st.error(page.escape(failed, MOST_BANNER), icon=":material/balance:")


def _format_window(request: PageRequest) -> str:
    window, data_window = request.window, request.extent.samples
    span = f"{window.start:%Y-%m-%d %H:%M} to {window.end:%Y-%m-%d %H:%M} UTC"
    parts = [
        f"{span} ({format_duration(window.seconds)})",
        request.coverage.spoken,
        *(f"{key} {page.escape(name, 40)}" for key, name in request.filters.named.items()),
        "US dollars" + (", GPU part only" if request.filters.view == "gpu" else ""),
        f"data as of {data_window.end:%Y-%m-%d %H:%M} UTC",
    ]
    late = active_settings.get_now() - data_window.end
    if late > STALE:
        parts[-1] += f", {format_duration(late.total_seconds())} old"
    return " · ".join(parts)


def _build_entry(
    module: ModuleType,
    requests: Sequence[PageRequest],
    *,
    first: bool = False,
    visibility: Literal["visible", "hidden"] = "visible",
) -> st.Page:
    name = module.__name__.rpartition(".")[2]

    def run() -> None:
        for request in requests:
            page.guard(_draw_cards, module, request)

    return st.Page(
        run,
        title=module.TITLE,
        icon=module.ICON,
        url_path=None if first else build_url_path(name),
        default=first,
        visibility=visibility,
        help=(module.__doc__ or "").partition("\n")[0],
    )


def _import_page(name: str) -> ModuleType:
    return import_module(f"{views.__name__}.{name}")


def _find_unknown_address() -> str | None:
    """Return the path in the browser, below the app's, if no page has it."""
    path = urlsplit(st.context.url or "").path.strip("/")
    below = path.removeprefix(active_settings.get_settings().dashboard.base_path.strip("/")).strip(
        "/"
    )
    return below if below and below not in map(build_url_path, list_names()) else None


def _build_missing_page(address: str, sections: Mapping[str, Sequence[st.Page]]) -> st.Page:
    first = next(iter(sections.values()))[0]

    def run() -> None:
        named = st.query_params.get("address", address)
        st.title(NO_PAGE)
        st.info(
            f"**There is no page at** {page.escape('/' + named)}. The pages are in the menu.",
            icon=":material/link_off:",
        )
        st.page_link(first, label="Go to the overview", icon=":material/home:")

    return st.Page(
        run,
        title=NO_PAGE,
        icon=":material/link_off:",
        url_path=address.replace("/", "-"),
        visibility="hidden",
    )


if __name__ == "__main__":
    main()

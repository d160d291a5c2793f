"""The dashboard: `streamlit run dashboards/app.py`, or `fallow dashboard`, which does that.

Pages are the modules of `dashboards/views`: one that lies there is in the navigation, under the
audience that its name's prefix says. Every page is asked the same things, which stand in the URL.
"""

import pkgutil
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Literal

import streamlit as st

from dashboards import data, in_force, page, signin, views
from dashboards.figures import analyzed, standing
from dashboards.figures import extent as extents
from dashboards.figures.asking import Filters
from dashboards.page import Asked
from fallow.errors import SettingsError, UsageError
from fallow.window import Window, format_duration
from warehouse import coverage

AUDIENCES = {"finance": "Finance", "sre": "SRE", "mine": "Mine"}
WINDOWS = ("24h", "7d", "30d", "month", "90d")
MARK = Path(__file__).with_name("mark.png")
"""The browser fetches a Material icon for a tab from the internet; a file is ours."""
NAMED = timedelta(days=31)
"""Filters offer the names of so many days; others may be typed."""
STALE = timedelta(hours=1)
"""Data older than this are said to be old."""
MOST_STALE = 5
MOST_BANNER = 900
"""Characters of the banner of audits: names in it come from outside."""
"""So many clusters with stale data have a banner each."""


def main() -> None:
    """Draw the page that the URL names."""
    st.set_page_config(page_title="Fallow", page_icon=str(MARK), layout="wide")
    try:
        person = signin.person(in_force.settings())
    except SettingsError as error:
        page.complain(error)
        return
    if person is None:
        return
    sections: dict[str, list[st.Page]] = {}
    for number, name in enumerate(names()):
        pages = sections.setdefault(AUDIENCES[name.partition("_")[0]], [])
        pages.append(_entry(_module(name), person, first=not number))
        if not number:  # the first page's address is `/`; its name is one too
            pages.append(_entry(_module(name), person, visibility="hidden"))
    chosen = st.navigation(sections, expanded=True)
    st.set_page_config(page_title=f"{chosen.title} · Fallow")
    with st.sidebar:
        _who(person)
    chosen.run()


def _who(person: signin.Person) -> None:
    if person.local:
        st.caption(
            "No sign-in is configured: these pages answer on this machine only.",
            help="Set `dashboard.oidc` to let people sign in from elsewhere.",
        )
        return
    st.text(f"{person.name}, {person.role}")
    st.button("Sign out", icon=":material/logout:", on_click=st.logout, key="sign-out")


def names() -> list[str]:
    """Return the views there are, audience by audience, in their order."""
    found = [m.name for m in pkgutil.iter_modules(views.__path__)]
    known = [name for name in found if name.partition("_")[0] in AUDIENCES]
    return sorted(known, key=lambda name: (_place(name), _module(name).ORDER, name))


def one(name: str) -> None:
    """Draw one page alone, as tests do."""
    draw(_module(name), signin.local())


def draw(module: ModuleType, person: signin.Person) -> None:
    """Draw a page: its title first, then what is asked, then its cards."""
    st.title(module.TITLE)
    page.guard(_drawn, module, person)


def _drawn(module: ModuleType, person: signin.Person) -> None:
    line = st.empty()
    settings = in_force.settings()
    held = data.ask(extents.extent)
    if held is None:
        page.nothing(
            "Nothing was looked at yet.",
            "`fallow collect --once`, `fallow up` or `fallow import` bring telemetry in; "
            "`fallow doctor` says what is missing. This page will fill by itself.",
        )
        return
    text = _window_text()
    filters = _filters(held)
    newest = data.ask(coverage.newest, settings.ledger.max_lag, filters.cluster)
    window = _window(text, held, newest)
    if window is None:
        return
    behind = newest.behind if newest else {}
    known = data.ask(coverage.coverage, window, behind, filters.cluster)
    asked = Asked(window, filters, held, known, person, settings)
    line.caption(_told(asked))
    page.card(_doubts, asked, height=0)
    if window.start >= held.looks.end or window.end <= held.looks.start:
        whole = f"{held.looks.start:%Y-%m-%d %H:%M} to {held.looks.end:%Y-%m-%d %H:%M} UTC"
        when = "in the future" if window.start >= datetime.now(UTC) else "there"
        page.nothing(
            f"Nothing lies {when}.", f"The data are {whole}: choose a window that touches them."
        )
        return
    module.show(asked)


def _doubts(asked: Asked) -> None:
    """Say above every figure what makes it doubtful."""
    held = asked.extent
    down = [one for one in data.ask(standing.looking, held.looks.end) if one.down]
    for one in down[:3]:
        last = f"{one.last_success:%Y-%m-%d %H:%M} UTC" if one.last_success else "a day ago or more"
        st.warning(
            f"**Collector {page.plain(one.collector)} of cluster {page.plain(one.cluster)} is "
            f"down:** each of its newest looks failed ({one.looks:,}), the last success was "
            f"{last}. What it brings is missing below. {page.plain(one.error or '', 200)}",
            icon=":material/cloud_off:",
        )
    now, every = datetime.now(UTC), asked.settings.service.collect_every
    ages = data.ask(coverage.ages, asked.filters.cluster)
    late = coverage.stale(ages, now, every, page.plain)
    for line in [*late[:MOST_STALE], *asked.coverage.late(now, page.plain)]:
        st.warning(f"{line[0].upper()}{line[1:]}.", icon=":material/schedule:")
    for run in data.ask(analyzed.faults)[:MOST_STALE]:
        st.warning(page.plain(analyzed.fault(run), MOST_BANNER), icon=":material/extension_off:")
    failed = data.ask_seldom(standing.audits, asked.window) if held.accounted else None
    if failed:
        st.error(page.plain(failed, MOST_BANNER), icon=":material/balance:")


def _window_text() -> str:
    with st.sidebar:
        said = st.selectbox(
            "Window",
            WINDOWS,
            index=1,
            key="window",
            accept_new_options=True,
            bind="query-params",
            help="7d (until the newest hour in the ledger), 7d/now, or START/END such as "
            "2026-11-01/2026-11-08 (UTC)",
        )
    return said or WINDOWS[1]


def _window(text: str, held: extents.Extent, newest: coverage.Newest | None) -> Window | None:
    now = datetime.now(UTC)
    hour = Window(now - coverage.HOUR, now).whole().end
    end = min(newest.end, hour) if newest else min(held.looks.end, now)
    try:
        return parsed(text, now, end).whole()
    except UsageError as error:
        page.complain(error)
        return None


def parsed(text: str, now: datetime, end: datetime) -> Window:
    """Read `7d` (until `end`), `month` (the one that `end` is in, so far) or `START/END`.

    Raises:
        UsageError: the text is none of these, or the window is empty.
    """
    if text == "month":
        return Window(_midnight(end - timedelta(microseconds=1)).replace(day=1), end)
    return coverage.requested(text, now, end)


def _filters(held: extents.Extent) -> Filters:
    offered = data.ask_seldom(extents.names, _days(held.looks))
    chosen: dict[str, str | None] = {}
    with st.sidebar:
        for key in ("cluster", "team", "namespace", "model", "pool"):
            chosen[key] = st.selectbox(
                key.capitalize(),
                offered.get(key, ()),
                index=None,
                key=key,
                placeholder="all",
                accept_new_options=True,
                bind="query-params",
            )
        view = st.segmented_control(
            "Cost of a GPU",
            ("loaded", "gpu"),
            default="loaded",
            required=True,
            key="view",
            bind="query-params",
            help="loaded: with its part of the node's CPU, memory and disk; gpu: the GPU part only",
        )
    return Filters(view="gpu" if view == "gpu" else "loaded", **chosen)


def _days(looks: Window) -> Window:
    """Return whole days around a window, so that what is asked of them is asked once a day."""
    end = _midnight(looks.end + timedelta(days=1))
    return Window(max(_midnight(looks.start), end - NAMED), end)


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def _told(asked: Asked) -> str:
    window, looks = asked.window, asked.extent.looks
    span = f"{window.start:%Y-%m-%d %H:%M} to {window.end:%Y-%m-%d %H:%M} UTC"
    parts = [
        f"{span} ({format_duration(window.seconds)})",
        asked.coverage.spoken,
        *(f"{key} {page.plain(name, 40)}" for key, name in asked.filters.named.items()),
        "US dollars" + (", GPU part only" if asked.filters.view == "gpu" else ""),
        f"data as of {looks.end:%Y-%m-%d %H:%M} UTC",
    ]
    late = datetime.now(UTC) - looks.end
    if late > STALE:
        parts[-1] += f", {format_duration(late.total_seconds())} old"
    return " · ".join(parts)


def _entry(
    module: ModuleType,
    person: signin.Person,
    *,
    first: bool = False,
    visibility: Literal["visible", "hidden"] = "visible",
) -> st.Page:
    name = module.__name__.rpartition(".")[2]

    def run() -> None:
        draw(module, person)

    return st.Page(
        run,
        title=module.TITLE,
        icon=module.ICON,
        url_path=None if first else name.partition("_")[2].replace("_", "-"),
        default=first,
        visibility=visibility,
        help=(module.__doc__ or "").partition("\n")[0],
    )


def _module(name: str) -> ModuleType:
    return import_module(f"{views.__name__}.{name}")


def _place(name: str) -> int:
    return [*AUDIENCES].index(name.partition("_")[0])


if __name__ == "__main__":
    main()

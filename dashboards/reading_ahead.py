"""Read a page's figures while the browser loads its scripts: the document's request names both.

The document comes half a second or more before the browser's own connection, over which a page is
drawn; until then the server would wait. The results are in the cache of `data.query` when the page
asks for them, or the page waits for the same reading.
"""

import hashlib
import logging
import threading
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from importlib import import_module
from typing import Any
from urllib.parse import parse_qsl

from dashboards import active_settings, data, filters, page, signin, tabs, views
from dashboards.figures import analysis_runs, data_health
from dashboards.figures import extent as extents
from dashboards.page import PageRequest
from fallow.errors import FallowError
from warehouse import coverage

log = logging.getLogger("fallow.dashboard")
OWN_CHOICES = (tabs.TAB, "show", "by")
"""Parameters of the URL that change what a page reads: then only what every page reads is read."""
PEOPLE = 1000
"""So many sign-ins are remembered; when more people come, they are forgotten."""
_reading = threading.Lock()
_people: set[str] = set()


def start(name: str, query: str, headers: Mapping[str, str]) -> bool:
    """Begin to read the figures of a page; return whether it was begun.

    Only for a browser that opens a document (other sites' pictures and scripts cannot say so), of a
    person who saw a page before where people sign in; one page at a time.
    """
    if headers.get("sec-fetch-dest") != "document" or not _is_known(headers):
        return False
    if not _reading.acquire(blocking=False):
        return False
    arguments = (name, dict(parse_qsl(query)))
    threading.Thread(target=_read_and_release, args=arguments, daemon=True).start()
    return True


def remember_person(cookies: Mapping[str, str]) -> None:
    """Remember that the browser with these cookies belongs to a person who may see pages."""
    if len(_people) >= PEOPLE:
        _people.clear()
    if digest := _hash_sign_in(cookies):
        _people.add(digest)


def read_page(name: str, parameters: Mapping[str, str]) -> None:
    """Read what every page reads, then the figures of one page, for the parameters of its URL.

    Raises:
        FallowError: something cannot be read; the page will say what.
    """
    request = _build_request(parameters)
    if request is None:
        return
    data.query(data_health.read_collector_health, request.extent.samples.end)
    data.query(coverage.read_ages, request.filters.cluster)
    data.query(analysis_runs.read_faults)
    view = import_module(f"{views.__name__}.{name}")
    list_figures: Callable[[PageRequest], Any] | None = getattr(view, "list_figures", None)
    if list_figures is not None and not {*OWN_CHOICES} & {*parameters}:
        for figure, *arguments in list_figures(request):
            data.query(figure, *arguments)
    if request.extent.accounted:
        page.query_audit_banner(request.window)


def _read_and_release(name: str, parameters: Mapping[str, str]) -> None:
    try:
        read_page(name, parameters)
    except FallowError as error:
        log.debug("nothing is read ahead", extra={"why": error.message})
    finally:
        _reading.release()


def _build_request(parameters: Mapping[str, str]) -> PageRequest | None:
    """Return the request that a page will have; None = there are no data, or no legal window."""
    settings = active_settings.get_settings()
    extent_known = data.query(extents.read_extent)
    if extent_known is None:
        return None
    filters.list_names(extent_known)
    text, chosen = filters.read_parameters(parameters)
    newest = data.query(coverage.find_newest, settings.ledger.max_lag, chosen.cluster)
    window = filters.find_window(text, extent_known, newest)
    behind = newest.behind if newest else {}
    known_coverage = data.query(coverage.measure_coverage, window, behind, chosen.cluster)
    person = signin.get_local_person()
    return PageRequest(window, chosen, extent_known, known_coverage, person, settings)


def _is_known(headers: Mapping[str, str]) -> bool:
    if not active_settings.get_settings().dashboard.oidc.on:
        return True
    try:
        morsels = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return False
    return _hash_sign_in({name: morsel.value for name, morsel in morsels.items()}) in _people


def _hash_sign_in(cookies: Mapping[str, str]) -> str | None:
    """Return a digest of the cookies that the server signed at a sign-in; None = none is there."""
    parts = sorted((n, v) for n, v in cookies.items() if n.startswith(signin.COOKIE))
    return hashlib.sha256(repr(parts).encode()).hexdigest() if parts else None

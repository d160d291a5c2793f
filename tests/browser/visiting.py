"""One person's browser: goes to pages, waits until they are whole, keeps what went wrong.

A page is whole when its script and its fragments ended, no skeleton and nothing stale is left, and
every chart is drawn.
"""

import re
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    Locator,
    Page,
    Request,
    Route,
    ViewportSize,
    WebSocket,
)
from streamlit.proto.BackMsg_pb2 import BackMsg

WHOLE_MS = 60_000
SCREEN: ViewportSize = {"width": 1280, "height": 900}
WHOLE = """() => {
  const app = document.querySelector('[data-testid=stApp]');
  if (!app || app.dataset.testScriptState !== 'notRunning') return false;
  if (document.querySelector('[data-testid=stSkeleton], [data-stale=true]')) return false;
  const charts = [...document.querySelectorAll('[data-testid=stVegaLiteChart]')];
  const tables = [...document.querySelectorAll('[data-testid=stDataFrame]')];
  return !!document.querySelector('h1')
    && charts.every(c => c.querySelector('canvas, svg'))
    && tables.every(t => t.querySelector('canvas, [data-testid=stArrowVegaLiteChart], table'));
}"""
NAMELESS = """() => {
  const named = e => (e.getAttribute('aria-label') || e.innerText || e.title || e.alt
    || (e.labels && [...e.labels].map(l => l.innerText).join(' '))
    || (e.getAttribute('aria-labelledby') || '').split(' ')
       .map(id => (document.getElementById(id) || {}).innerText || '').join(' ')
    || (e.querySelector('[aria-label]') ? 'inside' : '')).trim();
  const shown = e => e.offsetParent !== null && !e.closest('[aria-hidden=true]');
  return [...document.querySelectorAll('button, input, select, textarea, a[href], [role=button]')]
    .filter(e => shown(e) && !named(e)).map(e => e.outerHTML.slice(0, 300));
}"""
WIDTH = """() => Math.max(...[document.scrollingElement,
    document.querySelector('[data-testid=stMain]')].map(e => e.scrollWidth - e.clientWidth))"""
HARMLESS = re.compile(r"/_stcore/(health|host-config)|ResizeObserver loop|GPU stall")
"""Streamlit looks for its server from every folder of the address; the rest is the browser's."""


def _is_request(frame: str | bytes) -> bool:
    """Return whether a frame asks the server to draw the page."""
    return isinstance(frame, bytes) and BackMsg.FromString(frame).HasField("rerun_script")


class Visitor:
    """A person with a browser window of their own: cookies, colours, what was asked and said."""

    def __init__(self, browser: Browser, home: str, **context: Any) -> None:
        self.home = home
        self.outside: list[str] = []
        """Addresses on other hosts that pages asked for; none of them is ever reached."""
        self.said: list[str] = []
        """Errors of the console and of scripts."""
        self.friends = {urlsplit(home).netloc}
        self.context: BrowserContext = browser.new_context(viewport=SCREEN, **context)
        self.context.route("**/*", self._guard)
        self.context.add_init_script("window.alert = () => { window.alerted = true; };")
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(WHOLE_MS)
        self.page.on("console", lambda m: self._hear(m.type, f"{m.text} {m.location}"))
        self.page.on("pageerror", lambda error: self._hear("error", str(error)))
        self.page.on("websocket", self._connect)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def go(self, path: str, **query: str) -> Page:
        """Open a page by its URL and wait until it is whole."""
        self.set_out(path, **query)
        return self.arrive()

    def set_out(self, path: str, **query: str) -> None:
        """Open a page by its URL, and wait for nothing."""
        self.page.goto(f"{self.home}/{path}?{urlencode(query)}", wait_until="commit")

    def arrive(self) -> Page:
        """Wait until the page is whole."""
        self.page.wait_for_function(WHOLE, timeout=WHOLE_MS)
        return self.page

    def choose(self, label: str, value: str) -> None:
        """Type a value into a filter's box, choose it, and wait until the page answers to it.

        The browser writes the value into its address some 50 ms before it asks the server for
        the page. Whoever leaves in between is led back by that late request.
        """
        box = self.find_box(label)
        box.click()
        box.fill(value)
        self.page.locator("[role=option]").first.wait_for()  # until then Enter is the box's
        with self.socket.expect_event("framesent", _is_request):
            box.press("Enter")
        self.page.wait_for_url(lambda url: [value] in parse_qs(urlsplit(url).query).values())
        self.arrive()

    def find_box(self, label: str) -> Locator:
        """Return the box in the row of filters that bears a label."""
        boxes = self.page.locator(".st-key-filters [data-testid=stSelectbox]")
        return boxes.filter(has_text=label).locator("input")

    def text(self, selector: str = "[data-testid=stMain]") -> str:
        """Return what a part of the page says in words."""
        return " ".join(self.page.locator(selector).all_inner_texts())

    def alerts(self, kind: str) -> list[str]:
        """Return what boxes of one kind say: Error, Warning, Info or Success."""
        return self.page.locator(f"[data-testid=stAlertContent{kind}]").all_inner_texts()

    def hears_nothing(self) -> None:
        """Check that nothing went wrong that only a browser would notice."""
        assert self.outside == []
        assert self.said == []
        assert not self.page.evaluate("!!window.alerted"), "a name was run as a script"

    def _guard(self, route: Route, request: Request) -> None:
        self._look(request.url)
        if self._known(request.url):
            route.continue_()
        else:
            route.abort()

    def _connect(self, socket: WebSocket) -> None:
        self._look(socket.url)
        self.socket = socket

    def _look(self, url: str) -> None:
        if not self._known(url):
            self.outside.append(url)

    def _known(self, url: str) -> bool:
        parts = urlsplit(url)
        return parts.scheme in ("data", "blob") or parts.netloc in self.friends

    def _hear(self, kind: str, text: str) -> None:
        if kind == "error" and not HARMLESS.search(text):
            self.said.append(text)

"""How long pages take in a real browser, on a month of a large fleet.

Each page is opened with a window that nobody asked for before, so that nothing of it is cached but
what every page shares (names of the filters), by a browser with a profile, as people have: it has
the scripts, and has compiled them, since the visits before. Then each page is opened by a click in
the menu, with a window that no page had.
"""

import shutil
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from benchmarks import month
from benchmarks.result import Result
from benchmarks.servers import PeerMissingError, find_free_port, serve
from benchmarks.stopwatch import read_processors_of
from dashboards import app
from fallow.window import Window
from runtime.operations.accounting import pipeline
from runtime.operations.analysis import analyzer_runs
from warehouse import audit_results
from warehouse.lake import Warehouse

if TYPE_CHECKING:
    from playwright.sync_api import Page

FIRST_S, PAINTED_S, CLICKED_S, WHOLE_S = 2.5, 1.2, 0.5, 1.5
"""Targets of issue 17, two quiet cores: first visit; title and filters by address and by a click
in the app; all of a page."""
COMMAND = (sys.executable, "-c", "from runtime.cli import main; main()", "dashboard")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
WARMING = 3
"""Visits before the pages; chromium keeps compiled scripts from the second on."""
PATIENCE_MS = 300_000
WATCH = """(() => {
  const whole = %s;
  const seen = e => e && e.getBoundingClientRect().height > 0;
  const watch = (title, since) => {
    window.painted = window.whole = null;
    const timer = setInterval(() => {
      const heading = document.querySelector('h1');
      if (window.painted === null && seen(heading) && (!title || heading.innerText.trim() === title)
          && seen(document.querySelector('.st-key-filters [data-testid=stSelectbox]')))
        window.painted = performance.now() - since;
      if (window.painted !== null && whole()) {
        window.whole = performance.now() - since;
        clearInterval(timer);
      }
    }, 20);
  };
  window.go = title => {
    const since = performance.now();
    const found = [...document.querySelectorAll('[data-testid=stSidebarNavLink]')]
      .find(e => e.innerText.trim().endsWith(title));
    window.whole = null;
    found.click();
    watch(title, since);
  };
  watch('', 0);
})()"""
"""Reads the page every 20 ms; times are milliseconds since the address was entered or since the
click."""


CLICKED_FROM = ("mine", "actions")
"""Pages from which others are opened by a click: the first that is not the page itself."""


class Visit(NamedTuple):
    """Seconds until title and filters were there and until all was; what the server worked.

    `clicked_s`: the same of a click in the menu: title and filters, all.
    """

    painted_s: float
    whole_s: float
    cpu_s: float
    clicked_s: tuple[float, float] = (0.0, 0.0)


def run(small: bool) -> list[Result]:
    """Open every page over 30 days of 10,000 GPUs; small: three pages over 2 days of 200."""
    gpus, days = (200, 2) if small else (10_000, 30)
    views = app.list_names()[:3] if small else app.list_names()
    with month.open_month(gpus, days) as (warehouse_of_month, window):
        _store_analysis(warehouse_of_month, window)
        return [
            *_measure(warehouse_of_month.settings.home, window, views, f"{days} d of {gpus} GPUs")
        ]


def _store_analysis(warehouse: Warehouse, window: Window) -> None:
    """Store every analyzer's findings and the results of the audits, once, as the service does."""
    if warehouse.query("SELECT count(*) AS n FROM finding")["n"][0].as_py():
        return
    audit_results.audit_hours(warehouse, window)
    pipeline.analyze(warehouse, window, analyzer_runs.load_analyzers(warehouse.settings))


def _measure(home: Path, window: Window, views: list[str], about: str) -> Iterator[Result]:
    port = find_free_port()
    command = [*COMMAND, "--home", str(home), "--listen", f"127.0.0.1:{port}"]
    url = f"http://127.0.0.1:{port}"
    with (
        TemporaryDirectory() as logs,
        serve(command, f"{url}/_stcore/health", Path(logs) / "log") as process,
    ):
        visits = _visit(url, process, window, views)
    print(format_table(visits), flush=True)
    first, pages = visits.pop(""), visits
    yield Result(
        name=f"first page after a start, {about}",
        value=first.whole_s,
        unit="s",
        cpu_s=first.cpu_s,
        reach=FIRST_S,
        note=f"title and filters at {first.painted_s:.1f} s",
    )
    slowest = max(pages, key=lambda view: pages[view].painted_s)
    yield Result(
        name=f"pages: slowest title and filters, {about}",
        value=pages[slowest].painted_s,
        unit="s",
        reach=PAINTED_S,
        note=f"{slowest}; {len(pages)} pages",
    )
    slowest = max(pages, key=lambda view: pages[view].clicked_s[0])
    yield Result(
        name=f"pages: slowest title and filters by a click, {about}",
        value=pages[slowest].clicked_s[0],
        unit="s",
        reach=CLICKED_S,
        note=slowest,
    )
    for view, visit in pages.items():
        yield Result(
            name=f"page complete: {view.replace('_', ' ')}",
            value=visit.whole_s,
            unit="s",
            cpu_s=visit.cpu_s,
            reach=WHOLE_S,
            note=f"title and filters at {visit.painted_s:.2f} s; by a click "
            f"{visit.clicked_s[0]:.2f} s, complete {visit.clicked_s[1]:.2f} s",
        )


def format_table(visits: Mapping[str, Visit]) -> str:
    """Return a row per page: seconds by address and by a click beside the targets, server CPU.

    The row "first" is the first visit after a start; ! marks what misses its target.
    """
    titles = ("page", "title", "complete", "click: title", "complete", "server CPU")
    rows = [titles, ("target, s", f"{PAINTED_S}", f"{WHOLE_S}", f"{CLICKED_S}", f"{WHOLE_S}", "")]
    for view, visit in visits.items():
        whole_s = WHOLE_S if view else FIRST_S
        rows.append(
            (
                view.replace("_", " ") or f"first (target {FIRST_S})",
                _mark(visit.painted_s, PAINTED_S if view else FIRST_S),
                _mark(visit.whole_s, whole_s),
                _mark(visit.clicked_s[0], CLICKED_S) if view else "",
                _mark(visit.clicked_s[1], WHOLE_S) if view else "",
                f"{visit.cpu_s:.2f}",
            )
        )
    return "\n".join(f"{row[0]:<22}" + "".join(f"{cell:>14}" for cell in row[1:]) for row in rows)


def _mark(seconds: float, target_s: float) -> str:
    return f"{'!' if seconds > target_s else ''}{seconds:.2f}"


def _visit(url: str, process: int, window: Window, views: list[str]) -> dict[str, Visit]:
    """Open pages one after another, each for a window an hour shorter; "" is the first visit."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  (of the test group)

    from tests.browser.visiting import WHOLE  # noqa: PLC0415  (it imports the same)

    path = shutil.which("chromium")
    if path is None:
        raise PeerMissingError("chromium is not installed (Debian package chromium)")
    visits: dict[str, Visit] = {}
    with TemporaryDirectory() as profile, sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            profile, executable_path=path, args=FLAGS, viewport={"width": 1440, "height": 900}
        )
        browser.add_init_script(WATCH % WHOLE)
        for n, view in enumerate([*[""] * WARMING, *views]):
            page = browser.new_page()
            before = read_processors_of(process)
            painted, whole = _open(page, url, view or views[0], window, n)
            cpu_s = read_processors_of(process) - before
            clicked = _open_by_click(page, url, view, window, n) if view else (0.0, 0.0)
            visit = Visit(painted, whole, cpu_s, clicked)
            visits.setdefault(view, visit)  # of the warming visits the first
            page.close()
        browser.close()
    return visits


def _open(page: "Page", url: str, view: str, window: Window, later_h: float) -> tuple[float, float]:
    """Open a page by its address; return the seconds until title and filters, and until all."""
    begin, end = window.start + timedelta(hours=later_h), window.end
    query = urlencode({"window": f"{begin:%Y-%m-%dT%H:%M}/{end:%Y-%m-%dT%H:%M}"})
    place = app.build_url_path(view) if view != app.list_names()[0] else ""
    page.goto(f"{url}/{place}?{query}", wait_until="commit")
    return _wait(page)


def _open_by_click(
    page: "Page", url: str, view: str, window: Window, n: int
) -> tuple[float, float]:
    """Open a page by a click in the menu of another one; return the same."""
    start = next(name for name in CLICKED_FROM if name != view)
    _open(page, url, start, window, WARMING + len(app.list_names()) + n)
    page.evaluate("title => window.go(title)", app.get_title(view))
    return _wait(page)


def _wait(page: "Page") -> tuple[float, float]:
    page.wait_for_function("() => window.whole !== null", timeout=PATIENCE_MS)
    painted, whole = page.evaluate("[window.painted, window.whole]")
    return painted / 1000, whole / 1000

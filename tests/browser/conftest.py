"""One browser, one dashboard and one small warehouse whose fleet has hostile neighbours.

Playwright's loop belongs to the thread that started it and would stand in the way of whatever else
runs a loop, so everything of the browser, these tests too, runs in one thread of its own.
"""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("streamlit", reason="the dashboard is an extra: fallow[dashboards]")
pytest.importorskip("playwright", reason="no Playwright: it is in the test group")

from playwright.sync_api import Browser, Playwright, sync_playwright

from fallow.settings import Settings
from tests.browser.neighbours import given, settle
from tests.browser.serving import dashboard, free_port
from tests.browser.visiting import SCREEN, Visitor

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions"]
THREAD: ThreadPoolExecutor = ThreadPoolExecutor(1, thread_name_prefix="browser")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """Run a test of this folder in the browser's thread."""
    wanted = pyfuncitem._fixtureinfo.argnames
    named = {name: pyfuncitem.funcargs[name] for name in wanted}
    THREAD.submit(pyfuncitem.obj, **named).result()
    return True


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Return Debian's chromium without a window; skip where it is absent."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium: install Debian's package chromium")

    def start() -> tuple[Playwright, Browser]:
        playwright = sync_playwright().start()
        return playwright, playwright.chromium.launch(executable_path=path, args=FLAGS)

    playwright, started = THREAD.submit(start).result()
    yield started
    THREAD.submit(started.close).result()
    THREAD.submit(playwright.stop).result()


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return the settings of the demo's warehouse, analyzed, with hostile neighbours."""
    return settle(tmp_path_factory, tmp_path_factory.mktemp("browsed") / "home")


@pytest.fixture(scope="session")
def url(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return where the pages answer."""
    with dashboard(tmp_path_factory.mktemp("dashboard"), given(settings), free_port()) as address:
        yield address


@pytest.fixture(scope="session")
def visitors(browser: Browser, url: str) -> Iterator[Callable[..., Visitor]]:
    """Return a function that gives a person with a browser of their own, by what they are like."""
    met: dict[str, Visitor] = {}

    def meet(**context: Any) -> Visitor:
        key = repr(sorted(context.items()))
        if key not in met:
            met[key] = Visitor(browser, url, **context)
        # A test may have left the window narrow: Streamlit hides elements there.
        met[key].page.set_viewport_size(SCREEN)
        met[key].outside.clear()
        met[key].said.clear()
        return met[key]

    yield meet
    for visitor in met.values():
        THREAD.submit(visitor.context.close).result()

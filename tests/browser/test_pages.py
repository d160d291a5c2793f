"""Every page in a real browser: whole, quiet, reachable, and deaf to hostile names."""

import csv
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from dashboards import app
from fallow.texts import spell_out
from tests.browser.pictures import CHOSEN
from tests.browser.visiting import NAMELESS, WIDTH, Visitor
from tests.dashboards.drawing import HOSTILE

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.timeout(900)]
VIEWS = app.list_names()
MENU = "[data-testid=stSidebarNavLink]"
FAILED = re.compile(r"part of the page failed|Traceback \(most recent|\bError:", re.IGNORECASE)
CUT_TABLES = """() => [...document.querySelectorAll('[data-testid=stDataFrame] .dvn-scroller')]
  .filter(e => e.scrollWidth > e.clientWidth + 1)"""
"""Tables whose last columns are cut at the edge."""
FIRST_ANSWER = """() => {
  const boxes = (name, row) => [...document.querySelectorAll(`[data-testid=${name}]`)]
    .map(e => e.getBoundingClientRect()).map(r => [r.top, row ? r.top + 70 : r.bottom]);
  const alerts = boxes('stAlertContainer'), figures = [...boxes('stMetricValue'),
    ...boxes('stDataFrame', true)];
  const [top, end] = [...(figures.length ? figures : alerts)].sort((a, b) => a[0] - b[0])[0];
  return alerts.filter(a => a[0] < top).reduce((left, a) => left - (a[1] - a[0]) - 16, end);
}"""
"""Pixels above the end of the first figure, of a table's first row or of why there is none; without
warnings."""
FILTERS_BELOW = """() => {
  const filters = document.querySelector('.st-key-filters'), box = filters.getBoundingClientRect();
  return getComputedStyle(filters).position === 'fixed' && box.height < 80
    && Math.round(box.bottom) === window.innerHeight;
}"""
"""Whether the filters are one row at the bottom of the screen, below every figure."""
Visitors = Callable[..., Visitor]


def _by_kind() -> list[Any]:
    """Return the views: one of each kind for every run, the others for the long one.

    tests/dashboards/test_pages.py draws all of them without a browser, with the same names.
    """
    first = {pages[0] for pages in app.SECTIONS.values()}
    return [pytest.param(view, marks=() if view in first else pytest.mark.long) for view in VIEWS]


def path(view: str) -> str:
    """Return the address of a view; the first is what opens."""
    return "" if view == VIEWS[0] else app.build_url_path(view)


@pytest.mark.slow
@pytest.mark.parametrize("view", _by_kind())
def test_page_is_whole_and_quiet(view: str, visitors: Visitors) -> None:
    visitor = visitors()
    page = visitor.go(path(view), window="2d", **CHOSEN.get(view, {}))
    assert page.locator("h1").all_inner_texts() == [app._import_page(view).TITLE]
    assert page.title() == f"{app._import_page(view).TITLE} · Fallow"
    assert "data as of 2026-11-16 00:00 UTC" in visitor.text()
    assert visitor.alerts("Error") == []
    assert not FAILED.search(visitor.text())
    assert page.locator("[data-testid=stException]").count() == 0
    visitor.hears_nothing()
    assert page.evaluate(NAMELESS) == []
    page.wait_for_function(f"() => ({CUT_TABLES})().length === 0")
    page.wait_for_function(f"() => ({FIRST_ANSWER})() <= 400")
    page.set_viewport_size({"width": 390, "height": 800})
    page.wait_for_function(f"() => ({WIDTH})() <= 0")  # no text to evaluate: the policy forbids it
    page.wait_for_function(f"() => ({FIRST_ANSWER})() <= 400")
    page.set_viewport_size({"width": 1280, "height": 900})


@pytest.mark.parametrize("view", ["overview", "queues", "findings"])
def test_a_phone_shows_figures_before_filters_and_rows_as_lists(
    view: str, visitors: Visitors
) -> None:
    visitor = visitors()
    page = visitor.go(path(view), window="2d")
    lists = page.locator("[class*=st-key-phone-]")
    assert not [n for n in range(lists.count()) if lists.nth(n).is_visible()]
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function(FILTERS_BELOW)
    page.wait_for_function(f"() => ({WIDTH})() <= 0")  # charts are drawn anew at their width
    if view != "overview":
        assert re.search(r"\$|unknown", lists.first.inner_text())
        assert lists.first.is_visible()
    page.set_viewport_size({"width": 1280, "height": 900})


def test_the_first_page_answers_to_its_name_too(visitors: Visitors) -> None:
    visitor = visitors()
    page = visitor.go(app.build_url_path(VIEWS[0]), window="2d")
    assert page.locator("h1").all_inner_texts() == [app._import_page(VIEWS[0]).TITLE]
    assert page.get_by_text("Page not found").count() == 0
    assert page.locator(MENU).count() == len(VIEWS)
    visitor.hears_nothing()


def test_an_old_address_opens_its_tab_and_an_unknown_one_says_so(visitors: Visitors) -> None:
    visitor = visitors()
    page = visitor.go("policies", window="2d", team="vision")
    page.get_by_role("tab", name="Policies", selected=True).wait_for()
    assert page.url == f"{visitor.home}/actions?tab=Policies&window=2d&team=vision"
    for address in ("nowhere", "no/such/folder"):
        page = visitor.go(address)
        assert page.locator("h1").all_inner_texts() == ["No such page"]
        assert f"/{address}" in re.sub("[\u2060\u2066-\u2069]", "", visitor.text())
        assert page.get_by_text("Page not found").count() == 0
    page.get_by_role("link", name="Go to the overview").click()
    page.locator("h1", has_text="Overview").wait_for()
    visitor.hears_nothing()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(HOSTILE[0], id="script"),
        # tests/dashboards/test_pages.py: every hostile name on every page, without a browser.
        pytest.param(HOSTILE[1], id="direction", marks=pytest.mark.long),
        pytest.param(HOSTILE[2], id="253", marks=pytest.mark.long),
    ],
)
def test_hostile_name_is_shown_as_its_characters(name: str, visitors: Visitors) -> None:
    visitor = visitors()
    page = visitor.go("chargeback", window="2d", team=name)
    answer = re.sub("[\u2060\u2066-\u2069]", "", visitor.text())
    assert spell_out(name)[:39] in answer
    assert page.locator("[data-testid=stMain] script").count() == 0
    assert page.evaluate(WIDTH) <= 0
    visitor.hears_nothing()


def test_what_is_chosen_stands_in_the_url_and_survives_a_reload(visitors: Visitors) -> None:
    visitor = visitors()
    page = visitor.go("spend")
    for label, value in (("Window", "12h"), ("Team", HOSTILE[0])):
        visitor.choose(label, value)
    page.reload()
    visitor.arrive()
    caption = page.locator("[data-testid=stCaptionContainer]", has_text="data as of")
    caption.filter(has_text="(12h)").filter(has_text=HOSTILE[0]).wait_for()
    visitor.hears_nothing()


def test_a_team_stays_on_the_next_page_by_back_and_by_a_shared_address(
    visitors: Visitors,
) -> None:
    visitor = visitors()
    page = visitor.go("spend", window="2d")
    visitor.choose("Team", "vision")
    page.locator(MENU, has_text="Chargeback").click()
    page.locator("h1", has_text="Chargeback").wait_for()
    page.wait_for_url(f"{visitor.home}/chargeback?*team=vision*")
    visitor.arrive()
    shared = page.url
    assert parse_qs(urlsplit(shared).query) == {"window": ["2d"], "team": ["vision"]}
    visitor.choose("Team", "genai")
    page.go_back()
    page.locator("h1", has_text="Spend").wait_for()
    visitor.arrive()
    assert urlsplit(page.url).path == "/spend"
    assert parse_qs(urlsplit(page.url).query) == {"window": ["2d"], "team": ["vision"]}
    page.locator("[data-testid=stCaptionContainer]", has_text="team \u2068vision").wait_for()
    with visitor.context.browser.new_context() as fresh:  # type: ignore[union-attr]
        other = fresh.new_page()
        other.goto(shared)
        caption = other.locator("[data-testid=stCaptionContainer]", has_text="(2d)")
        caption.filter(has_text="team \u2068vision").wait_for()
    visitor.hears_nothing()


def test_a_search_lists_the_workloads_that_bear_the_text(visitors: Visitors) -> None:
    visitor = visitors()
    page = visitor.go("spend", window="2d", team="search")
    page.get_by_label("Search workloads").fill("forgotten")
    page.get_by_label("Search workloads").press("Enter")
    page.wait_for_url(f"{visitor.home}/timeline?*search=forgotten*")
    page.locator("h1", has_text="Timeline").wait_for()
    assert parse_qs(urlsplit(page.url).query) == {
        "window": ["2d"],
        "team": ["search"],
        "search": ["forgotten"],
    }
    page.get_by_text("Workloads with").wait_for()
    visitor.hears_nothing()


@pytest.mark.parametrize(
    ("scheme", "colour"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(18, 22, 29)")]
)
def test_page_has_the_colours_that_people_asked_for(
    scheme: str, colour: str, visitors: Visitors
) -> None:
    visitor = visitors() if scheme == "light" else visitors(color_scheme=scheme)
    page = visitor.go("spend", window="2d")
    behind = "getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"
    assert page.evaluate(behind) == colour


def test_keyboard_reaches_every_page_and_filter(visitors: Visitors) -> None:
    visitor = visitors()
    page = visitor.go("spend", window="2d")
    wanted = {f"{visitor.home}/{path(view)}" for view in VIEWS}
    reached: set[str] = set()
    for _ in range(3 * len(VIEWS) + 30):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "(e => e.href || e.ariaLabel || e.innerText || '')(document.activeElement)"
            )
        )
    assert wanted <= {address.partition("?")[0] for address in reached}
    assert any("Window" in label for label in reached)
    page.locator(MENU, has_text=app._import_page(VIEWS[1]).TITLE).focus()
    page.keyboard.press("Enter")
    page.locator("h1", has_text=app._import_page(VIEWS[1]).TITLE).wait_for()


def test_keyboard_reaches_a_table_and_opens_its_second_row(visitors: Visitors) -> None:
    visitor = visitors()
    page = visitor.go("chargeback", window="2d")
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(e => +e.tagName[1])")
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    page.get_by_label("Search workloads").focus()
    reached: list[str] = []
    while "canvas" not in reached and len(reached) < 40:
        page.keyboard.press("Tab")
        label = "(e => e.tagName == 'CANVAS' ? 'canvas' : e.ariaLabel || '')"
        reached.append(page.evaluate(f"{label}(document.activeElement)"))
    assert "canvas" in reached
    page.get_by_label("Open a row of: Chargeback by team").focus()
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    page.wait_for_url(re.compile(r"[?&]team="))
    visitor.hears_nothing()


def test_a_chart_is_saved_as_a_picture_by_its_tool_bar(visitors: Visitors) -> None:
    visitor = visitors()
    page = visitor.go("spend", window="2d")
    page.get_by_role("button", name="Download as PNG").first.focus()
    with page.expect_download() as began:
        page.keyboard.press("Enter")
    assert began.value.path().read_bytes().startswith(b"\x89PNG")
    visitor.hears_nothing()


def test_another_site_shows_no_page_in_a_frame(visitors: Visitors) -> None:
    visitor = visitors()
    with visitor.context.new_page() as other:
        answer: list[str] = []
        other.on("console", lambda message: answer.append(message.text))
        other.set_content(f"<iframe src='{visitor.home}/'></iframe>")
        frame = other.frames[1]
        frame.wait_for_load_state()
        assert frame.locator("[data-testid=stApp]").count() == 0
        assert any("frame-ancestors 'none'" in text for text in answer), answer


def test_a_table_is_downloaded_without_formulas(visitors: Visitors) -> None:
    visitor = visitors()
    page = visitor.go("chargeback", window="2d")
    page.locator("[data-testid=stDataFrame]").first.hover()
    page.get_by_role("button", name="Fullscreen").first.wait_for()  # the toolbar of the table
    assert page.get_by_role("button", name="Download as CSV").count() == 0
    with page.expect_download() as began:
        page.locator("[data-testid=stDownloadButton] button").first.click()
    assert began.value.suggested_filename == "chargeback-by-team.csv"
    header, *rows = csv.reader(began.value.path().read_text(encoding="utf-8").splitlines())
    assert header[0] == "team"
    assert f"'{HOSTILE[-1]}" in [row[0] for row in rows]
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "@", "+"))]
    visitor.hears_nothing()

"""Every view that lies in `dashboards/views`, held to the rules of pages."""

import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow.compute as pc
import pytest
from streamlit.testing.v1 import AppTest

from dashboards import app, charts, data, filters, links, views
from dashboards.text import escape, format_money
from dashboards.views import unit_cost
from fallow.demo_marker import MARKER, WORLD
from fallow.errors import TemporaryError
from fallow.settings import Settings
from fallow.window import Window
from runtime.operations.accounting import ledger_totals
from tests.dashboards.drawing import HOSTILE, Draw, elements, hostile_rows, stored, texts
from warehouse import coverage, statements
from warehouse.failures import explain_errors
from warehouse.lake import Warehouse

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pages")]  # the demo's fleet is played once

VIEWS = app.list_parts()
FIRST_PARTS = {view.partition("/")[0]: view for view in reversed(VIEWS)}.values()
MOST_ELEMENTS = 30
FAILED = "This part of the page failed"
each_view = pytest.mark.parametrize("view", VIEWS)


def whole(page: AppTest) -> list[str]:
    """Return what a page says, once it is sure that nothing of it failed."""
    assert not page.exception
    answer = texts(page)
    assert not [text for text in answer if FAILED in text], answer
    return answer


def test_there_are_fourteen_pages() -> None:
    wanted = (
        "overview spend gpu_hours chargeback unit_cost fleet timeline queues findings actions "
        "capacity health data mine"
    )
    assert sorted(app.list_names()) == sorted(wanted.split())
    in_folder = {path.stem for path in Path(views.__path__[0]).glob("*.py")} - {"__init__"}
    assert not [tab for tab in in_folder if not tab.startswith(tuple(app.list_names()))]


@each_view
def test_page_of_a_demo_keeps_the_rules_and_says_so_above_everything_else(
    view: str, fleet: Settings, draw: Draw
) -> None:
    page = draw(view, fleet)
    whole(page)
    banner = [text.value for text in page.markdown if "**Demo data:**" in text.value]
    assert len(banner) == 1
    assert not [w for w in page.warning if "old" in w.value], "a demo is old by its nature"
    assert len(page.title) == 1
    assert elements(page) <= MOST_ELEMENTS
    assert any("data as of 2026-11-16 00:00 UTC" in c.value for c in page.caption)
    for drawn in page.get("vega_lite_chart"):
        assert len(drawn.proto.alt) > 10
        assert len(drawn.proto.spec) < 2_000_000


@each_view
def test_page_of_an_empty_team_says_so(view: str, fleet: Settings, draw: Draw) -> None:
    page = draw(view, fleet, team="nobody-at-all")
    answer = whole(page)
    assert page.info or page.dataframe or page.get("vega_lite_chart"), answer


@each_view
def test_hostile_names_are_text_on_every_page(view: str, hostile: Settings, draw: Draw) -> None:
    name = HOSTILE[VIEWS.index(view) % len(HOSTILE)]
    # Tabs of one page have the same row of filters.
    teams = [{}, {"team": name}] if view in FIRST_PARTS else [{}]
    for page in [draw(view, hostile, window="24h", **team) for team in teams]:
        for text in whole(page):
            unescaped = re.sub(r"\\.", "", text)
            assert "<script" not in unescaped
            assert "](http" not in unescaped
            assert "**bold**" not in unescaped
            assert "\u202e" not in text
            assert "x" * 220 not in text
        for element in [*page.markdown, *page.caption]:
            assert not element.proto.allow_html
        down = [w for w in page.warning if "is down" in w.value and "missing below" in w.value]
        assert len(down) == 3, "of many collectors that are down the first three are named"


def test_a_long_list_shows_its_dearest_and_says_how_many_there_are(
    fleet: Settings, draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_cost, "LISTED", 1)
    page = draw("unit_cost", fleet)
    assert any(text.startswith("The 1 most expensive of ") for text in whole(page))
    listed = [table.value for table in page.dataframe if "workload" in table.value.columns]
    assert {len(rows) for rows in listed} == {1}


def test_page_without_any_data_says_what_to_do(empty: Settings, draw: Draw) -> None:
    answer = whole(draw("spend", empty))
    assert any("Nothing was collected yet" in text and "fallow collect" in text for text in answer)


def test_page_without_a_warehouse_says_what_to_do(tmp_path: Path, draw: Draw) -> None:
    page = draw("spend", Settings(home=tmp_path / "nowhere"))
    assert any(
        "there is no warehouse" in e.value and "fallow collect" in e.value for e in page.error
    )
    assert not page.exception


@pytest.mark.parametrize("window", ["2031-01-01/2031-01-08", "2019-01-01/2019-01-08"])
def test_window_without_data_is_said(window: str, fleet: Settings, draw: Draw) -> None:
    page = draw("spend", fleet, window=window)
    whole(page)
    word = "in the future" if window.startswith("2031") else "there"
    assert any(f"Nothing lies {word}" in i.value and "2026-11-13" in i.value for i in page.info)


def test_warehouse_in_use_is_a_page_that_can_try_again(
    fleet: Settings, draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_home: str) -> None:
        raise TemporaryError("the warehouse is in use: database is locked", hint="try again")

    data.forget()
    with monkeypatch.context() as patched:
        patched.setattr(data, "_open_warehouse", away)
        page = draw("spend", fleet)
    assert not page.exception
    assert any("in use" in warning.value for warning in page.warning)
    assert [button.label for button in page.button] == ["Try again"]
    assert len(whole(page.button[0].click().run())) > 5
    assert page.metric


def test_a_store_that_is_away_is_said_on_the_page_which_can_try_again(
    fleet: Settings, draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        with explain_errors("the store"):
            raise duckdb.IOException(
                "Connection error for HTTP HEAD to http://127.0.0.1:9/lake/a.parquet"
            )

    data.forget()
    with monkeypatch.context() as patched:
        patched.setattr(statements, "run_select", away)
        page = draw("spend", fleet)
    answer = [warning.value for warning in page.warning]
    assert not page.exception
    assert answer
    assert all("S3" in text or "object store" in text for text in answer), answer
    assert "Try again" in {button.label for button in page.button}
    assert whole(page.button[0].click().run())
    assert page.metric


@pytest.mark.parametrize(
    ("window", "said"),
    [
        ("yesterday", "is not a duration"),
        ("2026-11-15/2026-11-14", "ends"),
        ("0d", "is not a duration"),
        ("/", "is not a duration"),
    ],
)
def test_window_that_is_none_is_refused_with_what_is_legal(
    window: str, said: str, fleet: Settings, draw: Draw
) -> None:
    page = draw("spend", fleet, window=window)
    assert not page.exception
    assert any(said in error.value.replace("\\", "") for error in page.error)


def test_url_is_the_page(fleet: Settings, draw: Draw) -> None:
    narrow = draw("spend", fleet, window="24h", team="genai", view="gpu", by="pool")
    wide = draw("spend", fleet, window="2d")
    assert "24h" not in [c.value for c in wide.caption]
    caption = narrow.caption[0].value
    assert "(1d)" in caption
    assert "genai" in caption
    assert "GPU part only" in caption
    assert "name" in narrow.dataframe[0].value.columns
    total, *pools = narrow.dataframe[0].value["name"]
    assert total == "total"
    assert set(pools) <= {
        "h100",
        "h100-spot",
        "h100-gke",
        "a100",
        "l40s",
        "l4",
        "h100-mig",
    }
    assert narrow.metric[0].value != wide.metric[0].value


END = datetime(2026, 11, 16, tzinfo=UTC)
DAY_BEFORE = (END - timedelta(days=1)).replace(tzinfo=None)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("24h", END - timedelta(hours=24), END),
        ("24h/now", END + timedelta(days=6), END + timedelta(days=7)),
        ("2026-11-14/2026-11-15", END - timedelta(days=2), END - timedelta(days=1)),
    ],
)
def test_lengths_end_at_the_newest_hour_and_now_is_the_wall_clock(
    text: str, start: datetime, end: datetime
) -> None:
    assert coverage.parse_window(text, END + timedelta(days=7), END) == Window(start, end)


def test_every_figure_of_the_overview_explains_itself(fleet: Settings, draw: Draw) -> None:
    page = draw("overview", fleet, window="1d")
    labels = [m.label for m in page.metric]
    assert labels == ["Cash", "Could be saved", "Wasted", "Paid", "Verified saved"]
    for metric in page.metric:
        assert "Source: " in metric.help, metric.label
        assert "2026-11-15 00:00 to 2026-11-16 00:00 UTC, 24 of 24 h have data" in metric.help
    assert [m.delta for m in page.metric[2:4] if not re.fullmatch(r"[+-]\d+\.\d%", m.delta)] == []
    whole = draw("overview", fleet, window="3d")
    assert all("Its change is unknown: no data of " in m.help for m in whole.metric)
    assert not [m.delta for m in whole.metric if re.fullmatch(r"[+-]\d+\.\d%", m.delta)]


def test_a_step_to_do_opens_its_finding(fleet: Settings, draw: Draw) -> None:
    page = draw("overview", fleet)
    buttons = [button for button in page.button if button.label.startswith("Open ")]
    assert [button.label for button in buttons] == [f"Open {n}" for n in range(1, 6)]
    buttons[0].click().run()
    address, names = page.session_state[links.TARGET]
    assert address == "findings"
    assert f"finding {names['finding']}" in buttons[0].help


def test_chosen_days_are_an_absolute_window(fleet: Settings, draw: Draw) -> None:
    page = draw("spend", fleet)
    [days] = page.date_input
    days.set_value((date(2026, 11, 14), date(2026, 11, 15))).run()
    assert page.selectbox(key="window").value == "2026-11-14/2026-11-16"
    assert any("2026-11-14 00:00 to 2026-11-16 00:00 UTC (2d)" in c.value for c in page.caption)


def test_refresh_is_off_unless_somebody_turns_it_on(fleet: Settings, draw: Draw) -> None:
    page = draw("spend", fleet)
    assert page.selectbox(key="refresh").value == "off"
    assert "1m" in page.selectbox(key="refresh").options
    assert not page.selectbox(key="refresh").select("1m").run().exception


def test_a_search_asks_for_the_timeline(fleet: Settings, draw: Draw) -> None:
    page = draw("spend", fleet)
    page.text_input(key=filters.SEARCH).input("  forgotten ").run()
    assert page.session_state[links.TARGET] == ("timeline", {"search": "forgotten"})


def test_month_is_the_one_that_the_data_end_in() -> None:
    first = datetime(2026, 11, 1, tzinfo=UTC)
    later = first + timedelta(days=40)
    assert coverage.parse_window("month", later, first).start == datetime(2026, 10, 1, tzinfo=UTC)
    assert coverage.parse_window("month", later, first + timedelta(hours=1)).start == first


def test_a_page_of_old_data_shows_the_hours_and_the_bill_of_spend(
    fleet: Settings, draw: Draw, views: Warehouse
) -> None:
    page = draw("spend", fleet, window="24h")
    result = next(c.value for c in page.caption if "data as of" in c.value)
    assert "2026-11-15 00:00 to 2026-11-16 00:00 UTC (1d)" in result
    assert "24 of 24 h have data" in result
    spent = ledger_totals.read_total_spend(
        views,
        "24h",
        now=END + timedelta(days=7),
        cluster=None,
        by=["team"],
        view="loaded",
        share_unallocated=False,
    )
    paid = next(m.value for m in page.metric if m.label == "Paid")
    assert paid == format_money(spent.total["usd"])


def test_stale_data_are_said_above_every_figure(hostile: Settings, draw: Draw) -> None:
    answer = [w.value for w in draw("overview", hostile, window="24h").warning]
    assert any("are stale: the newest sample is" in text for text in answer), answer


def test_data_quality_measures_from_now(hostile: Settings, draw: Draw) -> None:
    page = draw("data", hostile)
    ledger = next(m for m in page.metric if m.label == "Ledger")
    days = (datetime.now(UTC) - END).days
    assert ledger.delta.startswith(f"{days}d")
    assert ledger.delta.endswith("behind now")


def test_a_cluster_that_is_behind_is_named_above_every_figure(tmp_path: Path, draw: Draw) -> None:
    settings = Settings(home=tmp_path / "home")
    with Warehouse.open(settings, write=True) as warehouse:
        for batch in hostile_rows(("ahead", "behind")):
            if batch.table == "device":
                stored(warehouse, batch)
            elif batch.table == "ledger":
                late = (pc.field("cluster") == "behind") & (pc.field("bucket") >= DAY_BEFORE)
                warehouse.replace("ledger", batch.rows.filter(~late))
    page = draw("spend", settings, window="24h")
    answer = [w.value for w in page.warning]
    [late] = [text for text in answer if "its last hour ended" in text]
    assert late.startswith(
        "Cluster \u2068behind\u2069 is behind: its last hour ended 2026-11-15 00:00"
    )
    assert "0 of 24 h have data" in late


@pytest.mark.parametrize("name", HOSTILE)
def test_plain_text_shows_exactly_its_characters(name: str) -> None:
    shown = escape(name, 300)
    assert shown.startswith("\u2068")
    assert shown.endswith("\u2069")
    back = re.sub(r"\\(.)", r"\1", shown[1:-1]).replace("\u2060", "")
    assert back == name.replace("\u202e", "\\u202e")


@pytest.mark.parametrize("name", ["http://evil.example", "www.evil.example", "WWW.e.co", "a@b.co"])
def test_addresses_in_names_are_no_links(name: str) -> None:
    shown = re.sub(r"\\(.)", r"\1", escape(name))
    assert not re.search(r"://|:/|www\.|@b", shown, re.IGNORECASE)
    assert shown[1:-1].replace("\u2060", "") == name


def test_tables_and_charts_show_what_would_turn_a_name_around(
    hostile: Settings, draw: Draw
) -> None:
    page = draw("chargeback", hostile, window="24h")
    total, *teams = page.dataframe[0].value["team"].to_list()
    assert total == "total, the bill"
    assert len(teams) == len(HOSTILE)
    assert not any("\u202e" in team for team in teams)
    assert any("\\u202egnp.exe" in team for team in teams)
    drawn = charts.build_values([{"name": name} for name in HOSTILE]).to_dict()
    assert "\\u202egnp.exe" in drawn["values"][1]["name"]


def test_colours_can_be_told_from_both_pages() -> None:
    for colour in {*charts.STATE_COLOURS.values(), *charts.SERIES}:
        for page in ("#ffffff", "#12161d"):
            assert contrast(colour, page) >= 3, (colour, page)


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours as WCAG 2.2 defines it."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_now_on_pages_of_a_demo_is_its_fleets_time(tmp_path: Path, draw: Draw) -> None:
    settings = Settings(home=tmp_path)
    with Warehouse.open(settings, write=True) as warehouse:
        stored(warehouse, *hostile_rows(["a"]))
    reached = datetime(2026, 11, 16, 2, tzinfo=UTC)  # two hours after the newest sample
    (tmp_path / MARKER).touch()
    (tmp_path / WORLD).write_text(f'{{"type":"advance","until_s":{reached.timestamp()}}}\n')
    page = draw("data", settings, window="24h/now")
    said = whole(page)
    assert any("2026-11-15 02:00 to 2026-11-16 02:00 UTC" in text for text in said), said
    assert any(text.endswith("data as of 2026-11-16 00:00 UTC, 2h old") for text in said), said
    assert "2h behind now" in said


def test_no_target_of_a_demo_is_a_file_of_this_machine(fleet: Settings) -> None:
    with Warehouse.open(fleet) as warehouse:
        rows = warehouse.query("SELECT DISTINCT target FROM scrape WHERE collector = 'kubectl'")
    assert rows["target"].to_pylist()
    assert all(target.startswith("https://kubernetes.") for target in rows["target"].to_pylist())

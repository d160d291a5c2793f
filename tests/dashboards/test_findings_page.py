"""Findings: a row per workload, its evidence as a chart, its details in words."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards import detail_words
from dashboards.detail_words import describe_details, describe_kind
from dashboards.figures import inbox
from dashboards.figures.inbox import FindingChoice
from dashboards.figures.query import Filters
from dashboards.text import format_three_digits
from dashboards.views import capacity
from fallow.finding_kinds import read_declarations
from fallow.money import round_to_cents
from fallow.resources import read_table
from fallow.settings import Settings
from fallow.window import Window
from tests.dashboards.drawing import Draw, texts
from tests.reports import small
from warehouse.lake import Warehouse

END = datetime(2026, 11, 16, tzinfo=UTC)
WINDOW = Window(END.replace(day=13), END)
ALL, ANY = Filters(), FindingChoice()


def test_details_are_sentences_with_units_and_unknown_is_said() -> None:
    lines = describe_details(
        "stalled",
        {
            "why": "is said elsewhere",
            "actionable": False,
            "share": 0.67683,
            "hours_of": {"low": 49.75},
            "progress": None,
            "checkpoint": {"every_s": 5970, "source": "writes"},
            "signals": {"physics": "137 W flat"},
        },
    )
    assert lines == (
        "May be acted upon: no",
        "67.7 % of its hours are counted as waste",
        "low: 49.8 GPU-h",
        "Progress: unknown",
        "Checkpoints: every 1h39m, known from writes",
        "Power: 137 W flat",
    )


def test_an_unknown_key_is_a_readable_name_with_the_unit_of_its_end() -> None:
    lines = describe_details(
        "somebodys", {"lost_gpu_hours": 12.345, "odd_rows": [{"a_key": 1.0, "b": "x"}]}
    )
    assert lines == ("lost gpu hours: 12.3 GPU-h", "odd rows: a key: 1; b: x")


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = st.recursive(
    LEAVES,
    lambda part: (
        st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=8), part, max_size=3)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["devices", "figures", "rule", "odd_key"]), JSON))
def test_any_details_can_be_written(details: dict[str, object]) -> None:
    for analyzer in ("idle", "reliability", "other"):
        for text in describe_details(analyzer, details):
            assert len(text) <= detail_words.LONGEST


def test_every_unit_and_kind_of_the_tables_exists() -> None:
    rows = read_table("dashboards", "detail_words.csv")
    units = {row["unit"] for row in rows}
    units |= {words.unit for d in read_declarations().values() for words in d.details.values()}
    assert units <= {*detail_words.UNITS, "", "text", "time", "yes_no"}
    assert len({row["key"] for row in rows}) == len(rows)
    assert describe_kind("idle_notebook") == "idle notebook"
    assert describe_kind("of_a_plugin") == "of a plugin"


def test_every_advice_about_capacity_has_an_answer() -> None:
    answers = read_table("dashboards", "capacity_answers.csv")
    advised = [*read_table("analyzers.demand", "advice.csv")]
    advised += [*read_table("analyzers.pools", "advice.csv")]
    assert {row["kind"] for row in advised} <= {row["kind"] for row in answers}
    assert {row["answer"] for row in answers} == {*capacity.HEADINGS}


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (0.01234, "0.0123"),
        (1.5, "1.5"),
        (99.95, "100"),
        (1234.5, "1,230"),
        (-12.34, "-12.3"),
    ],
)
def test_numbers_have_three_significant_digits(number: float, text: str) -> None:
    assert format_three_digits(number) == text


def test_the_list_says_how_many_save_and_reads_verbs_as_words(tmp_path: Path, draw: Draw) -> None:
    tables = small.rows()
    first = tables["finding"][0]
    document = json.loads(first["document"])
    document["recommendations"][0] |= {"verb": "raise-limits", "marginal_gpu_hours": 0.0}
    tables["finding"] = [first | {"document": json.dumps(document)}, *tables["finding"][1:2]]
    settings = small.fill(tmp_path / "home", tables)
    page = draw("findings", settings, window="3d", finding=first["id"])
    count = next(m for m in page.metric if m.label == "Findings")
    assert (count.value, count.delta) == ("2", "1 save; 2 workloads")
    saved = next(m for m in draw("overview", settings, window="3d").metric if "saved" in m.label)
    assert saved.delta == "1 saving finding"
    assert {*page.dataframe[0].value["verb"]} == {"raise limits", "suspend"}
    assert any("raise limits" in text for text in texts(page))
    assert not any("raise-limits" in text.replace("\\", "") for text in texts(page))
    one = draw("findings", settings, window="3d", team="speech")
    assert next(m for m in one.metric if m.label == "Findings").delta == "1 save; 1 workload"


@pytest.mark.slow
@pytest.mark.xdist_group("pages")
def test_a_row_per_workload_adds_up_to_the_findings(views: Warehouse) -> None:
    findings = inbox.list_inbox(views, WINDOW, ALL).to_pylist()
    rows = inbox.list_workloads(views, WINDOW, ALL, ANY).to_pylist()
    workloads = [(row["cluster"], row["workload"]) for row in rows]
    assert len(workloads) == len({*workloads}) < len(findings) < inbox.MOST
    totals = inbox.read_totals(views, WINDOW, ALL)
    assert sum(row["findings"] for row in rows) == len(findings) == totals.findings
    assert sum(row["usd"] for row in findings if row["usd"] is not None) == sum(
        row["usd_all"] or 0 for row in rows
    )
    assert totals.usd == round_to_cents(
        sum((row["usd_all"] or Decimal() for row in rows), Decimal())
    )
    several = next(row for row in rows if row["findings"] > 1)
    of_it = inbox.list_findings_of(
        views, WINDOW, ALL, ANY, (several["cluster"], several["workload"])
    ).to_pylist()
    assert of_it[0]["id"] == several["id"]
    assert len(of_it) == several["findings"]
    idle = inbox.list_workloads(views, WINDOW, ALL, FindingChoice("idle", evidence="confirmed"))
    assert {*idle["analyzer"].to_pylist()} == {"idle"}
    assert idle.num_rows < len(rows)


@pytest.mark.slow
@pytest.mark.xdist_group("pages")
def test_a_link_to_any_finding_opens_its_workload_with_chart_and_words(
    fleet: Settings, views: Warehouse, draw: Draw
) -> None:
    rows = inbox.list_workloads(views, WINDOW, ALL, ANY).to_pylist()
    worst = next(row for row in rows if row["findings"] > 1 and row["analyzer"] == "idle")
    further = inbox.list_findings_of(
        views, WINDOW, ALL, ANY, (worst["cluster"], worst["workload"])
    ).to_pylist()[1]
    page = draw("findings", fleet, finding=further["id"])
    assert not page.exception
    text = " ".join(texts(page))
    assert worst["workload"].rpartition("/")[2].replace("-", "\\-") in text
    assert f"fallow explain {further['id']}" in text, "the linked finding is open"
    assert f"fallow explain {worst['id']}" in text, "the worst finding stands first"
    assert "What to do" in text
    assert "Samples exist for" in text
    assert len(page.get("vega_lite_chart")) >= 2
    for wrong in ('{"', "None", "null", "devices_held", "idle_band"):
        assert wrong not in text
    marked = json.loads(page.get("vega_lite_chart")[0].proto.spec)
    assert "rect" in json.dumps(marked), "the time of the finding is shaded"


@pytest.mark.slow
@pytest.mark.xdist_group("pages")
def test_the_old_tab_of_anomalies_is_now_a_kind(fleet: Settings, draw: Draw) -> None:
    page = draw("findings", fleet, tab="Anomalies")
    assert not page.exception
    assert next(box for box in page.selectbox if box.label == "Kind").value == "anomalies"
    assert page.get("vega_lite_chart")
    assert page.info, "three days have no anomaly, and the page says so"

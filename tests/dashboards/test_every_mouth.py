"""Every mouth has the same answer: pages, commands, reports, MCP, `fallow.connect` and metrics."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

import fallow
from dashboards.figures import inbox
from dashboards.figures.query import Filters
from dashboards.page import format_hours, format_money
from dashboards.reports.amounts import format_usd
from fallow.settings import Settings
from fallow.window import Window
from runtime.cli import run
from runtime.operations.answers import reports
from runtime.operations.answers.fleet_answers import FleetAnswers
from runtime.service.metrics import SelfMetrics
from tests.cli.test_mcp import unmark
from tests.dashboards.drawing import Draw
from tests.dashboards.figure_table import READ, Figure, find_window, read_figures, same
from warehouse.lake import Warehouse

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("pages")]
PAGES = (
    "overview", "spend/Forecast and budget", "spend/Waste by owner", "gpu_hours", "findings",
    "fleet", "health", "actions/Verified savings",
)  # fmt: skip
AUDIENCES = ("finance", "sre")
LEAST_SHOWN = 15
"""Figures that the pages show, at least: fewer means that labels were renamed."""


@pytest.fixture
def views(fleet: Settings) -> Iterator[Warehouse]:
    with Warehouse.open(fleet) as warehouse:
        yield warehouse


@pytest.fixture(params=["7d", "1h"])
def window(request: pytest.FixtureRequest, fleet: Settings, views: Warehouse) -> Window:
    return find_window(fleet, views, request.param)


@pytest.fixture
def figures(views: Warehouse, window: Window) -> dict[str, Any]:
    return read_figures(views, window, Filters())


def format_bounds(window: Window) -> str:
    """Return a window as addresses and commands have it, in UTC."""
    return "/".join(f"{at:%Y-%m-%dT%H:%M}" for at in (window.start, window.end))


def write(figure: Figure, value: Any, usd: Callable[[Decimal], str]) -> str:
    """Return a figure as people read it; `usd` formats dollars."""
    if figure.unit == "USD":
        return plain(usd(value))
    if figure.unit == "GPU-hours":
        return plain(format_hours(value))
    return f"{value:.1%}" if figure.unit == "share" else f"{value:,.3g}"


def plain(text: str) -> str:
    return re.sub(r"[\\\u2068\u2069\u2060]", "", text)


def test_pages(fleet: Settings, window: Window, figures: dict[str, Any], draw: Draw) -> None:
    shown = 0
    bounds = format_bounds(window)
    for page in PAGES:
        for metric in draw(page, fleet, window=bounds).metric:
            figure = READ.get(metric.label)
            if figure is None or figures[metric.label] is None:
                continue
            value = figures[metric.label]
            texts = [
                plain(str(t))
                for t in (metric.value, metric.proto.delta_description or metric.delta)
            ]
            wanted = write(figure, value, format_money)
            assert any(text.startswith(wanted) for text in texts), (
                page,
                metric.label,
                texts,
                wanted,
            )
            shown += 1
    assert shown >= LEAST_SHOWN


def test_reports(views: Warehouse, window: Window, figures: dict[str, Any]) -> None:
    shown = 0
    for audience in AUDIENCES:
        text = reports.produce(
            views, Settings(), audience=audience, window=window, fmt="md",
            now=window.end + timedelta(hours=1),
        ).body.decode()  # fmt: skip
        for label, value in re.findall(r"^\| (.+?) \| \*\*(.+?)\*\* \|", text, re.MULTILINE):
            if label in READ and figures[label] is not None:
                assert plain(value) == write(READ[label], figures[label], format_usd), (
                    audience,
                    label,
                )
                shown += 1
    assert shown >= 7


def find_number(body: Any, path: str) -> Any:
    """Return a number of a document by its path; dollars are decimal."""
    for name in path.split("."):
        body = body[name]
    return Decimal(str(body)) if body is not None and path.endswith("usd") else body


def compare(body: Any, command: str, figures: dict[str, Any]) -> None:
    """Compare the figures of a command with its document."""
    for label, figure in READ.items():
        name, _, path = figure.command.partition(" ")
        if name == command:
            answer = find_number(body, path)
            assert same(figures[label], answer), (label, figures[label], answer)


@pytest.mark.parametrize("command", ["spend", "incidents", "saved"])
def test_commands(
    fleet: Settings,
    window: Window,
    figures: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    bounds = format_bounds(window)
    words = ["--since", bounds.partition("/")[0]]
    words = words if command == "saved" else ["--window", bounds]
    assert run([command, "--home", str(fleet.home), *words, "-o", "json"]) == 0
    body = json.loads(capsys.readouterr().out)
    if command == "saved" and not body["total"]["actions"]:
        body["total"]["usd"] = None
    compare(body, command, figures)


def test_assistants_and_notebooks(fleet: Settings, window: Window, figures: dict[str, Any]) -> None:
    answers = FleetAnswers(fleet, {}, clock=lambda: window.end)
    answer = answers.spend("team", format_bounds(window), "loaded", 50)
    compare({**answer["answer"], "coverage": answer["coverage"]}, "spend", figures)
    with fallow.connect(fleet.home) as opened:
        document = json.dumps(opened.spend(window=window).document, default=encode)
    compare(json.loads(document), "spend", figures)


def encode(value: Any) -> Any:
    """Return what JSON has for a value: numbers for dollars."""
    return float(value) if isinstance(value, Decimal) else msgspec.to_builtins(value)


def test_an_analysis_of_the_same_hours_saves_what_is_stored(
    fleet: Settings, views: Warehouse
) -> None:
    window = find_window(fleet, views, "7d")
    stored = read_figures(views, window, Filters())
    answers = FleetAnswers(fleet, {}, clock=lambda: window.end)
    answer = answers.findings([], format_bounds(window), None, 200)
    blocks = inbox.choose_steps(inbox.list_inbox(views, window, Filters()).to_pylist(), 5)
    listed = [(block["cluster"], block["workload"], block["verb"]) for block in blocks]
    answered = [unmark(block) for block in answer["answer"]["blocks"]]
    assert [(block["cluster"], block["workload"], block["verb"]) for block in answered] == listed
    sums = answer["answer"]["reconciliation"]
    assert float(sums["saves_usd"]) == pytest.approx(float(stored["Could be saved"]), abs=0.02)
    assert float(sums["at_most_usd"]) == pytest.approx(float(stored["At most"]), abs=0.02)


def test_metrics(fleet: Settings, views: Warehouse) -> None:
    window = find_window(fleet, views, "24h")
    metrics = SelfMetrics()
    metrics.record_fleet(views, fleet.cluster, window.end)
    rates = re.findall(
        r"^fallow_state_usd_per_hour\{.*\} (\S+)$", metrics.text().decode(), re.MULTILINE
    )
    paid = read_figures(views, window, Filters(cluster=fleet.cluster))["Paid"]
    assert 24 * sum(map(float, rates)) == pytest.approx(float(paid), abs=0.01)

"""Findings shown are those of the last run: one that found nothing has none."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from analyzers.ranking import rank_findings
from analyzers.waterfall import add_savings, build_waterfall
from dashboards.figures import analyzer_findings, inbox, savings, waterfall
from dashboards.figures.query import Filters
from fallow import plugin_runs
from fallow.models import Claim, Finding, Recommendation, Subject, compute_finding_id
from fallow.plugin_runs import PluginRun, Result
from fallow.window import Window
from runtime.operations.analysis import analyzer_runs, findings
from tests.reports import small
from warehouse.lake import Warehouse

ALL = Filters()
TEAMS = ("vision", "speech")
FOUND_AT = small.END - timedelta(days=1)


def idle_job(team: str) -> Finding:
    """Return a finding over two idle hours of a team of `small.rows`."""
    subject = Subject("alpha", f"ns-{team}", "Job", f"job-{team}", team=team)
    claim = Claim("alpha", f"ns-{team}", "Job", f"job-{team}", None, "idle", 2.0)
    advice = Recommendation(
        "suspend", team, "idle", True, claims=(claim,), marginal_gpu_hours=2.0,
        marginal_usd=Decimal(3), marginal_in_use_gpu_hours=0.0, marginal_in_use_usd=Decimal(),
    )  # fmt: skip
    return Finding(
        id=compute_finding_id("idle", "idle_job", subject, small.WINDOW.start),
        analyzer="idle",
        kind="idle_job",
        subject=subject,
        window=small.WINDOW,
        verdict="idle",
        evidence="confirmed",
        confidence=0.9,
        gpu_hours=2.0,
        usd=Decimal(3),
        details={},
        recommendations=(advice,),
    )


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Warehouse]:
    """Return a warehouse with a finding per team, of a run a day ago."""
    tables = {name: rows for name, rows in small.rows().items() if name != "finding"}
    with Warehouse.open(small.fill(tmp_path / "home", tables), write=True) as warehouse:
        made = [idle_job(team) for team in TEAMS]
        warehouse.ingest([findings.build_rows(made, found_at=FOUND_AT)])
        yield warehouse


def keep(lake: Warehouse, analyzer: str, result: Result, at: datetime, reason: str = "") -> None:
    run = PluginRun("analyzer", analyzer, result, reason)
    lake.ingest([plugin_runs.to_batch([run], cluster="any", at=at, window=small.WINDOW)])


def counts(lake: Warehouse) -> set[int]:
    """Return how many findings pages, reports and `fallow spend` count."""
    made = waterfall.compute_waterfall(lake, small.WINDOW, ALL)
    return {
        len(analyzer_findings.list_findings(lake, small.WINDOW, ALL, "idle")),
        inbox.list_inbox(lake, small.WINDOW, ALL).num_rows,
        sum(row.findings for row in made.savings),
        savings.read_stages(lake, small.WINDOW, ALL).saveable,
        len(savings.read_by_owner(lake, small.WINDOW, ALL, ["workload"])),
        len(findings.read_latest(lake, small.WINDOW)),
    }


def test_a_run_that_found_nothing_shows_nothing(lake: Warehouse) -> None:
    keep(lake, "idle", "done", FOUND_AT)
    assert counts(lake) == {len(TEAMS)}, "the run that found them"
    keep(lake, "sizing", "done", small.END)
    assert counts(lake) == {len(TEAMS)}, "the run of another analyzer"
    keep(lake, "idle", "done", small.END)
    assert counts(lake) == {0}


@pytest.mark.parametrize("result", ["failed", "withheld"])
def test_a_run_that_judged_nothing_takes_no_finding_back(lake: Warehouse, result: Result) -> None:
    keep(lake, "idle", result, small.END, "no inventory of nodes")
    assert counts(lake) == {len(TEAMS)}


def test_an_analyzer_that_runs_alone_saves_no_hour_that_another_s_last_run_has(
    lake: Warehouse,
) -> None:
    """Two of the team's nine idle hours are the stored finding's; another claims all of them."""
    first = idle_job("vision")
    claim = msgspec.structs.replace(first.recommendations[0].claims[0], gpu_hours=11.0)
    advice = Recommendation("shrink", "vision", "small", True, claims=(claim,))
    other = msgspec.structs.replace(
        first, id="f" * 12, analyzer="sizing", gpu_hours=11.0, recommendations=(advice,)
    )
    alone = build_waterfall(lake, small.WINDOW, [other])
    runs = (PluginRun("analyzer", "sizing", "done"),)
    ranked = tuple(rank_findings(add_savings([other], alone), alone))
    analysis = analyzer_runs.Analysis(small.WINDOW, ranked, alone, {}, runs=runs)
    (stored,) = analyzer_runs.store_findings(lake, analysis, runs)
    assert analysis.findings[0].recommendations[0].marginal_gpu_hours == 9.0
    assert stored.recommendations[0].marginal_gpu_hours == 7.0
    sums = savings.read_stages(lake, small.WINDOW, Filters(team="vision"))
    assert sums.saveable_gpu_hours == 9.0


@pytest.mark.parametrize("days", [1, 7])
def test_an_analysis_replaces_one_of_another_window_that_ended_with_it(
    lake: Warehouse, days: int
) -> None:
    """The first has a finding that the second, over more or fewer days, has not."""
    runs = (PluginRun("analyzer", "idle", "done"),)
    for window, team in (
        (small.WINDOW, "speech"),
        (Window(small.END - timedelta(days=days), small.END), "vision"),
    ):
        found = [idle_job(team)]
        cells = build_waterfall(lake, small.WINDOW, found)
        ranked = tuple(rank_findings(add_savings(found, cells), cells))
        analysis = analyzer_runs.Analysis(window, ranked, cells, {}, runs=runs)
        analyzer_runs.store_findings(lake, analysis, runs)
    latest = findings.read_latest(lake, small.WINDOW)
    assert [finding.subject.team for finding in latest] == ["vision"]


def test_blocks_of_actions_sum_every_finding(lake: Warehouse) -> None:
    many = [msgspec.structs.replace(idle_job("vision"), id=f"{n:012x}") for n in range(1_200)]
    lake.ingest([findings.build_rows(many, found_at=small.END)])
    rows = inbox.list_inbox(lake, small.WINDOW, ALL).to_pylist()
    (block,) = inbox.choose_steps(rows, 5)
    stages = savings.read_stages(lake, small.WINDOW, ALL)
    assert stages.saveable == len(many) == len(rows)
    assert block["gpu_hours"] == pytest.approx(stages.saveable_gpu_hours)

"""What could be saved rests on the site's own analysis, whatever else was analysed."""

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from dashboards.figures import reconciliation, savings
from dashboards.figures.query import Filters
from fallow.models import Claim, Finding, Recommendation, Subject, compute_finding_id
from fallow.protocols import Views
from fallow.settings import Settings
from fallow.window import Window
from runtime.operations.accounting import ledger_totals
from runtime.operations.analysis import analyzer_runs, findings
from runtime.operations.analysis.analyzer_runs import Analysis
from tests.reports import small
from warehouse.lake import Warehouse

ALL = Filters()
WINDOWS = (None, "7d", "1h", "5h", "30h", "2d", "2026-11-14T00:00/2026-11-15T00:00", "30d/now")
SPANS = tuple(timedelta(hours=hours) for hours in (1, 30, 72))


class IdleTeams:
    """Find the idle hours of each team in the window; a low threshold finds half of them."""

    def __init__(self, part: float = 1.0, name: str = "idle") -> None:
        self.part, self.name = part, name

    def find(self, views: Views, window: Window) -> list[Finding]:
        sql = (
            "SELECT cluster, namespace, workload, sum(gpu_seconds) / 3600 AS hours FROM ledger "
            "WHERE state = 'idle' AND bucket >= $since AND bucket < $until GROUP BY ALL"
        )
        return [self._build(window, **row) for row in views.query(sql, window.bounds()).to_pylist()]

    def _build(
        self, window: Window, cluster: str, namespace: str, workload: str, hours: float
    ) -> Finding:
        subject = Subject(cluster, namespace, "Job", workload)
        claim = Claim(cluster, namespace, "Job", workload, None, "idle", hours * self.part)
        return Finding(
            id=compute_finding_id(self.name, "idle_job", subject, window.start),
            analyzer=self.name,
            kind="idle_job",
            subject=subject,
            window=window,
            verdict="idle",
            evidence="confirmed",
            confidence=0.9,
            gpu_hours=hours * self.part,
            usd=Decimal(1),
            details={},
            recommendations=(Recommendation("suspend", workload, "idle", True, claims=(claim,)),),
        )


@pytest.fixture
def site(tmp_path: Path) -> Settings:
    """Return the settings of three days of a fleet that nobody analysed."""
    tables = {name: rows for name, rows in small.rows().items() if name != "finding"}
    return small.fill(tmp_path / "home", tables)


@pytest.fixture
def analyzers(monkeypatch: pytest.MonkeyPatch) -> dict[str, IdleTeams]:
    chosen = {"idle": IdleTeams()}
    monkeypatch.setattr(
        analyzer_runs,
        "load_analyzers",
        lambda _, names=(): {name: chosen[name] for name in names or chosen},
    )
    return chosen


def run_analysis(
    site: Settings,
    window: str | None = None,
    *,
    now: datetime = small.END,
    cluster: str | None = None,
    changes: tuple[str, ...] = (),
    names: tuple[str, ...] = (),
) -> tuple[Analysis, str | None]:
    """Analyse as the command does; return the analysis, and what it says about storing it."""
    with Warehouse.open(site) as views:
        analysis = analyzer_runs.analyze(
            views, site, names, window, now=now, cluster=cluster, changes=changes
        )
    return analysis, analyzer_runs.store_analysis(site, analysis, cluster)


def read_sums(site: Settings) -> list[Decimal | float | None]:
    """Return what could be saved in several windows, no more than was wasted in each."""
    sums: list[Decimal | float | None] = []
    with Warehouse.open(site) as views:
        for span in SPANS:
            window = Window(small.END - span, small.END)
            found = reconciliation.read_reconciliation(views, window, ALL)
            assert found is not None
            if found.saves_gpu_hours is not None:
                assert found.saves_gpu_hours <= found.wasted_gpu_hours + 1e-6
            if found.of_waste_usd is not None and found.wasted_usd is not None:
                assert found.of_waste_usd <= found.wasted_usd + Decimal("0.01")
            stages = savings.read_stages(views, window, ALL)
            text = "/".join(f"{at:%Y-%m-%dT%H:%M}" for at in (window.start, window.end))
            table = ledger_totals.read_total_spend(
                views, text, now=window.end, cluster=None, by=["team"], view="loaded",
                share_unallocated=False,
            )  # fmt: skip
            assert stages.saveable_usd == table.total["saves_usd"]
            sums += [stages.saveable_gpu_hours, stages.saveable_usd]
    return sums


@pytest.mark.parametrize("seed", range(3))
def test_any_sequence_of_analyses_leaves_the_site_s_figures(
    site: Settings, analyzers: dict[str, IdleTeams], seed: int
) -> None:
    chance = random.Random(seed)
    _, note = run_analysis(site)
    assert note is None
    expected = read_sums(site)
    assert expected[-2] == pytest.approx(36.0, abs=0.01), "all idle half hours of three days"
    for _ in range(3):
        window = chance.choice(WINDOWS)
        changes = chance.choice([(), (), ("--threshold",)])
        analyzers["idle"] = IdleTeams(0.5 if changes else 1.0)
        cluster = chance.choice([None, None, "alpha"])
        _, note = run_analysis(site, window, cluster=cluster, changes=changes)
        is_own = not changes and window in (None, "7d", "30d/now")
        assert (note is None) == is_own, (window, changes, cluster, note)
        assert read_sums(site) == pytest.approx(expected)


def test_an_analysis_that_is_only_printed_is_explained_and_says_what_differs(
    site: Settings, analyzers: dict[str, IdleTeams]
) -> None:
    del analyzers
    run_analysis(site)
    analysis, note = run_analysis(site, "2026-11-14T00:00/2026-11-15T00:00")
    assert note is not None
    assert "not stored as the site's findings: these are of 2026-11-13 00:00 to" in note
    new = analysis.findings[0]
    with Warehouse.open(site) as views:
        stored = {f.id for f in findings.read_latest(views, small.WINDOW)}
        assert findings.read(views, new.id).id == new.id
        assert new.id in stored or findings.read(views, new.id) == new
    _, note = run_analysis(site, changes=("--max-gap", "--threshold"))
    assert note is not None
    assert "--max-gap, --threshold differs from the settings" in note


@pytest.mark.parametrize("name", ["idle", "pools"])
def test_one_analyzer_alone_saves_what_it_saves_among_all(
    site: Settings, analyzers: dict[str, IdleTeams], name: str
) -> None:
    analyzers |= {"idle": IdleTeams(0.75), "pools": IdleTeams(0.5, "pools")}
    whole, _ = run_analysis(site)
    expected = read_sums(site)
    assert whole.waterfall.saved(analyzer="idle").gpu_hours == pytest.approx(27.0, abs=0.01)
    assert whole.waterfall.saved(analyzer="pools").gpu_hours == pytest.approx(9.0, abs=0.01)
    alone, note = run_analysis(site, names=(name,))
    assert alone.waterfall.saved() == whole.waterfall.saved(analyzer=name)
    assert note is not None
    assert f"these are of 2 analyzers together, not of {name} alone" in note
    assert read_sums(site) == expected


def test_an_analyzer_without_a_result_is_stored_beside_the_others(
    site: Settings, analyzers: dict[str, IdleTeams]
) -> None:
    run_analysis(site)
    analyzers["pools"] = IdleTeams(1.0, "pools")
    alone, note = run_analysis(site, names=("pools",))
    assert note is None
    assert alone.waterfall.saved().gpu_hours == 0, "the idle analyzer has all idle hours"


def test_an_older_analysis_does_not_replace_a_newer_one(
    site: Settings, analyzers: dict[str, IdleTeams]
) -> None:
    del analyzers
    run_analysis(site)
    with Warehouse.open(site, write=True) as warehouse:
        later = small.END.replace(tzinfo=None) + timedelta(minutes=5)
        runs = warehouse.query("FROM plugin_run").to_pylist()
        assert {row["end"] for row in runs} == {small.END.replace(tzinfo=None)}
        sql = 'SELECT * REPLACE ($later::TIMESTAMP AS "end") FROM plugin_run'
        warehouse.replace("plugin_run", warehouse.query(sql, {"later": later}))
    _, note = run_analysis(site, now=small.END.astimezone(UTC))
    assert note is not None
    assert "an analysis until 2026-11-16 00:05 UTC" in note

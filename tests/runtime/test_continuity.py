"""One case is one id and one start in plans, in the table of findings, and for the actor."""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from actions.journal import Journal, JournalState
from actions.journal.warehouse_copy import copy_journal
from analyzers.idle import analyzer
from analyzers.idle.evidence import UNACTIONABLE
from analyzers.idle.judge import judge_window
from fallow.action_models import Facts
from fallow.case_identity import CASE, get_judged_part
from fallow.models import Finding
from fallow.settings import Settings, load
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from runtime.operations.acting import plans
from runtime.operations.analysis import analyzer_runs, findings
from tests.actions.backtest.scenario import BUSY, HOUR, IDLE, FleetScenario
from tests.analyzers.conftest import START
from tests.copies import copied
from warehouse.lake import Warehouse
from warehouse.rollup import roll_up

pytestmark = pytest.mark.slow

HOURS = 120
BACK = (60.0, 60.5)
"""When somebody was back at one of the notebooks, in hours."""
USED = (17.5, 18.0)
"""When somebody used another one, which is idle for ever after, in hours."""
DAY = timedelta(days=1)
AWAY = {
    "GPU-2": ((60.0, 62.0), (80.0, 87.0)),
    "GPU-3": ((60.0, 61.5), (61.75, 63.0)),
}
"""When samples of two devices are missing, in hours; one was seen at work in between."""
USD_H = 2.40


def samples(*busy: tuple[float, float]) -> list[Mapping[str, Any]]:
    return [
        BUSY if any(low <= n / 12 < high for low, high in busy) else IDLE for n in range(HOURS * 12)
    ]


def is_missing(row: Mapping[str, object]) -> bool:
    """Say whether a sample never came: two exporters were away from time to time."""
    ts = row.get("ts")
    if not isinstance(ts, datetime) or row.get("device") not in AWAY:
        return False
    hours = (ts - START.replace(tzinfo=None)) / HOUR
    return any(low <= hours < high for low, high in AWAY[str(row["device"])])


@pytest.fixture(scope="module")
def five_days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home with five days of a forgotten notebook and of one that was used in between."""
    home = tmp_path_factory.mktemp("five-days")
    taken: dict[str, list[Mapping[str, object]]] = {}

    def rows(table: str, more: Iterable[Mapping[str, object]]) -> None:
        taken.setdefault(table, []).extend(row for row in more if not is_missing(row))

    with FleetScenario() as scenario:
        scenario.views.rows = rows  # type: ignore[method-assign,assignment]
        scenario.site.price("2.40")
        scenario.add("forgotten", samples(), kind="Notebook", hours=HOURS)
        scenario.add("back", samples(BACK), kind="Notebook", hours=HOURS)
        scenario.add("silent", samples(), kind="Notebook", hours=HOURS)
        scenario.add("hidden", samples((61.5, 61.75)), kind="Notebook", hours=HOURS)
        scenario.add("daily", samples(USED), kind="Notebook", hours=HOURS)
        scenario.place()
    settings = settings_in(home)
    with Warehouse.open(settings, write=True, clock=lambda: START + HOURS * HOUR) as lake:
        for table, listed in taken.items():
            names = {name: None for row in listed for name in row}
            batch = Batch.of(table, {n: [row.get(n) for row in listed] for n in names})
            if table == "allocation":
                lake.replace(table, pa.Table.from_batches(batch.rows.to_batches()))
            else:
                lake.ingest([batch])
        roll_up(lake)
    return home


def settings_in(home: Path) -> Settings:
    return load(environ={}, flags={"home": home, "cluster": "c"}).settings


@pytest.fixture
def lake(five_days: Path, tmp_path: Path) -> Iterator[Warehouse]:
    settings = settings_in(copied(five_days, tmp_path / "home"))
    with Warehouse.open(settings, write=True) as opened:
        yield opened


def cases(lake: Warehouse, hours: float) -> dict[str, list[Facts]]:
    """Return what a plan of a moment is about, by workload."""
    at = START + hours * HOUR
    found, _ = plans.gather_cases(lake, lake.settings, at=at, cluster="c", names=("idle",))
    made: dict[str, list[Facts]] = {}
    for facts in sorted(found, key=lambda f: f.finding.window.start):
        made.setdefault(facts.finding.subject.workload, []).append(facts)
    return made


def analyze(lake: Warehouse, hours: float, back: timedelta = DAY) -> list[Finding]:
    """Analyze as the service does, over a window that is shorter than the waste lasts."""
    window = Window.last(back, now=START + hours * HOUR)
    return [
        *pipeline.analyze(
            lake, window, analyzer_runs.load_analyzers(lake.settings, ["idle"])
        ).findings
    ]


def of(found: Iterable[Finding], workload: str) -> list[Finding]:
    mine = (f for f in found if f.subject.workload == workload)
    return sorted(mine, key=lambda f: f.window.start)


def test_a_plan_tells_since_when_it_idles_though_nothing_was_stored(lake: Warehouse) -> None:
    for hours in (24.0, 120.0):
        (facts,) = cases(lake, hours)["forgotten"]
        assert facts.finding.window == Window(START, START + hours * HOUR)
        assert facts.finding.gpu_hours == pytest.approx(hours, abs=0.01)
        assert facts.recommendation.gpu_hours_per_day == pytest.approx(24, abs=0.01)


@pytest.mark.parametrize(("hours", "longer"), [(44.0, False), (45.0, True), (90.0, True)])
def test_an_idle_time_longer_than_ever_before_is_known_though_it_fills_the_brief_window(
    lake: Warehouse, hours: float, *, longer: bool
) -> None:
    """The longest idle time before was 17.5 h: after 1.5 times that, 26.25 h, one may act."""
    (facts,) = cases(lake, hours)["daily"]
    assert facts.finding.window.start == START + USED[1] * HOUR
    recurrent = UNACTIONABLE["recurrent"] in facts.finding.details["reasons"]
    assert recurrent is not longer


@pytest.mark.parametrize(("hours", "judgements"), [(30.0, 1), (90.0, 2)])
def test_a_plan_judges_twice_only_where_the_history_is_much_longer_than_a_verdict_needs(
    lake: Warehouse, monkeypatch: pytest.MonkeyPatch, hours: float, judgements: int
) -> None:
    windows: list[Window] = []

    def judge(views: Any, window: Window, *rest: Any, **more: Any) -> Any:
        windows.append(window)
        return judge_window(views, window, *rest, **more)

    monkeypatch.setattr(analyzer, "judge_window", judge)
    (facts,) = cases(lake, hours)["forgotten"]
    assert facts.finding.window == Window(START, START + hours * HOUR)
    assert len(windows) == judgements
    assert max(windows, key=lambda window: window.seconds).start == START


def test_a_case_has_one_id_in_the_table_and_in_plans_while_it_goes_on(lake: Warehouse) -> None:
    ids = set()
    for day in (1, 2, 3, 4, 5):
        hours = 24 * day
        (found,) = of(analyze(lake, hours, timedelta(hours=30)), "forgotten")
        if day not in {3, 5}:
            continue
        (facts,) = cases(lake, hours)["forgotten"]
        ids |= {found.id, facts.finding.id}
        for finding in (found, facts.finding):
            assert finding.window == Window(START, START + hours * HOUR)
            assert finding.gpu_hours == pytest.approx(hours, abs=0.01)
            assert float(finding.usd or 0) == pytest.approx(hours * USD_H, abs=0.05)
        assert facts.recommendation.gpu_hours_per_day == pytest.approx(24, abs=0.01)
    assert len(ids) == 1
    window = Window(START, START + HOURS * HOUR)
    (latest,) = of(findings.read_latest(lake, window), "forgotten")
    assert (latest.id, latest.window.start) == (*ids, START)
    assert get_judged_part(latest).start == START + timedelta(hours=90)
    rows = lake.query("SELECT id, uid FROM finding WHERE workload = 'forgotten'").to_pylist()
    assert rows == [{"id": latest.id, "uid": "top-forgotten"}]


def test_half_an_hour_of_work_ends_a_case_and_what_comes_after_is_another(lake: Warehouse) -> None:
    for hours in (48, 60, 72, 90):
        analyze(lake, hours, 2 * DAY)
    rows = lake.query(
        "SELECT id, start, \"end\" FROM finding WHERE workload = 'back' ORDER BY start"
    ).to_pylist()
    first, second = rows
    left = (START + BACK[0] * HOUR).replace(tzinfo=None)
    assert left - timedelta(minutes=5) <= first["end"] <= left
    assert second["start"] == (START + BACK[1] * HOUR).replace(tzinfo=None)
    (facts,) = cases(lake, HOURS)["back"]
    assert facts.finding.id == second["id"]
    before, after = cases(lake, 70)["back"]
    assert [f.finding.id for f in (before, after)] == [first["id"], second["id"]]


def test_missing_samples_end_no_case_unless_work_was_seen_or_they_are_missing_for_long(
    lake: Warehouse,
) -> None:
    analyze(lake, 58, 2 * DAY)
    analyze(lake, 70, 2 * DAY)
    found = analyze(lake, 78, 2 * DAY)
    (silent,) = of(found, "silent")
    assert silent.window == Window(START + 10 * HOUR, START + 78 * HOUR)
    # Two hours of the 68 were not seen: they cost nothing that anybody could show.
    assert silent.gpu_hours == pytest.approx(66, abs=0.2)
    first, second = of(found, "hidden")
    assert first.id != second.id
    assert second.window.start >= START + 63 * HOUR
    (still,) = of(analyze(lake, 80, timedelta(hours=10)), "silent")
    assert (still.id, still.window.start) == (silent.id, silent.window.start)
    later = of(analyze(lake, 96, 2 * DAY), "silent")
    assert [f.window.start for f in later] == [START + 10 * HOUR, START + 87 * HOUR]
    assert later[0].id == silent.id != later[1].id


def test_a_row_that_an_older_analysis_stored_is_gone_on_with(lake: Warehouse) -> None:
    (found,) = of(analyze(lake, 48), "forgotten")
    old = msgspec.structs.replace(found, id="373ab28d9e44")
    lake.replace("finding", findings.build_rows([old], found_at=old.window.end).rows, "true", {})
    (facts,) = cases(lake, 50)["forgotten"]
    assert (facts.finding.id, facts.finding.window.start) == ("373ab28d9e44", START)


def test_the_ids_of_the_journal_come_first_also_where_only_its_copy_is_there(
    lake: Warehouse, tmp_path: Path
) -> None:
    (before,) = of(analyze(lake, 30, 2 * DAY), "forgotten")
    at = START + 31 * HOUR
    with Journal.open(tmp_path / "journal.sqlite", lambda: at, actor="service") as journal:
        kin = ["idle", before.kind, "c", "Notebook", "ns", "forgotten"]
        journal.append("seen", "da4757f154b7", {"kin": kin, "until": at.isoformat()})
        copy_journal(journal, lake, "c")
        (after,) = of(analyze(lake, 48), "forgotten")
        assert (after.id, after.window.start) == ("da4757f154b7", START)
        (facts,) = cases(lake, 50)["forgotten"]
        assert facts.finding.id == "da4757f154b7"
        (same,) = JournalState(journal).catch_up().continue_cases([facts])
        assert (same.finding.id, same.finding.window.start) == ("da4757f154b7", START)


def test_an_object_made_anew_is_a_new_case_with_its_own_hours(lake: Warehouse) -> None:
    analyze(lake, 48, 2 * DAY)
    born = START + 50 * HOUR
    row = lake.query("SELECT * FROM pod WHERE pod = 'forgotten-0'").to_pylist()[0]
    row |= {"uid": "new-pod", "workload_uid": "new", "pod": "forgotten-1"}
    row |= dict.fromkeys(("created_at", "first_seen", "scheduled_at"), born.replace(tzinfo=None))
    lake.ingest([Batch.of("pod", {name: [value] for name, value in row.items()})])
    (found,) = of(analyze(lake, 60), "forgotten")
    assert found.window == Window(born, START + 60 * HOUR)
    assert found.gpu_hours == pytest.approx(10, abs=0.01)
    assert lake.query(
        "SELECT count(*) AS n FROM finding WHERE workload = 'forgotten'"
    ).to_pylist() == [{"n": 2}]
    (later,) = of(analyze(lake, 80), "forgotten")
    assert (later.id, later.window.start) == (found.id, born)


def test_analyze_names_the_case_and_tells_of_the_window_that_was_asked(lake: Warehouse) -> None:
    (stored,) = of(analyze(lake, 48), "forgotten")
    now = START + 50 * HOUR
    made = analyzer_runs.analyze(lake, lake.settings, ["idle"], "6h", now=now, cluster="c")
    (shown,) = of(made.findings, "forgotten")
    assert (shown.id, shown.window.seconds) == (stored.id, 6 * 3600)
    assert shown.gpu_hours == pytest.approx(6, abs=0.01)
    assert CASE not in shown.details


def test_what_is_stored_of_a_short_window_keeps_the_hours_of_the_case(lake: Warehouse) -> None:
    (before,) = of(analyze(lake, 48, 2 * DAY), "forgotten")
    analyze(lake, 50, timedelta(hours=6))
    row = lake.query(
        "SELECT id, start, gpu_hours, usd, document FROM finding WHERE workload = 'forgotten'"
    ).to_pylist()[0]
    assert (row["id"], row["start"]) == (before.id, START.replace(tzinfo=None))
    assert row["gpu_hours"] == pytest.approx(50, abs=0.01)
    assert row["usd"] == pytest.approx(Decimal(120), abs=Decimal("0.1"))
    answer = json.loads(row["document"])["details"][CASE]
    assert answer["counted_from"] == START.isoformat()
    assert answer["judged_from"] == (START + 44 * HOUR).isoformat()

"""What could be saved of a part of the time that was analysed, and of time that was not."""

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from dashboards.figures import analysis_runs, reconciliation, savings
from dashboards.figures.query import Filters
from dashboards.reports import first_page
from fallow import plugin_runs
from fallow.case_identity import extend, to_stored_case
from fallow.models import Finding
from fallow.window import Window
from runtime.operations.accounting import ledger_totals, reconcile
from runtime.operations.analysis import findings
from tests.dashboards.test_last_run import ALL, FOUND_AT, idle_job, keep
from tests.reports import small
from warehouse.lake import Warehouse

DAY = timedelta(days=1)
FIRST_DAY = Window(small.WINDOW.start, small.WINDOW.start + DAY)
LAST_DAY = Window(small.END - DAY, small.END)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Warehouse]:
    """Return a warehouse of six days in which team vision idles on the fourth alone."""
    tables = small.rows(days=6)
    del tables["finding"]
    tables["ledger"] = [
        row
        for row in tables["ledger"]
        if not (row["team"] == "vision" and row["state"] == "idle")
        or FIRST_DAY.start <= row["bucket"].replace(tzinfo=small.END.tzinfo) < FIRST_DAY.end
    ]
    with Warehouse.open(small.fill(tmp_path / "home", tables), write=True) as warehouse:
        yield warehouse


def put(lake: Warehouse, finding: Finding) -> None:
    lake.ingest([findings.build_rows([finding], found_at=FOUND_AT)])


def read_hours(lake: Warehouse, window: Window) -> float | None:
    return savings.read_stages(lake, window, ALL).saveable_gpu_hours


def test_the_ledger_says_when_a_finding_s_hours_were(lake: Warehouse) -> None:
    put(lake, idle_job("vision"))
    assert read_hours(lake, small.WINDOW) == 2.0
    assert read_hours(lake, FIRST_DAY) == 2.0
    assert read_hours(lake, LAST_DAY) == 0.0
    hours = {n: Window(FIRST_DAY.start, FIRST_DAY.start + n * DAY / 24) for n in (4, 7, 12)}
    granted = {n: read_hours(lake, window) for n, window in hours.items()}
    assert granted == {4: 0.0, 7: 1.0, 12: 2.0}, "it idled from 4 to 10, half an hour of each"


def test_savings_of_an_hour_are_no_more_than_its_waste(lake: Warehouse) -> None:
    """Ten findings have two hours each in six half hours; in one, 1.5 GPU-hours were wasted."""
    for number in range(10):
        put(lake, msgspec.structs.replace(idle_job("vision"), id=f"{number:012x}"))
    hour = Window(FIRST_DAY.start + 4 * DAY / 24, FIRST_DAY.start + 5 * DAY / 24)
    sums = reconciliation.read_reconciliation(lake, hour, Filters(cluster="alpha"))
    assert sums is not None
    assert sums.saves_gpu_hours == pytest.approx(sums.wasted_gpu_hours) == 1.5
    assert sums.of_waste_usd == Decimal(5)
    assert sums.wasted_usd == Decimal("5.20")


def test_hours_that_the_ledger_does_not_have_count_evenly(lake: Warehouse) -> None:
    elsewhere = msgspec.structs.replace(
        idle_job("vision").recommendations[0].claims[0], pool="none"
    )
    advice = msgspec.structs.replace(idle_job("vision").recommendations[0], claims=(elsewhere,))
    put(lake, msgspec.structs.replace(idle_job("vision"), recommendations=(advice,)))
    assert read_hours(lake, LAST_DAY) == pytest.approx(2 / 3)


def test_the_part_that_was_judged_last_keeps_what_it_was_granted(lake: Warehouse) -> None:
    """A case has nine hours stored; the newest analysis of its last day judged six of them."""
    stored = msgspec.structs.replace(idle_job("vision"), gpu_hours=9.0)
    advice = msgspec.structs.replace(stored.recommendations[0], marginal_gpu_hours=6.0)
    judged = msgspec.structs.replace(
        stored, gpu_hours=6.0, window=LAST_DAY, recommendations=(advice,)
    )
    put(lake, extend(judged, to_stored_case(stored)))
    assert read_hours(lake, LAST_DAY) == 6.0
    assert read_hours(lake, small.WINDOW) == 9.0
    assert read_hours(lake, FIRST_DAY) == pytest.approx(3.0)


def test_a_window_of_which_a_part_was_analysed_says_at_least_in_every_mouth(
    lake: Warehouse,
) -> None:
    put(lake, idle_job("vision"))
    keep(lake, "idle", "done", FOUND_AT)
    whole, longer = small.WINDOW, Window(small.END - 6 * DAY, small.END)
    for window, words in ((whole, ""), (longer, "no analyzer judged 72 of 144 h")):
        stages = savings.read_stages(lake, window, ALL)
        assert words in stages.gap.summary
        sums = reconciliation.read_reconciliation(lake, window, ALL)
        assert sums is not None
        table = ledger_totals.read_total_spend(
            lake, f"{window.start:%FT%TZ}/{window.end:%FT%TZ}", now=window.end, cluster=None,
            by=["team"], view="loaded", share_unallocated=False,
        )  # fmt: skip
        absence = analysis_runs.explain_absence(lake, window, ["idle"])
        texts = (
            savings.describe_saveable(stages),
            sums.savings(str),
            first_page.describe_savings(stages),
            absence.sentence("Nothing."),
            " ".join(table.notes),
        )
        for text in texts:
            assert ("o analyzer judged 72 of 144 h (2026-11-10 00:00 to" in text) == bool(words)
        assert reconcile.document(sums)["missed_hours"] == (72 if words else 0)


def test_a_longer_run_of_one_analyzer_leaves_the_others_gap(lake: Warehouse) -> None:
    longer = Window(small.END - 6 * DAY, small.END)
    keep(lake, "idle", "done", FOUND_AT)
    keep(lake, "idle", "failed", FOUND_AT + timedelta(hours=1))
    assert analysis_runs.measure_gap(lake, longer).summary == "", "a run that failed judged nothing"
    keep(lake, "idle", "done", FOUND_AT + timedelta(hours=2))
    run = plugin_runs.PluginRun("analyzer", "quota", "done", "")
    lake.ingest([plugin_runs.to_batch([run], cluster="any", at=FOUND_AT, window=longer)])
    assert analysis_runs.measure_gap(lake, longer).summary.startswith(
        "not every analyzer judged 72"
    )

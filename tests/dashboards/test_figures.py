"""Figures add up, to the cent, and say the same as the commands."""

import itertools
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.figures import (
    anomalies,
    bridge,
    chargeback,
    commitments,
    extent,
    overview,
    savings,
    spend,
    supply,
    units,
    waste,
    waterfall,
)
from dashboards.figures.query import Filters
from fallow.errors import UsageError
from fallow.money import round_to_cents, sum_bills
from fallow.settings import Settings
from fallow.settings.prices import ReservedCapacity
from fallow.tables import Batch
from fallow.window import Window
from tests.dashboards.drawing import HOSTILE, hostile_rows, stored
from warehouse import coverage
from warehouse.lake import Warehouse
from warehouse.spend import read_spend as told

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pages")]  # the demo's fleet is played once

END = datetime(2026, 11, 16, tzinfo=UTC)
WINDOW = Window(END - timedelta(days=3), END)
ALL = Filters()


@pytest.mark.parametrize("view", ["loaded", "gpu"])
@pytest.mark.parametrize("key", spend.KEYS)
def test_spend_is_what_the_command_says(views: Warehouse, key: str, view: str) -> None:
    filters = Filters(view="gpu" if view == "gpu" else "loaded")
    mine = {
        r["name"]: (r["gpu_hours"], r["usd"])
        for r in spend.read_by(views, WINDOW, filters, key).to_pylist()
    }
    theirs = {
        r[key]: (r["gpu_hours"], r["usd"]) for r in told(views, WINDOW, [key], view).to_pylist()
    }
    assert {k: v[1] for k, v in mine.items()} == {k: v[1] for k, v in theirs.items()}
    assert {k: round(v[0], 6) for k, v in mine.items()} == {
        k: round(v[0], 6) for k, v in theirs.items()
    }
    whole = spend.read_totals(views, WINDOW, filters)
    assert round_to_cents(sum(usd for _, usd in mine.values())) == whole.usd
    daily = spend.read_daily(views, WINDOW, filters).to_pylist()
    assert round_to_cents(sum(row["usd"] for row in daily)) == whole.usd


def test_states_fall_from_the_paid_hours_to_nothing(views: Warehouse) -> None:
    made = waterfall.compute_waterfall(views, WINDOW, ALL)
    assert made.gpu_hours == pytest.approx(72 * 32)
    assert made.usd is not None
    assert round_to_cents(made.usd) == spend.read_totals(views, WINDOW, ALL).usd
    assert sum(s.gpu_hours for s in made.steps) == pytest.approx(made.gpu_hours)
    for above, below in itertools.pairwise(made.steps):
        assert below.left_gpu_hours == pytest.approx(above.left_gpu_hours - above.gpu_hours)
    assert made.steps[-1].left_gpu_hours == pytest.approx(made.steps[-1].gpu_hours)


def test_what_could_be_saved_never_exceeds_the_bill(views: Warehouse) -> None:
    made = waterfall.compute_waterfall(views, WINDOW, ALL)
    assert made.savings
    assert made.usd is not None
    assert sum(s.usd or 0 for s in made.savings) <= made.usd
    assert sum(s.gpu_hours for s in made.savings) + made.kept_gpu_hours == pytest.approx(
        made.gpu_hours
    )
    half = Window(WINDOW.start, WINDOW.start + timedelta(hours=36))
    halves = (half, Window(half.end, WINDOW.end))
    parts = [waterfall.compute_waterfall(views, w, ALL).savings for w in halves]
    whole = sum(s.gpu_hours for s in made.savings)
    # The findings of the second half are granted more hours than it wasted: those are no saving.
    assert 0.97 * whole < sum(s.gpu_hours for p in parts for s in p) <= whole + 1e-6


@pytest.mark.parametrize("key", waste.KEYS)
def test_waste_by_owner_sums_to_its_states(views: Warehouse, key: str) -> None:
    rows = waste.read_by_owner(views, WINDOW, ALL, key).to_pylist()
    states = {r["name"]: r for r in spend.read_by(views, WINDOW, ALL, "state").to_pylist()}
    for state in waste.STATES:
        assert sum(r[f"{state}_usd"] for r in rows) == (
            states[state]["usd"] if state in states else 0
        )
    for row in rows:
        assert row["waste_usd"] == sum(row[f"{state}_usd"] for state in waste.STATES)


def test_chargeback_sums_to_the_bill_and_to_what_the_command_shares_out(views: Warehouse) -> None:
    rows = {r["team"]: r for r in chargeback.read_teams(views, WINDOW, ALL).to_pylist()}
    for view, column in (("loaded", "total_usd"), ("gpu", "total_usd_gpu")):
        shared = told(views, WINDOW, ["team"], view, share_unallocated=True).to_pylist()
        assert {r["team"]: r["usd"] for r in shared} == {t: r[column] for t, r in rows.items()}
    bill = spend.read_totals(views, WINDOW, ALL).usd
    assert round_to_cents(sum(r["total_usd"] for r in rows.values())) == bill
    assert round_to_cents(sum(r["usd_loaded"] for r in rows.values())) == bill
    for team, row in rows.items():
        assert row["usd_gpu"] + row["usd_node"] == row["usd_loaded"]
        assert row["usd_loaded"] + row["shared_usd"] == row["total_usd"]
        lines = chargeback.read_lines(views, WINDOW, ALL, team).to_pylist()
        assert sum(line["usd_loaded"] for line in lines) == row["usd_loaded"]


def test_cluster_in_which_everything_is_held_shares_nothing_out(hostile: Settings) -> None:
    window = Window(END - timedelta(days=1), END)
    with Warehouse.open(hostile) as warehouse:
        rows = chargeback.read_teams(warehouse, window, ALL).to_pylist()
        shared = told(warehouse, window, ["team"], share_unallocated=True).to_pylist()
    assert {r["team"]: r["total_usd"] for r in rows} == dict.fromkeys(HOSTILE, Decimal(48))
    assert {r["team"]: r["usd"] for r in shared} == dict.fromkeys(HOSTILE, Decimal(48))
    assert {r["shared_usd"] for r in rows} == {0}


def test_units_carry_all_that_was_paid(views: Warehouse) -> None:
    bill = spend.read_totals(views, WINDOW, ALL).usd
    rows = units.read_by_owner(views, WINDOW, ALL, "team").to_pylist()
    assert round_to_cents(sum(r["usd"] for r in rows)) == bill
    workloads = {
        r["name"]: r["usd"] for r in spend.read_by(views, WINDOW, ALL, "workload").to_pylist()
    }
    served = units.read_served(views, WINDOW, ALL).to_pylist()
    trained = units.read_trained(views, WINDOW, ALL).to_pylist()
    runs = units.read_runs(views, WINDOW, ALL).to_pylist()
    assert served
    assert trained
    assert runs
    for row in [*served, *trained, *runs]:
        assert row["usd"] == workloads[row["workload"]]
    for row in served:
        if row["usd_per_million_requests"] is not None:
            again = row["usd_per_million_requests"] * row["requests"] / 1e6
            assert again == pytest.approx(float(row["usd"]))


def test_a_cost_per_unit_is_unknown_below_the_least_amount(
    views: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[tuple[Callable[[], pa.Table], str, str, float]] = [
        (
            lambda: units.read_by_owner(views, WINDOW, ALL, "team"),
            "productive_gpu_hours",
            "usd_per_productive_gpu_hour",
            1,
        ),
        (
            lambda: units.read_served(views, WINDOW, ALL),
            "requests",
            "usd_per_million_requests",
            10_000,
        ),
        (lambda: units.read_trained(views, WINDOW, ALL), "amount", "usd_per_million", 10_000),
    ]
    for read, amount, cost, least in reads:
        rows = read().to_pylist()
        for row in rows:
            assert (row[cost] is not None) == ((row[amount] or 0) >= least), row
        most = max(row[amount] or 0 for row in rows)
        for part in (0.999, 1.001):  # sums of floating point differ in their last digits
            with monkeypatch.context() as patch:
                patch.setattr(units, "LEAST_PRODUCTIVE_GPU_HOURS", part * most)
                patch.setattr(units, "LEAST_COUNTED", part * most)
                assert any(row[cost] is not None for row in read().to_pylist()) == (part < 1)


@pytest.mark.parametrize(
    "figure",
    [spend.read_by, waste.read_by_owner, units.read_by_owner],
    ids=["spend", "waste", "units"],
)
def test_unknown_keys_name_the_legal_ones(views: Warehouse, figure: Callable[..., object]) -> None:
    with pytest.raises(UsageError, match="cannot group") as refused:
        figure(views, WINDOW, ALL, "colour")
    assert "team" in (refused.value.hint or "")


Hours = st.floats(0, 500, allow_nan=False)
Segment = st.tuples(Hours, Hours, Hours, Hours, st.integers(1, 40), st.integers(1, 40))


class Segments:
    """Views that answer one question: these segments."""

    def __init__(self, rows: list[tuple[float, float, float, float, int, int]]) -> None:
        self._rows = rows

    def query(self, _sql: str, _parameters: object = None) -> "Segments":
        """Answer."""
        return self

    def to_pylist(self) -> list[dict[str, object]]:
        """Return the segments as the SQL would."""
        return [
            {
                "cluster": "c",
                "hours_before": busy0 + waste0,
                "hours_after": busy1 + waste1,
                "waste_before": waste0,
                "waste_after": waste1,
                "usd_before": Decimal(repr((busy0 + waste0) * rate0)).quantize(Decimal("1e-8")),
                "usd_after": Decimal(repr((busy1 + waste1) * rate1)).quantize(Decimal("1e-8")),
            }
            for busy0, waste0, busy1, waste1, rate0, rate1 in self._rows
        ]


@given(st.lists(Segment, min_size=1, max_size=6))
def test_bridge_leads_exactly_from_one_bill_to_the_next(
    rows: list[tuple[float, float, float, float, int, int]],
) -> None:
    made = bridge.compute_bridge(Segments(rows), WINDOW, ALL)
    if made is None:
        assert sum(r[0] + r[1] for r in rows) == 0
        return
    assert made.usd_before + made.volume + made.waste + made.mix + made.price == made.usd_after


@pytest.mark.parametrize(
    ("before", "after", "step"),
    [
        ((10, 0, 4), (15, 0, 4), "volume"),
        ((10, 2, 4), (10, 5, 4), "waste"),
        ((10, 2, 4), (10, 2, 6), "price"),
    ],
)
def test_bridge_names_what_changed_alone(
    before: tuple[int, int, int], after: tuple[int, int, int], step: str
) -> None:
    row = (
        float(before[0]),
        float(before[1]),
        float(after[0]),
        float(after[1]),
        before[2],
        after[2],
    )
    made = bridge.compute_bridge(Segments([row]), WINDOW, ALL)
    assert made is not None
    steps = {name: getattr(made, name) for name in ("volume", "waste", "mix", "price")}
    assert steps[step] == made.usd_after - made.usd_before != 0
    assert all(usd == 0 for name, usd in steps.items() if name != step)


def test_bridge_calls_a_move_to_dearer_capacity_mix() -> None:
    rows = [(10.0, 0.0, 4.0, 0.0, 2, 2), (0.0, 0.0, 6.0, 0.0, 8, 8)]
    made = bridge.compute_bridge(Segments(rows), WINDOW, ALL)
    assert made is not None
    assert made.mix == 36
    assert made.volume == made.price == made.waste == 0


def test_month_of_a_steady_bill_is_forecast_exactly(views: Warehouse) -> None:
    made = spend.read_month(views, END, ALL, Decimal(1000))
    per_day = spend.read_totals(views, Window(END - timedelta(days=1), END), ALL).usd
    assert made.usd is not None
    assert per_day is not None
    assert made.forecast == pytest.approx(made.usd + 15 * per_day, abs=Decimal("0.05"))
    assert made.missing_hours == 12 * 24
    assert made.is_partial
    assert made.path[-1].expected == pytest.approx(float(made.forecast or 0), abs=0.05)


def test_a_cluster_that_is_new_counts_whole_in_what_is_expected_and_usual(tmp_path: Path) -> None:
    """Two dollars an hour each: `old` since eleven days, `new` since two."""
    new = (END - timedelta(days=2)).replace(tzinfo=None)
    with Warehouse.open_in_memory(Settings(home=tmp_path / "home")) as warehouse:
        for batch in hostile_rows(("old", "new"), END, 24 * 11):
            if batch.table == "ledger":
                late = (pc.field("cluster") == "new") & (pc.field("bucket") < new)
                stored(warehouse, Batch(batch.table, batch.rows.filter(~late)))
            elif batch.table == "device":
                stored(warehouse, batch)
        made = spend.read_month(warehouse, END, ALL)
        assert made.usd == 48 * (11 + 2)
        assert made.forecast == made.usd + 15 * 96
        assert made.is_partial, "eleven days of one of the clusters are one of all"
        month = coverage.measure_coverage(warehouse, Window(made.start, END), {})
        assert (month.hours_with_data, month.clusters) == (48, {"new": 48, "old": 264})
        assert month.spoken == "48 of 360 h have data of all 2 clusters"
        assert len(month.late(END)) == 2
        week = Window(END - timedelta(days=2), END)
        why = overview.explain_incomparable(warehouse, week, None)
        assert why == "data of the 2d before of only 1 of 2 clusters"
        assert overview.explain_incomparable(warehouse, week, "old") == ""
        days = Window(END - timedelta(hours=30), END)
        why = overview.explain_incomparable(warehouse, days, None)
        assert why == "only 18 of 30 h of the 1d6h before have data"
        alone = spend.read_month(warehouse, END, Filters(cluster="old"))
        assert alone.forecast == 48 * 11 + 15 * 48
        wide = Window(END - timedelta(days=2), END)
        assert bridge.bridge(warehouse, wide, ALL) is None
        assert bridge.bridge(warehouse, wide, Filters(cluster="old")) is not None
        last = Window(END - timedelta(days=1), END)
        assert bridge.bridge(warehouse, last, ALL) is not None
        assert {*anomalies.read_usual(warehouse, last, ALL)["usual_usd"].to_pylist()} == {None}
        usual = anomalies.read_usual(warehouse, last, Filters(cluster="old"))
        assert {*usual["usual_usd"].to_pylist()} == {2.0}


@pytest.mark.parametrize(("late", "shown"), [(12, True), (13, False), (24 * 7, False)])
def test_a_month_is_forecast_only_while_half_of_the_last_day_is_accounted_for(
    views: Warehouse, late: int, *, shown: bool
) -> None:
    made = spend.read_month(views, END + timedelta(hours=late), ALL)
    assert made.usd is not None
    assert (made.forecast is not None, made.run_rate is not None) == (shown, shown)
    assert (made.doubt is None) == shown


def test_band_holds_the_end_of_a_restless_month_in_four_of_five_cases() -> None:
    random = np.random.default_rng(1)
    inside = 0
    for _ in range(400):
        known, to_come = random.normal(100, 15, 28), random.normal(100, 15, 12)
        outlook = spend.Outlook(float(known.mean()), float(known.std(ddof=1)), 28)
        mean, half = outlook.after(12)
        inside += abs(to_come.sum() - mean) <= half
    assert 0.74 <= inside / 400 <= 0.86


def test_month_without_rows_knows_nothing(empty: Settings) -> None:
    with Warehouse.open(empty) as warehouse:
        made = spend.read_month(warehouse, END, ALL)
        assert (made.usd, made.forecast, made.run_rate, made.path) == (None, None, None, ())
        assert extent.read_extent(warehouse) is None
        assert bridge.bridge(warehouse, WINDOW, ALL) is None
        assert savings.read_stages(warehouse, WINDOW, ALL).identified == 0


def test_budgets_stand_where_they_stand(views: Warehouse) -> None:
    planned = {"genai": Decimal(1), "vision": Decimal(10_000_000), "nobody": Decimal(5)}
    stands = {b.team: b.stands for b in anomalies.read_budgets(views, END, planned)}
    assert stands == {"genai": "over", "vision": "unknown", "nobody": "unknown"}
    whole = anomalies.TeamBudget("vision", Decimal(9), Decimal(1), Decimal(2), Decimal(3))
    assert whole.stands == "within"


def test_budgets_end_at_the_wall_clock_however_old_the_data_are(views: Warehouse) -> None:
    """A month later nothing is known of the month: neither paid nor expected."""
    planned = {"genai": Decimal(1), "vision": Decimal(10_000_000)}
    held = extent.read_extent(views)
    assert held is not None
    assert held.accounted == END
    late = END + timedelta(days=40, minutes=7)
    at = anomalies.read_budget_time(Window(END - timedelta(days=7), END), END, late)
    assert at == late.replace(minute=0)
    made = anomalies.read_budgets(views, at, planned)
    assert {b.team: (b.usd, b.stands) for b in made} == {
        "genai": (None, "unknown"),
        "vision": (None, "unknown"),
    }


def test_budgets_of_a_window_of_the_past_are_of_its_end() -> None:
    past = Window(END - timedelta(days=9), END - timedelta(days=2))
    assert anomalies.read_budget_time(past, END, END + timedelta(days=40)) == past.end


def test_a_budget_that_is_spent_is_over_though_no_forecast_is_known() -> None:
    spent = anomalies.TeamBudget("genai", Decimal(1), Decimal(2), None, None)
    assert spent.stands == "over"


def test_commitments_are_used_in_their_order_and_what_does_not_run_is_told(
    views: Warehouse,
) -> None:
    one = ReservedCapacity(
        name="a",
        provider="aws",
        instance_type="p5.48xlarge",
        nodes=1,
        gpus_per_node=8,
        usd_per_node_hour=Decimal(30),
        start=END - timedelta(days=400),
        end=END + timedelta(days=10),
    )
    more = one.model_copy(update={"name": "b", "nodes": 50})
    ended = one.model_copy(update={"name": "gone", "end": END - timedelta(days=30)})
    uses = commitments.read_commitments(views, WINDOW, (one, more, ended))
    first, second = sorted((use for use in uses if use.name in "ab"), key=lambda use: use.name)
    assert first.utilisation == pytest.approx(1.0)
    assert first.days_left == 10
    assert first.coverage is not None
    assert second.coverage is not None
    assert second.utilisation is not None
    assert first.coverage + second.coverage == pytest.approx(1)
    assert second.unused_usd > 0
    assert second.utilisation < 1
    assert first.break_even == pytest.approx(30 / 55.04)
    assert first.used_node_hours <= first.held_node_hours <= first.running_node_hours + 1e-6


def test_what_commitments_paid_is_one_figure_of_spend_and_of_how_capacity_is_bought(
    views: Warehouse,
) -> None:
    uses = commitments.read_commitments(views, WINDOW, ())
    rows = {r["capacity"]: r["usd"] for r in supply.read_capacity(views, WINDOW, ALL).to_pylist()}
    paid = sum(use.committed_usd - use.unused_usd - use.unknown_usd for use in uses)
    assert round(rows["committed"], 2) == paid > 0
    assert "reserved" not in rows
    assert round(sum(rows.values()), 2) == spend.read_totals(views, WINDOW, ALL).usd


def test_what_ran_of_a_commitment_is_unknown_in_hours_without_data_of_its_cluster(
    views: Warehouse,
) -> None:
    later = Window(END - timedelta(days=1), END + timedelta(days=2))
    [use] = [u for u in commitments.read_commitments(views, later, ()) if u.name == "h100-1y"]
    assert use.utilisation == 0.5, "two of its four nodes run on the day that is known"
    assert use.unused_usd == 2 * 24 * 42
    assert use.unknown_usd == 4 * 48 * 42
    none = Window(END, END + timedelta(days=2))
    [use] = [u for u in commitments.read_commitments(views, none, ()) if u.name == "h100-1y"]
    assert use.utilisation is None
    assert use.unused_usd == 0
    assert use.unknown_usd == use.committed_usd


def test_a_commitment_that_starts_in_another_time_zone_starts_at_the_same_moment(
    views: Warehouse,
) -> None:
    start = END - timedelta(days=2)
    one = ReservedCapacity(
        name="a",
        provider="aws",
        instance_type="p5.48xlarge",
        nodes=50,
        gpus_per_node=8,
        usd_per_node_hour=Decimal(30),
        start=start,
        end=END + timedelta(days=10),
    )
    abroad = one.model_copy(update={"start": start.astimezone(timezone(timedelta(hours=2)))})
    in_utc, there = (
        next(use for use in commitments.read_commitments(views, WINDOW, (c,)) if use.name == "a")
        for c in (one, abroad)
    )
    # Without the conversion its nodes were counted from two hours later on.
    assert in_utc.running_node_hours == there.running_node_hours
    assert in_utc.unused_usd == there.unused_usd


def test_a_commitment_costs_what_its_hours_were_charged_not_what_the_settings_say_now(
    views: Warehouse,
) -> None:
    stored = views.query("FROM rate WHERE source = 'commitment h100-1y'").to_pylist()[0]
    said = ReservedCapacity(
        name="h100-1y",
        provider="aws",
        instance_type="p5.48xlarge",
        nodes=4,
        gpus_per_node=8,
        usd_per_node_hour=Decimal(10),
        start=END - timedelta(days=100),
        end=END + timedelta(days=10),
    )
    for settings in ((said,), ()):
        uses = commitments.read_commitments(views, WINDOW, settings)
        [use] = [use for use in uses if use.name == "h100-1y"]
        assert use.usd_per_node_hour == stored["node_usd_h"] == 42
        assert use.committed_usd == 4 * 72 * 42


def test_savings_go_from_identified_to_verified(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    with Warehouse.open_in_memory(settings) as warehouse:
        stored(warehouse, *hostile_rows(HOSTILE[:5]), *_acted())
        window = Window(END - timedelta(days=2), END + timedelta(hours=1))
        made = savings.read_stages(warehouse, window, ALL)
        assert (made.identified, made.approved, made.acted, made.verified) == (5, 2, 1, 1)
        assert made.identified_usd == 10
        # One was acted upon: nothing is left to save of it.
        assert made.saveable == 4
        assert made.saveable_usd == 8
        assert made.approved_usd == 4
        assert made.acted_usd == 2
        assert made.verified_usd == Decimal("3.008")
        assert made.waiting == 0, "no plan has its case"
        cases = savings.read_cases(warehouse, window, ALL).to_pylist()
        assert sorted(c["stage"] for c in cases) == ["approved", "requested", "verified"]
        verified = savings.read_verified(warehouse, window, ALL).to_pylist()
        # The kinds are of $1.504 each: their cents sum to those of the stage, 3.01.
        assert [(v["kind"], v["usd"], v["actions"]) for v in verified] == [
            ("cash", Decimal("1.51"), 1),
            ("released", Decimal("1.50"), 1),
        ]
        assert [c["verified_usd"] for c in cases if c["stage"] == "verified"] == [Decimal("3.01")]


def _acted() -> list[Batch]:
    at = (END - timedelta(hours=3)).replace(tzinfo=None)
    ids = [f"{n:012x}" for n in range(3)]
    rows = [
        ("approval-requested", "d0", {"finding": ids[0]}),
        ("approval-requested", "d1", {"finding": ids[1]}),
        ("approval-requested", "d2", {"finding": ids[2]}),
        ("approved", "d0", {"finding": ids[0]}),
        ("approved", "d1", {"finding": ids[1]}),
        ("intent", "a0", {"action": {"id": "a0", "decision": {"finding": ids[0]}}}),
        ("outcome", "a0", {"action": "a0", "result": "done"}),
    ]
    journal = Batch.of(
        "action",
        {
            "cluster": [HOSTILE[0]] * len(rows),
            "seq": [*range(1, len(rows) + 1)],
            "ts": [at] * len(rows),
            "kind": [kind for kind, _, _ in rows],
            "about": [about for _, about, _ in rows],
            "actor": ["somebody"] * len(rows),
            "document": [json.dumps(document) for _, _, document in rows],
            "hash": [""] * len(rows),
        },
    )
    measured = Batch.of(
        "saving",
        {
            "cluster": [HOSTILE[0]] * 2,
            "action": ["a0"] * 2,
            "kind": ["cash", "released"],
            "start": [at] * 2,
            "end": [at + timedelta(hours=2)] * 2,
            "gpu_hours": [0.75, 0.75],
            "usd": [Decimal("1.504")] * 2,
            "is_reversed": [False] * 2,
        },
    )
    return [journal, measured]


def test_the_overview_adds_up_and_has_the_bill_of_spend(views: Warehouse) -> None:
    now = spend.read_totals(views, WINDOW, ALL)
    of_clusters = spend.read_by(views, WINDOW, ALL, "cluster")["usd"].to_pylist()
    assert now.usd == sum_bills(of_clusters)
    parts = now.used_gpu_hours + now.wasted_gpu_hours + now.unknown_gpu_hours
    assert parts == pytest.approx(now.gpu_hours)
    assert now.productive_gpu_hours < now.allocated_gpu_hours < now.gpu_hours
    wasted = waste.read_by_owner(views, WINDOW, ALL, "team")["waste_usd"].to_pylist()
    assert now.wasted_usd is not None
    exact = sum(usd for usd in wasted if usd is not None)
    assert abs(now.wasted_usd - exact) <= Decimal("0.005") * now.clusters


def test_the_window_before_is_as_long_and_ends_where_this_one_begins() -> None:
    assert overview.get_window_before(WINDOW) == Window(END - timedelta(days=6), WINDOW.start)
    assert overview.change(Decimal(110), Decimal(100)) == pytest.approx(0.1)
    assert overview.change(Decimal(110), Decimal()) is None, "nothing was before: no share of it"
    assert overview.change(None, Decimal(1)) is None, "unknown is no change"


@pytest.mark.parametrize(
    ("start", "end", "before", "until", "words"),
    [
        ("2026-10-01", "2026-11-01", "2026-09-01", "2026-10-01", "September 2026"),
        ("2026-11-01", "2026-11-16", "2026-10-01", "2026-10-16", "the first 15d of October 2026"),
        # February has no 30th day: it is compared whole.
        ("2026-03-01", "2026-03-31", "2026-02-01", "2026-03-01", "February 2026"),
        ("2026-01-01", "2026-01-09", "2025-12-01", "2025-12-09", "the first 8d of December 2025"),
        # A day or weeks are no month so far, but four weeks are a whole February.
        ("2026-01-01", "2026-01-02", "2025-12-31", "2026-01-01", "the 1d before"),
        ("2026-01-01", "2026-01-08", "2025-12-25", "2026-01-01", "the 7d before"),
        ("2026-01-01", "2026-01-15", "2025-12-18", "2026-01-01", "the 14d before"),
        ("2026-02-01", "2026-03-01", "2026-01-01", "2026-02-01", "January 2026"),
        # A day less, or a day more: no month.
        ("2026-10-02", "2026-11-01", "2026-09-02", "2026-10-02", "the 30d before"),
        ("2026-10-01", "2026-11-02", "2026-08-30", "2026-10-01", "the 32d before"),
    ],
)
def test_a_month_is_compared_with_the_month_before(
    start: str, end: str, before: str, until: str, words: str
) -> None:
    def read(*days: str) -> Window:
        first, last = (datetime.fromisoformat(day).replace(tzinfo=UTC) for day in days)
        return Window(first, last)

    assert overview.get_window_before(read(start, end)) == read(before, until)
    assert overview.describe_window_before(read(start, end)) == words


def test_the_bridge_of_a_month_so_far_leaves_out_the_rest_of_the_month_before(
    tmp_path: Path,
) -> None:
    """Two dollars an hour from 20 October, then from 30 September, until 11 November."""
    end = datetime(2026, 11, 11, tzinfo=UTC)
    with Warehouse.open_in_memory(Settings(home=tmp_path / "home")) as warehouse:
        stored(warehouse, *hostile_rows(("old",), end, 24 * 22))
        so_far = Window(datetime(2026, 11, 1, tzinfo=UTC), end)
        assert bridge.bridge(warehouse, so_far, ALL) is None, "nothing is known of 1 to 11 October"
        october = Window(datetime(2026, 10, 1, tzinfo=UTC), so_far.start)
        assert bridge.bridge(warehouse, october, ALL) is None
        fortnight = Window(end - timedelta(days=14), end)
        assert bridge.bridge(warehouse, fortnight, ALL) is None, "of six days before it no hour"
        assert bridge.compute_bridge(warehouse, fortnight, ALL) is not None
    with Warehouse.open_in_memory(Settings(home=tmp_path / "longer")) as warehouse:
        stored(warehouse, *hostile_rows(("old",), end, 24 * 42))
        made = bridge.bridge(warehouse, so_far, ALL)
        assert made is not None
        assert made.before == Window(october.start, october.start + timedelta(days=10))
        assert made.usd_before == made.usd_after == 480
        assert made.volume == made.waste == made.mix == made.price == 0


def test_costs_of_units_have_their_median_and_their_outliers() -> None:
    costs = units.measure_distribution([1.0, 2.0, 3.0, 4.0, 100.0])
    assert costs is not None
    assert (costs.count, costs.median, costs.most) == (5, 3.0, 100.0)
    assert costs.p90 == pytest.approx(4 + 0.6 * 96)
    assert costs.fence == 4 + 1.5 * (4 - 2)
    assert costs.outliers == 1
    few = units.measure_distribution([1.0, 50.0])
    assert few is not None
    assert few.outliers == 0, "two values have no quartiles"
    assert units.measure_distribution([]) is None


@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=50))
def test_each_unit_is_in_one_bin(values: list[float]) -> None:
    costs = units.measure_distribution(values)
    assert costs is not None
    bins = units.bin_costs(values, costs.fence)
    assert sum(count for *_, count in bins) == len(values)
    beyond = [count for low, _, count in bins if low >= costs.fence * (1 - 1e-9)]
    assert sum(beyond) == costs.outliers

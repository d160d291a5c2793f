"""Whatever is claimed, however often: no GPU-hour is saved twice and no dollar above the bill."""

import math
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import combinations
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from analyzers.waterfall import (
    SavingsWaterfall,
    add_savings,
    apportion_savings,
    build_waterfall,
    clip_finding,
    round_hours,
)
from analyzers.waterfall_cells import CENT_E8, HOUR_US, LedgerCells, split_amount
from fallow.models import STATES, WASTED, Claim, Finding, Recommendation, Subject
from fallow.window import Window

Memory = Any
Row = dict[str, Any]
START = datetime(2026, 11, 1, tzinfo=UTC)
HOURS = 6
DAY = Window(START, START + timedelta(hours=HOURS))
GROUPS = ("cluster", "namespace", "team", "workload", "pool", "node", "model", "state")


def post(views: Memory, rows: list[Row]) -> None:
    views.engine.execute("DELETE FROM ledger")
    views.rows("ledger", rows)


def posted(**changes: Any) -> Row:
    made = {
        "cluster": "c", "bucket": START.replace(tzinfo=None), "device": "d", "state": "idle",
        "namespace": "ns", "workload_kind": "Job", "workload": "w", "team": "red", "node": "n",
        "pool": "p", "model": "H100", "seconds": 3600.0, "gpu_seconds": 3600.0,
        "usd": Decimal(4), "priced": True,
    }  # fmt: skip
    return made | changes


def claim(gpu_hours: float, usd: Decimal | None = None, **about: Any) -> Claim:
    owner: dict[str, Any] = {
        "cluster": "c", "namespace": "ns", "workload_kind": "Job", "workload": "w", "pool": None,
        "state": "idle",
    }  # fmt: skip
    return Claim(gpu_hours=gpu_hours, usd=usd, **(owner | about))


def finding(*claims: Claim, analyzer: str = "idle", number: int = 0, **changes: Any) -> Finding:
    made = Finding(
        id=f"{number:012x}",
        analyzer=analyzer,
        kind="k",
        subject=Subject("c", "ns", "Job", "w"),
        window=DAY,
        verdict="wasteful",
        evidence="confirmed",
        confidence=1.0,
        gpu_hours=1.0,
        usd=None,
        details={},
        recommendations=(Recommendation("do", "it", "because", True, claims=claims),),
    )
    return msgspec.structs.replace(made, **changes)


def marginal(waterfall: SavingsWaterfall) -> list[tuple[str, float]]:
    return [(step.analyzer, step.marginal.gpu_hours) for step in waterfall.steps]


def test_the_second_gets_what_the_first_leaves_in_the_documented_order(views: Memory) -> None:
    post(views, [posted()])
    found = [
        finding(claim(0.75), analyzer="spot", number=1),
        finding(claim(0.5), analyzer="idle", number=2, evidence="suspected"),
        finding(claim(0.25), analyzer="idle", number=3),
    ]
    fallen = build_waterfall(views, DAY, found)
    assert marginal(fallen) == [("idle", 0.25), ("idle", 0.5), ("spot", 0.25)]
    assert [s.gross.gpu_hours for s in fallen.steps] == [0.25, 0.5, 0.75]
    assert fallen.saved() == fallen.bill
    advice = add_savings(found, fallen)[0].recommendations[0]
    assert (advice.gross_usd, advice.marginal_usd) == (Decimal(3), Decimal(1))


@for_all(
    gpu_us=st.integers(0, 10**13),
    usd_e8=st.integers(0, 10**11),
    asked=st.lists(
        st.tuples(st.floats(0, 4000), st.none() | st.decimals(0, 10**4, places=4)), max_size=4
    ),
)
def test_of_one_cell_is_taken_what_would_be_taken_of_several(
    gpu_us: int, usd_e8: int, asked: list[tuple[float, Decimal | None]]
) -> None:
    about = {
        name: getattr(claim(1), name)
        for name in ("cluster", "namespace", "workload_kind", "workload", "state")
    }
    row = {**about, "pool": "p", "node": "n", "model": "H100", "priced": True}
    one = {**row, "gpu_us": gpu_us, "usd_e8": usd_e8}
    empty = {**row, "node": "other", "gpu_us": 0, "usd_e8": 0}
    alone, beside = (LedgerCells(pa.Table.from_pylist(rows)) for rows in ([one], [one, empty]))
    for hours_, usd in asked:
        grants = [cells.take(claim(hours_, usd)) for cells in (alone, beside)]
        first, second = ([*map(list, (g.rows, g.gpu_us, g.cost, g.saved))] for g in grants)
        assert first == second
    assert (alone.left_us[0], alone.left_e8[0]) == (beside.left_us[0], beside.left_e8[0])
    assert alone.left_us[0] >= 0


def test_what_nobody_orders_comes_last(views: Memory) -> None:
    post(views, [posted()])
    found = [finding(claim(1), analyzer="aardvark"), finding(claim(1), analyzer="anomalies")]
    assert marginal(build_waterfall(views, DAY, found)) == [("anomalies", 1.0), ("aardvark", 0.0)]


def test_alternatives_of_one_finding_share_its_hours(views: Memory) -> None:
    post(views, [posted()])
    stop = Recommendation("stop", "w", "idle", True, claims=(claim(1),))
    both = finding(recommendations=(stop, msgspec.structs.replace(stop, verb="tell")))
    fallen = build_waterfall(views, DAY, [both])
    assert [s.gross.gpu_hours for s in fallen.steps] == [1.0, 1.0]
    assert marginal(fallen) == [("idle", 1.0), ("idle", 0.0)]


def test_an_alternative_takes_nothing_from_the_workload_s_other_findings(views: Memory) -> None:
    post(views, [posted(gpu_seconds=7200.0)])
    stop = Recommendation("stop", "w", "idle", True, claims=(claim(1),))
    found = [finding(number=1, recommendations=(stop, stop)), finding(claim(1), number=2)]
    assert [got for _, got in marginal(build_waterfall(views, DAY, found))] == [1.0, 0.0, 1.0]


def test_parts_of_one_finding_s_waste_add_up_to_it_and_no_further(views: Memory) -> None:
    post(views, [posted(gpu_seconds=36000.0)])
    parts = tuple(
        Recommendation("do", "part", "of it", True, claims=(claim(part),)) for part in (3, 4, 5)
    )
    fallen = build_waterfall(views, DAY, [finding(gpu_hours=8.0, recommendations=parts)])
    assert [got for _, got in marginal(fallen)] == [3.0, 4.0, 1.0]
    assert [step.gross.gpu_hours for step in fallen.steps] == [3.0, 4.0, 5.0]


def test_a_lower_price_saves_its_part_and_takes_the_whole_hour(views: Memory) -> None:
    post(views, [posted(state="productive")])
    price = claim(1, Decimal("2.5"), state="productive")
    moved = Recommendation("move", "w", "spot", True, saving="cash", claims=(price,))
    cheaper = finding(analyzer="spot", recommendations=(moved,))
    after = finding(claim(1, state="productive"), analyzer="anomalies")
    spot, rest = build_waterfall(views, DAY, [cheaper, after]).steps
    assert spot.marginal.usd == Decimal("2.5")
    assert rest.marginal.gpu_hours == 0.0


def test_free_and_stranded_are_both_nobody_s(views: Memory) -> None:
    post(views, [posted(state="free", namespace="", workload_kind="", workload="")])
    (step,) = build_waterfall(views, DAY, [finding(claim(9, state="stranded", namespace=""))]).steps
    assert step.marginal.gpu_hours == 0.0
    wanted = claim(9, state="stranded", namespace="", workload_kind="", workload="")
    (step,) = build_waterfall(views, DAY, [finding(wanted)]).steps
    assert step.marginal.gpu_hours == 1.0


def test_hours_without_a_price_save_hours_and_no_dollars(views: Memory) -> None:
    post(views, [posted(usd=None, priced=False)])
    (step,) = build_waterfall(views, DAY, [finding(claim(1, Decimal(100)))]).steps
    assert step.marginal == step.gross
    assert (step.marginal.usd, step.marginal.unpriced_gpu_hours) == (None, 1.0)


@pytest.mark.parametrize("asked", [math.nan, -1.0, 0.0, -math.inf])
def test_a_senseless_claim_gets_nothing(views: Memory, asked: float) -> None:
    post(views, [posted()])
    (step,) = build_waterfall(views, DAY, [finding(claim(asked))]).steps
    assert (step.marginal.gpu_hours, step.marginal.usd) == (0.0, Decimal(0))


@pytest.mark.parametrize("about", ["cluster", "namespace", "workload", "pool", "node", "model"])
def test_who_is_not_on_the_bill_is_saved_nothing(views: Memory, about: str) -> None:
    post(views, [posted()])
    elsewhere = msgspec.structs.replace(claim(1), **{about: "elsewhere"})
    (step,) = build_waterfall(views, DAY, [finding(elsewhere)]).steps
    assert step.marginal.gpu_hours == 0.0


def test_a_part_of_a_finding_claims_that_part_of_its_hours() -> None:
    (advice,) = clip_finding(finding(claim(6, Decimal(24))), 0.5).recommendations
    assert advice.claims[0].gpu_hours == 3.0
    assert advice.claims[0].usd == Decimal(12)


def test_an_empty_ledger_saves_nothing(views: Memory) -> None:
    fallen = build_waterfall(views, DAY, [finding(claim(1))])
    assert fallen.bill.gpu_hours == 0.0
    assert fallen.saved().gpu_hours == 0.0
    assert fallen.by("team") == []


NAMES = st.sampled_from(["a", "b", "c"])
ROWS = st.lists(
    st.builds(
        lambda hour, seconds, rate, priced, **names: posted(
            bucket=START.replace(tzinfo=None) + timedelta(hours=hour),
            gpu_seconds=seconds,
            usd=Decimal(seconds * rate / 3600).quantize(Decimal("1e-8")) if priced else None,
            priced=priced,
            **names,
        ),
        hour=st.integers(0, HOURS - 1),
        seconds=st.floats(0, 3600 * 500),
        rate=st.floats(0, 100),
        priced=st.booleans(),
        cluster=st.sampled_from(["c", "other"]),
        namespace=NAMES,
        workload=NAMES,
        team=st.none() | NAMES,
        pool=st.none() | NAMES,
        node=st.none() | NAMES,
        model=st.none() | NAMES,
        state=st.sampled_from(STATES),
    ),
    min_size=1,
    max_size=25,
)
ANY = st.none() | NAMES
CLAIMS = st.builds(
    Claim,
    cluster=st.sampled_from(["c", "other", "nowhere"]),
    namespace=ANY,
    workload_kind=st.none() | st.just("Job"),
    workload=ANY,
    pool=ANY,
    node=ANY,
    model=ANY,
    state=st.sampled_from(STATES),
    gpu_hours=st.floats() | st.floats(0, 600),
    usd=st.none() | st.decimals(allow_nan=True, allow_infinity=True) | st.decimals(0, 1000),
)
FOUND = st.lists(
    st.builds(
        lambda claims, analyzer, evidence, saving: (claims, analyzer, evidence, saving),
        claims=st.lists(CLAIMS, max_size=4),
        analyzer=st.sampled_from(["idle", "spot", "pools", "theirs"]),
        evidence=st.sampled_from(["confirmed", "suspected"]),
        saving=st.sampled_from(["cash", "capacity", "commitment"]),
    ),
    max_size=8,
)
WINDOWS = st.tuples(st.integers(0, 60 * HOURS - 1), st.integers(1, 60 * HOURS)).map(
    lambda m: Window(
        START + timedelta(minutes=m[0]), START + timedelta(minutes=min(60 * HOURS, m[0] + m[1]))
    )
)


@for_all(rows=ROWS, asked=FOUND, window=WINDOWS)
def test_savings_never_exceed_the_bill_in_any_window_and_grouping(
    ledger: Memory, rows: list[Row], asked: list[Any], window: Window
) -> None:
    unique = {tuple(r[k] for k in ("bucket", *GROUPS)): r for r in rows}
    post(ledger, [row | {"device": f"d{n}"} for n, row in enumerate(unique.values())])
    found = [
        finding(analyzer=analyzer, number=n, evidence=evidence, recommendations=(advice,))
        for n, (claims, analyzer, evidence, saving) in enumerate(asked)
        for advice in [Recommendation("v", "t", "w", True, saving=saving, claims=tuple(claims))]
    ]
    fallen = build_waterfall(ledger, window, found)
    since = window.start.replace(tzinfo=None, minute=0)
    within = [r for r in unique.values() if since <= r["bucket"] < window.end.replace(tzinfo=None)]
    for size in (1, 2):
        for names in combinations(GROUPS, size):
            capacity: dict[Any, float] = defaultdict(float)
            bill: dict[Any, Decimal] = defaultdict(Decimal)
            for row in within:
                key = tuple(row[name] for name in names)
                capacity[key] += row["gpu_seconds"] / 3600
                bill[key] += row["usd"] or 0
            for saved in fallen.by(*names):
                key = tuple(saved[name] for name in names)
                assert saved["gpu_hours"] <= capacity[key] + 1e-6
                assert saved["usd"] <= bill[key]
    for step in fallen.steps:
        assert 0 <= step.marginal.gpu_hours <= step.gross.gpu_hours + 1e-6
        assert step.gross.gpu_hours <= fallen.bill.gpu_hours
    whole = fallen.saved()
    parts = [fallen.saved(saving=name) for name in ("cash", "capacity", "commitment")]
    assert sum(p.gpu_hours for p in parts) == pytest.approx(whole.gpu_hours, abs=1e-5)
    assert sum(s.marginal.gpu_hours for s in fallen.steps) <= fallen.bill.gpu_hours + 1e-6
    granted_hours = round_hours(sum(fallen.grants["gpu_us"].to_pylist()))
    assert granted_hours == pytest.approx(whole.gpu_hours + fallen.bounded().gpu_hours, abs=2e-6)
    wasted = fallen.paid_in(WASTED)
    assert fallen.saved_in(WASTED).gpu_hours <= wasted.gpu_hours
    assert fallen.saved(saving="capacity").gpu_hours <= wasted.gpu_hours
    again = build_waterfall(ledger, window, list(reversed(found)))
    assert again.steps == fallen.steps


@for_all(have=st.lists(st.integers(0, 10**16), min_size=1), amount=st.integers(-5, 2**62))
def test_a_portion_is_whole_exact_and_of_what_is_there(have: list[int], amount: int) -> None:
    given = split_amount(np.array(have, dtype=np.int64), amount)
    assert int(given.sum()) == max(0, min(amount, sum(have)))
    assert all(0 <= got <= had for got, had in zip(given.tolist(), have, strict=True))


@for_all(rows=ROWS, wanted=st.floats(0, 1e9))
def test_one_claim_alone_gets_exactly_the_lesser_of_what_it_asks_and_what_is_there(
    ledger: Memory, rows: list[Row], wanted: float
) -> None:
    post(ledger, [row | {"device": f"d{n}"} for n, row in enumerate(rows)])
    query = Claim("c", None, None, None, None, "idle", wanted)
    (step,) = build_waterfall(ledger, DAY, [finding(query)]).steps
    there = sum(
        r["gpu_seconds"] / 3600 for r in rows if r["cluster"] == "c" and r["state"] == "idle"
    )
    assert step.marginal.gpu_hours == pytest.approx(min(wanted, there), abs=1e-5)


def test_hours_in_use_are_a_bound_beside_the_savings_unless_they_are_cash(views: Memory) -> None:
    states = {"idle": "d0", "low": "d1", "productive": "d2", "lost": "d3"}
    post(views, [posted(device=device, state=state) for state, device in states.items()])
    parts = tuple(claim(0.5, state=state) for state in states)
    smaller = claim(0.25, Decimal("0.5"), state="low")
    spot = claim(1.0, Decimal(1), state="productive")
    cheaper = Recommendation("move", "w", "spot", True, saving="cash", claims=(spot,))
    found = [
        finding(*parts, gpu_hours=2.0, number=1),
        finding(smaller, analyzer="sizing", number=2),
        finding(analyzer="spot", number=3, recommendations=(cheaper,)),
    ]
    fallen = build_waterfall(views, DAY, found)
    first, sizing, cash = fallen.steps
    assert (first.idle_gpu_hours, first.marginal.gpu_hours, first.at_most.gpu_hours) == (0.5, 1, 1)
    assert first.at_most.usd == Decimal(4), "half an hour of low and one of productive, at $4"
    assert (sizing.marginal.gpu_hours, sizing.at_most.gpu_hours) == (0.0, 0.25)
    assert sizing.at_most.usd == Decimal("0.5")
    assert cash.in_use == cash.marginal
    assert (cash.marginal.usd, cash.at_most.usd) == (Decimal("0.5"), Decimal(0))
    assert fallen.saved().usd == Decimal("4.5"), "of the wasted 2 x 0.5 h at $4, and the cash"
    assert fallen.bounded().usd == Decimal("4.5")
    assert fallen.saved(saving="capacity").usd == Decimal(4)
    assert fallen.saved_in(["low", "productive"]).usd == Decimal("0.5")
    assert fallen.saved_in(["idle"]).gpu_hours == 0.5
    (advice,) = add_savings(found, fallen)[1].recommendations
    assert (advice.marginal_usd, advice.at_most_usd) == (Decimal(0), Decimal("0.5"))
    assert advice.marginal_idle_gpu_hours == 0


@for_all(
    shares=st.lists(st.floats(0.01, 0.9), min_size=1, max_size=6),
    evidence=st.sampled_from(["confirmed", "suspected"]),
)
def test_the_advice_for_a_job_at_work_never_frees_all_of_it(
    shares: list[float], evidence: Any
) -> None:
    about = {"namespace": "ns", "workload_kind": "Job", "workload": "w", "team": "red"}
    row = {**about, "cluster": "c", "pool": "p", "node": "n", "model": "H100", "priced": True}
    hours = 100
    table = pa.Table.from_pylist(
        [{**row, "state": "productive", "gpu_us": hours * HOUR_US, "usd_e8": hours * 4 * CENT_E8}]
    )
    found = [
        finding(
            claim(share * hours, state="productive"),
            analyzer=f"a{number}",
            number=number,
            evidence=evidence,
            gpu_hours=share * hours,
        )
        for number, share in enumerate(shares)
    ]
    fallen = apportion_savings(table, found)
    left = math.prod(1 - share for share in shares)
    assert fallen.bounded().gpu_hours == pytest.approx(hours * (1 - left), abs=1e-4)
    assert fallen.bounded().gpu_hours < hours
    assert fallen.saved().gpu_hours == 0


def test_findings_of_one_analyzer_are_of_other_hours_and_add_up(views: Memory) -> None:
    post(views, [posted(state="productive", gpu_seconds=36000.0)])
    claims = [claim(hours, state="productive") for hours in (5, 4)]
    hangs = [finding(c, analyzer="stalled", number=n, gpu_hours=5.0) for n, c in enumerate(claims)]
    after = finding(claim(5, state="productive"), analyzer="sizing", number=9, gpu_hours=5.0)
    fallen = build_waterfall(views, DAY, [*hangs, after])
    assert [step.at_most.gpu_hours for step in fallen.steps] == [5.0, 4.0, 1.0]


def test_idle_hours_of_a_finding_without_advice_are_in_a_finding_and_save_nothing(
    views: Memory,
) -> None:
    post(views, [posted(gpu_seconds=36000.0)])
    vetoed = finding(gpu_hours=3.0, verdict="idle", recommendations=())
    fallen = build_waterfall(views, DAY, [vetoed, finding(claim(2), number=2)])
    assert (fallen.unadvised_gpu_hours, fallen.saved().gpu_hours) == (3.0, 2.0)
    assert build_waterfall(views, DAY, [clip_finding(vetoed, 1.0)]).unadvised_gpu_hours == 3.0
    assert clip_finding(vetoed, 0.5).gpu_hours == 1.5
    many = finding(gpu_hours=30.0, verdict="idle", recommendations=())
    assert build_waterfall(views, DAY, [many]).unadvised_gpu_hours == 10.0, "no more than there are"

"""What waits for data, what is kept too dear, and moves that never lose."""

import json
import os
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.datapath.analyzer import DatapathAnalyzer
from analyzers.datapath.tiers import (
    MONTH,
    ReadRange,
    compute_cache_return,
    compute_move_cost,
    compute_stay_cost,
    find_best_class,
)
from analyzers.waterfall import build_waterfall
from fallow.errors import SettingsError
from fallow.models import Finding
from fallow.settings import load
from fallow.settings.datapath import DatapathSettings, StorageClass
from runtime.operations.analysis.findings import document
from tests.analyzers.hourly import Hours

GOLDEN = Path(__file__).parent / "golden"
SLOW = {"act": 0.35, "gr_engine_active": 0.35}
HOT = {"name": "hot", "usd_per_gib_month": "0.10"}
COOL = {
    "name": "cool", "usd_per_gib_month": "0.02", "retrieval_usd_per_gib": "0.01",
    "minimum_days": 30,
}  # fmt: skip
SET = {"name": "d", "namespace": "ns", "claim": "data", "gib": 5000, "storage_class": "hot"}


def analyzer(**chosen: Any) -> DatapathAnalyzer:
    return DatapathAnalyzer(DatapathSettings.model_validate({"least_days": 1, **chosen}))


def found(site: Hours, **chosen: Any) -> list[Finding]:
    return analyzer(**chosen).find(site.views, site.window)


@pytest.mark.parametrize("name", sorted(p.name for p in GOLDEN.iterdir()))
def test_golden(name: str, site_hours: Hours, mounts: Any) -> None:
    answer = json.loads((GOLDEN / name / "site.json").read_text())
    for work in answer["workloads"]:
        pod = mounts(*work["claims"])
        site_hours.workload(work["name"], [work["rank"]], pod=pod, host=work["host"])
    made = found(site_hours, **answer["settings"])
    documents = [document(f) for f in made]
    golden = GOLDEN / name / "findings.json"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(json.dumps(documents, indent=2) + "\n")
    assert documents == json.loads(golden.read_text())
    fallen = build_waterfall(site_hours.views, site_hours.window, made)
    assert 0 < fallen.bounded().gpu_hours <= fallen.bill.gpu_hours


def test_gpus_that_rest_while_data_comes_in_wait_for_it(site_hours: Hours) -> None:
    host = {"fs_read_bps": 2e8, "net_rx_bps": 0.0, "net_tx_bps": 0.0}
    site_hours.workload("starved", [SLOW] * 2, host=host)
    (waits,) = found(site_hours)
    assert waits.kind == "data_bound"
    assert waits.gpu_hours == pytest.approx(2 * 48 * 0.65)
    assert waits.details["input_bps_per_gpu"] == 1e8


@pytest.mark.parametrize(
    ("what", "rank", "host"),
    [
        ("busy while it reads", {}, {"fs_read_bps": 2e8}),
        ("slow for another reason", SLOW, {"fs_read_bps": 1e6, "net_rx_bps": 1e6}),
        ("a collective sends what it gets", SLOW, {"net_rx_bps": 9e9, "net_tx_bps": 9e9}),
        ("reads unknown", SLOW, {"cpu_cores": 2.0}),
        ("no host metrics", SLOW, None),
    ],
)
def test_no_finding(what: str, rank: Any, host: Any, site_hours: Hours) -> None:
    site_hours.workload("job", [rank], host=host)
    assert found(site_hours) == [], what
    reasons = [
        w for d in analyzer().unjudged(site_hours.views, site_hours.window) for w in d.reasons
    ]
    unseen = host is None or not any("read" in k or "net" in k for k in host)
    assert any("no disk or network reads" in why for why in reasons) == unseen


@pytest.mark.parametrize(
    ("host", "claims", "why"),
    [
        (None, ("data",), "reads of 0% of its readers' life are known"),
        ({"fs_read_bps": 1.0}, ("data",), "reads of 100%"),
        ({"fs_read_bps": 1.0, "net_rx_bps": 1.0}, ("other",), "no pod in the inventory mounts"),
    ],
)
def test_data_whose_reads_are_unknown_stays(
    host: Any, claims: Any, why: str, site_hours: Hours, mounts: Any
) -> None:
    site_hours.workload("job", [{}], pod=mounts(*claims), host=host)
    chosen: Any = {"classes": [HOT, COOL], "datasets": [SET]}
    assert found(site_hours, **chosen) == []
    doubts = analyzer(**chosen).unjudged(site_hours.views, site_hours.window)
    assert any(why in reason for doubt in doubts for reason in doubt.reasons)


def test_a_cheaper_class_counts_every_fee(site_hours: Hours, mounts: Any) -> None:
    quiet = {"fs_read_bps": 0.0, "net_rx_bps": 0.0}
    site_hours.workload("job", [{}], pod=mounts("data"), host=quiet)
    (expensive,) = found(site_hours, classes=[HOT, COOL], datasets=[SET])
    months = 90 / (365.25 / 12)
    # Hot has no minimum stay and no retrieval: nothing but the difference of storage.
    assert expensive.details["stay_usd"] - expensive.details["move_usd"] == pytest.approx(
        5000 * 0.08 * months, abs=0.02
    )
    early = HOT | {"minimum_days": 90, "retrieval_usd_per_gib": "0.05"}
    (less,) = found(site_hours, classes=[early, COOL], datasets=[SET], horizon_days=365)
    assert less.details["fees_of_the_move_usd"] == pytest.approx(
        5000 * (0.10 * months + 0.05), abs=0.02
    )


def test_an_active_set_stays_hot(site_hours: Hours, mounts: Any) -> None:
    busy = {"fs_read_bps": 2e9, "net_rx_bps": 0.0}
    site_hours.workload("job", [{}], pod=mounts("data"), host=busy)
    assert found(site_hours, classes=[HOT, COOL], datasets=[SET]) == []


def test_a_class_that_must_be_restored_is_only_for_what_nobody_reads() -> None:
    hot, deep = (StorageClass.model_validate(c) for c in (HOT, COOL | {"instant": False}))
    of = (Fraction(5000), hot, [deep])
    then = (Fraction(90), Fraction(0))
    assert find_best_class(*of, ReadRange(Fraction(), Fraction(1, 10**6)), *then) is None
    assert find_best_class(*of, ReadRange(Fraction(), Fraction()), *then) is not None


def test_a_minimum_stay_is_paid_whole() -> None:
    hot, cool = (StorageClass.model_validate(c) for c in (HOT, COOL))
    nothing = Fraction()
    made = compute_move_cost(Fraction(1000), hot, cool, nothing, Fraction(10), nothing)
    assert made == 1000 * Fraction("0.02") * 30 / MONTH


def test_a_cache_returns_fees_less_its_own_cost() -> None:
    kept = StorageClass.model_validate(COOL)
    reads = ReadRange(Fraction(100), Fraction(500))
    # 3,000 GiB in 30 days, of which 100 fill the cache: 29 USD less 5 a month of 0.05 x 100.
    made = compute_cache_return(Fraction(100), kept, reads, Fraction(30), Fraction("0.05"))
    assert made == 29 - 5 * Fraction(30) / MONTH


money = st.integers(0, 50).map(lambda c: Decimal(c) / 1000)
storage = st.builds(
    lambda n, p, r, w, m, i: StorageClass(
        name=n, usd_per_gib_month=p, retrieval_usd_per_gib=r, write_usd_per_gib=w,
        minimum_days=m, instant=i,
    ),
    st.sampled_from(["a", "b", "c", "d"]), money, money, money, st.integers(0, 365), st.booleans(),
)  # fmt: skip
some_gib = st.integers(1, 10**6).map(Fraction)


@settings(max_examples=100, deadline=None)
@given(
    old=storage,
    classes=st.lists(storage, max_size=4),
    gib=some_gib,
    bounds=st.tuples(st.integers(0, 10**5), st.integers(0, 10**5)).map(sorted),
    days=st.integers(7, 400).map(Fraction),
    age=st.integers(0, 400).map(Fraction),
    part=st.fractions(0, 1),
    longer=st.integers(0, 500),
)
def test_no_move_ever_loses(  # noqa: PLR0917
    old: StorageClass,
    classes: list[StorageClass],
    gib: Fraction,
    bounds: list[int],
    days: Fraction,
    age: Fraction,
    part: Fraction,
    longer: int,
) -> None:
    """Whatever is read between the bounds, for the horizon or longer: never less than is said."""
    reads = ReadRange(Fraction(bounds[0]), Fraction(bounds[1]))
    move = find_best_class(gib, old, classes, reads, days, age)
    if move is None:
        return
    truth = reads.least + part * (reads.most - reads.least)
    stay, moved = (
        compute_stay_cost(gib, old, truth, days + longer),
        compute_move_cost(gib, old, move.to, truth, days + longer, age),
    )
    assert stay - moved >= move.saving_usd > 0
    assert move.saving_usd <= compute_stay_cost(gib, old, reads.most, days)


def test_a_class_without_a_price_is_refused_by_name(site_hours: Hours, mounts: Any) -> None:
    site_hours.workload(
        "job", [{}], pod=mounts("data"), host={"fs_read_bps": 0.0, "net_rx_bps": 0.0}
    )
    with pytest.raises(SettingsError, match="'hot', which has no price"):
        found(site_hours, classes=[COOL], datasets=[SET])


@pytest.mark.parametrize(
    ("key", "value", "legal"),
    [
        ("activity", 0, "greater than 0"),
        ("horizon_days", 1, "greater than or equal to 7"),
        ("read_margin", 0.5, "greater than or equal to 1"),
    ],
)
def test_a_bad_threshold_names_the_legal_range(key: str, value: float, legal: str) -> None:
    with pytest.raises(SettingsError, match=legal):
        load(flags={f"datapath.{key}": value})


def test_nothing_is_found_of_nothing(site_hours: Hours) -> None:
    assert found(site_hours) == []
    assert analyzer().unjudged(site_hours.views, site_hours.window) == []

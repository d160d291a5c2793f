"""Rates of incidents by hand: MTBF, trend, nodes worse than peers, dollars of recovery."""

from datetime import datetime, timedelta
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.reliability.incidents.rates import (
    apply_holm,
    compare_with_peers,
    compute_trend,
)
from analyzers.reliability.incidents.records import (
    Incident,
    IncidentVerdict,
    LostHours,
    RankedCause,
    Signal,
)
from analyzers.reliability.incidents.recovery import (
    FLEET,
    Exposure,
    compute_recovery_share,
    group_incidents,
    price_incident,
    read_exposure,
)
from fallow.window import Window
from tests.analyzers.conftest import START, Memory

AT = datetime(2026, 11, 2, 12)  # noqa: DTZ001  (tables hold naive UTC)
JOB = ("c", "ml", "PyTorchJob", "a")
KEY = ("job", "c", "PyTorchJob/ml/a")


def incident(
    hours: float = 0.0,
    *,
    cause: str = "gpu off the bus",
    class_: str = "device",
    node: str = "n-0",
    lost: float | None = 4.0,
    recovery_s: float | None = 1800.0,
) -> Incident:
    at = AT + timedelta(hours=hours)
    evidence = Signal("xid_off_bus", at, at, at, "c", "", "sample", JOB, node, f"GPU-{node}")
    bystander = Signal("process_failed", at, at, at, "c", "", "pod", JOB, "n-9")
    ranked = RankedCause(cause=cause, class_=class_, weight=4, signals=("xid_off_bus",))
    verdict = IncidentVerdict(cause, class_, "hold", "hold", (), "", (ranked,))
    return Incident(
        id=f"{at:%H%M}{node}", cluster="c", start=at, end=at, known_at=at, verdict=verdict,
        signals=(evidence, bystander), owners=(JOB,), nodes=(node, "n-9"),
        devices=(f"GPU-{node}",), models=(), gpus=8.0,
        lost=LostHours(lost, "unknown" if lost is None else "measured", 8.0),
        recovery_s=recovery_s,
    )  # fmt: skip


def exposure(by: str, subject: str, hours: float, gpus: float = 8.0, usd: str = "2") -> Exposure:
    cluster = "" if by in {"all", "model"} else "c"
    return Exposure(
        dimension=by, cluster=cluster, subject=subject, peers="H100", hours=hours,
        gpu_hours=hours * gpus, usd=Decimal(usd) * Decimal(hours * gpus),
    )  # fmt: skip


def site(hours: float, nodes: int = 10) -> dict[tuple[str, str, str], Exposure]:
    rows = [
        exposure("job", "PyTorchJob/ml/a", hours),
        exposure("all", "", hours * nodes),
        *(exposure("node", f"n-{n}", hours) for n in range(nodes)),
    ]
    return {(e.dimension, e.cluster, e.subject): e for e in rows}


@pytest.mark.parametrize(
    ("before", "after", "p"),
    [
        # Two-sided: twice the smaller tail of Binomial(n, 1/2).
        (8, 0, 2 / 2**8),
        (0, 8, 2 / 2**8),
        (4, 4, 1.0),
        (1, 7, 2 * (1 + 8) / 2**8),
        (0, 0, None),
    ],
)
def test_a_trend_is_the_exact_binomial_test(before: int, after: int, p: float | None) -> None:
    assert compute_trend(before, 100.0, after, 100.0) == pytest.approx(p)


def test_a_trend_counts_the_hours_of_each_side() -> None:
    assert compute_trend(1, 100.0, 3, 300.0) == pytest.approx(1.0)
    assert compute_trend(0, 0.0, 3, 300.0) is None


def test_holm_multiplies_the_smallest_by_all_and_never_falls() -> None:
    assert apply_holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert apply_holm([0.9, 0.8]) == [1.0, 1.0]
    assert apply_holm([]) == []


def test_the_worst_of_ten_nodes_is_worse_from_five_failures_on() -> None:
    """Six failures in all, one tenth of the hours each: P(>= k) is binomial, times ten nodes."""
    hours = {f"n-{n}": 100.0 for n in range(10)}
    four = compare_with_peers({"n-0": 3, "n-1": 1, "n-2": 2}, hours)
    five = compare_with_peers({"n-0": 5, "n-1": 1}, hours)
    assert not four["n-0"].is_worse
    # P(X >= 5 | 6, 0.1) = 6 * 0.1^5 * 0.9 + 0.1^6
    assert five["n-0"].p == pytest.approx(10 * (6 * 0.1**5 * 0.9 + 0.1**6))
    assert five["n-0"].is_worse
    assert five["n-0"].expected == pytest.approx(1 / 9)
    assert [name for name, test in five.items() if test.is_worse] == ["n-0"]


def test_two_nodes_have_no_peers() -> None:
    assert compare_with_peers({"a": 9}, {"a": 1.0, "b": 1.0}) == {}


@given(
    st.dictionaries(st.sampled_from([f"n-{n}" for n in range(20)]), st.integers(0, 3), min_size=3)
)
def test_a_corrected_chance_is_a_probability(counts: dict[str, int]) -> None:
    tests = compare_with_peers(counts, dict.fromkeys(counts, 50.0))
    assert all(0 <= test.p <= 1 for test in tests.values())


def test_lost_work_and_recovery_have_the_price_of_the_workload() -> None:
    """4 GPU-hours of work and 8 GPUs for half an hour, at 2 dollars."""
    cost = price_incident(incident(), site(100.0))
    assert (cost.lost_gpu_hours, cost.recovery_gpu_hours, cost.usd) == (4.0, 4.0, Decimal(16))
    unknown = price_incident(incident(lost=None, recovery_s=None), site(100.0))
    assert (unknown.gpu_hours, unknown.usd) == (None, None)
    partly = price_incident(incident(lost=None), site(100.0))
    assert (partly.gpu_hours, partly.recovery_gpu_hours, partly.usd) == (None, 4.0, None)
    assert price_incident(incident(), {}).usd is None


def test_the_share_of_recovery_is_of_all_paid_hours_and_dollars() -> None:
    share = compute_recovery_share([incident()], site(100.0))
    # 8 of 100 h x 10 nodes x 8 GPUs
    assert (share.incidents, share.unknown) == (1, 0)
    assert share.share == pytest.approx(8 / 8000)
    assert share.usd == Decimal(16)
    assert share.usd_share == pytest.approx(16 / 16000)


def test_an_unknown_loss_is_in_no_sum_and_has_its_bound() -> None:
    """4 GPU-h of one and at most 8 of the other; both took 4 GPU-h to recover."""
    incidents = [incident(), incident(1.0, lost=None)]
    share = compute_recovery_share(incidents, site(100.0))
    assert (share.incidents, share.unknown) == (2, 1)
    assert (share.lost_gpu_hours, share.most_lost_gpu_hours) == (None, 12.0)
    assert (share.recovery_gpu_hours, share.share, share.usd) == (8.0, None, None)
    [group] = group_incidents(incidents, "job", (site(100.0), {}), AT)
    assert (group.unknown, group.gpu_hours, group.usd) == (1, None, None)
    assert (group.lost_gpu_hours, group.most_lost_gpu_hours) == (None, 12.0)


def test_mtbf_has_the_exact_interval_of_its_count() -> None:
    """Five failures in 200 node hours: chi-square gives 17.1 to 123.2 hours (MIL-HDBK-781A)."""
    incidents = [incident(hours) for hours in range(5)]
    [group] = group_incidents(
        incidents, "node", (site(100.0), site(100.0)), AT + timedelta(hours=2)
    )
    assert (group.subject, group.incidents, group.before, group.after) == ("n-0", 5, 2, 3)
    assert group.mtbf is not None
    assert group.mtbf.mean_h == 40.0
    assert (group.mtbf.low_h, group.mtbf.high_h) == pytest.approx((17.14, 123.2), rel=1e-3)


def test_a_node_that_is_worse_has_the_price_of_recycling_it() -> None:
    """5 of 5 failures: 8 GPUs for half an hour once; 5 x 8 GPU-hours per 200 h, 720 h a month."""
    incidents = [incident(hours) for hours in range(5)]
    [group] = group_incidents(incidents, "node", (site(100.0), site(100.0)), AT)
    assert group.peers is not None
    assert group.peers.is_worse
    assert group.recycling is not None
    assert group.recycling.cost_gpu_hours == 4.0
    assert group.recycling.cost_usd == Decimal(8)
    assert group.recycling.saved_gpu_hours == pytest.approx(5 * 8 * 720 / 200)
    assert group.recycling.saved_usd == Decimal(288)


def test_a_node_does_not_answer_for_jobs_that_fail_by_themselves_or_for_its_neighbours() -> None:
    own = incident(cause="configuration", class_="application")
    spot = incident(cause="spot reclaim", class_="spot")
    sides = (site(100.0), site(100.0))
    assert group_incidents([own, spot], "node", sides, AT) == []
    [group] = group_incidents([incident()], "node", sides, AT)
    assert group.subject == "n-0"
    [job] = group_incidents([own, spot, incident()], "job", sides, AT)
    assert (job.subject, job.incidents) == ("PyTorchJob/ml/a", 3)
    causes = {g.subject: g.incidents for g in group_incidents([own, spot], "cause", sides, AT)}
    assert causes == {"configuration": 1, "spot reclaim": 1}


def test_exposure_counts_clock_hours_of_jobs_and_nodes_and_leaves_outages_out() -> None:
    views = Memory()
    start = START.replace(tzinfo=None)
    base = {"cluster": "c", "bucket": start, "node": "n", "model": "H100", "priced": True}
    job = {"namespace": "ml", "workload_kind": "Job", "workload": "a"}
    free = {"namespace": "", "workload_kind": "", "workload": ""}
    rows = [
        {"device": "g0", "state": "productive", **job, "seconds": 3600.0},
        {"device": "g1", "state": "idle", **job, "seconds": 1800.0},
        {"device": "g1", "state": "free", **free, "seconds": 1800.0},
        {"device": "g2", "state": "unavailable", **free, "seconds": 3600.0},
    ]
    views.rows(
        "ledger",
        [{**base, **r, "gpu_seconds": r["seconds"], "usd": Decimal(1)} for r in rows],
    )
    found = read_exposure(views, Window(START, START + timedelta(hours=1)))
    views.engine.close()
    shown = {key: (e.hours, e.gpu_hours, e.usd) for key, e in found.items()}
    assert shown == {
        ("job", "c", "Job/ml/a"): (1.0, 1.5, Decimal(2)),
        ("node", "c", "n"): (1.0, 2.0, Decimal(3)),
        ("gpu", "c", "g0"): (1.0, 1.0, Decimal(1)),
        ("gpu", "c", "g1"): (1.0, 1.0, Decimal(2)),
        ("model", "", "H100"): (2.0, 2.0, Decimal(3)),
        FLEET: (2.0, 3.0, Decimal(4)),  # its outage is no hour, and paid for
    }


def test_the_cost_of_an_incident_of_two_jobs_is_divided_by_their_gpus() -> None:
    """8 GPU-hours, 16 dollars, of jobs with 6 and 2 GPUs."""
    shared = msgspec.structs.replace(incident(), owners=(JOB, (*JOB[:3], "b")))
    rows = [
        exposure("job", "PyTorchJob/ml/a", 10.0, gpus=6), exposure("job", "PyTorchJob/ml/b", 5.0, 2)
    ]  # fmt: skip
    side = {(e.dimension, e.cluster, e.subject): e for e in rows}
    groups = group_incidents([shared], "job", (side, {}), AT)
    assert [(g.subject, g.gpu_hours, g.usd) for g in groups] == [
        ("PyTorchJob/ml/a", 6.0, Decimal(12)), ("PyTorchJob/ml/b", 2.0, Decimal(4))
    ]  # fmt: skip

"""What is found in what workloads do with their devices, and what is left alone."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzers.sizing.analyzer import SizingAnalyzer
from analyzers.waterfall import build_waterfall
from fallow.errors import SettingsError
from fallow.models import Finding
from fallow.settings import load
from fallow.settings.workloads import SizingSettings
from tests.analyzers.goldens import agree
from tests.analyzers.hourly import Hours

GOLDEN = Path(__file__).parent / "golden"
H100, A100 = Decimal("6.88"), Decimal("3.43")
DEEP_NOT = {"sm_active": 0.1, "tensor_active": 0.02, "dram_active": 0.1, "power_w": 180.0}
FEEDING = {
    "act": 0.4, "gr_engine_active": 0.4, "sm_active": 0.2, "tensor_active": 0.05,
    "dram_active": 0.1, "power_w": 250.0, "pcie_bps_max": 8e9,
}  # fmt: skip
SPINNING = {
    "act": 1.0, "gr_engine_active": 1.0, "sm_active": 0.08, "tensor_active": 0.0,
    "dram_active": 0.01, "power_w": 150.0, "pcie_bps_max": 2e3, "before": {"tensor_active": 0.4},
}  # fmt: skip
ALONE: dict[str, Any] = {"kind": "Deployment"}


def found(hours: Hours, **chosen: Any) -> dict[str, Finding]:
    analyzer = SizingAnalyzer(SizingSettings(**chosen))
    return {f.subject.workload: f for f in analyzer.find(hours.views, hours.window)}


@pytest.mark.parametrize("case", sorted(p.name for p in GOLDEN.iterdir()))
def test_a_site_becomes_its_document(case: str, hours: Hours) -> None:
    site = json.loads((GOLDEN / case / "site.json").read_text())
    for node in site.get("nodes", []):
        hours.node(**node)
    for model in site.get("offers", []):
        hours.offers(model)
    for workload in site["workloads"]:
        hours.workload(**workload)
    agree(GOLDEN / case, SizingAnalyzer().find(hours.views, hours.window))


def test_empty_tables_give_nothing(hours: Hours) -> None:
    assert SizingAnalyzer().find(hours.views, hours.window) == []
    assert SizingAnalyzer().unjudged(hours.views, hours.window) == []


@pytest.mark.parametrize(
    ("shown", "more", "kind"),
    [
        ({}, {}, None),
        (FEEDING, {}, "input_bound"),
        ({**FEEDING, "pcie_bps_max": 1e9}, {"ranks": 8}, None),
        (SPINNING, {}, "busy_hang"),
        ({**SPINNING, "before": {}, "mem_used_gib": None}, {}, "busy_hang"),
        ({**SPINNING, "power_w": 400.0, "mem_used_gib": None}, {}, "low_depth"),
        ({"sm_active": 0.15, "tensor_active": 0.01, "dram_active": 0.1}, {"ranks": 2}, "low_depth"),
        ({"sm_active": 0.2, "dram_active": 0.6}, {"ranks": 2}, None),
        ({**FEEDING, "act": 0.2, "pcie_bps_max": 0.0}, {"ranks": 4}, "low_duty"),
        ({"nvlink_bps_max": 5e11, "tensor_active": 0.1}, {"ranks": 2}, "comm_bound"),
        ({"nvlink_bps_max": 5e11}, {"ranks": 2}, None),
        ({"nvlink_bps_max": 5e11, "tensor_active": 0.1}, {}, None),
    ],
)
def test_a_signature_is_named_for_what_it_is(
    hours: Hours, shown: dict[str, Any], more: dict[str, int], kind: str | None
) -> None:
    hours.workload("w", [shown] * more.get("ranks", 1))
    assert {f.kind for f in found(hours).values()} == ({kind} if kind else set())


@pytest.mark.parametrize(
    "shown",
    [
        {"sm_active": 0.15, "tensor_active": 0.01, "dram_active": 0.1, "power_w": 150.0},
        {"nvlink_bps_max": 5e11, "tensor_active": 0.1},
    ],
)
def test_the_most_that_may_be_wasted_is_a_suspicion_whoever_agrees(
    hours: Hours, shown: dict[str, Any]
) -> None:
    hours.workload("w", [shown] * 2, host={"cpu_cores": 4.0, "net_rx_bps": 5e9, "net_tx_bps": 5e9})
    wide = found(hours)["w"]
    assert wide.kind in {"low_depth", "comm_bound"}
    assert wide.evidence == "suspected"
    assert "the most that may be wasted" in wide.details["assumptions"][0]


def test_a_hang_costs_all_of_its_hours_but_the_first(hours: Hours) -> None:
    hours.workload("w", [SPINNING] * 2)
    hang = found(hours)["w"]
    assert hang.evidence == "confirmed"
    assert hang.gpu_hours == 2 * 47
    assert float(hang.usd or 0) == pytest.approx(float(H100) * 2 * 47)


def test_a_device_that_never_did_but_spin_is_suspected(hours: Hours) -> None:
    hours.workload("w", [{**SPINNING, "before": {}}])
    spins = found(hours)["w"]
    assert (spins.kind, spins.evidence, spins.gpu_hours) == ("busy_hang", "suspected", 48)


def test_replicas_of_a_service_do_not_straggle(hours: Hours) -> None:
    ranks = [{}, *[{"sm_active": 0.35, "tensor_active": 0.15, "power_w": 310.0}] * 3]
    hours.workload("job", ranks)
    hours.workload("service", ranks, kind="Deployment")
    assert {name: f.kind for name, f in found(hours).items()} == {"job": "straggler"}
    slow = found(hours)["job"]
    assert slow.evidence == "confirmed"
    assert slow.gpu_hours == pytest.approx(4 * 48 * (1 - (0.7 + 3 * 0.35) / 4 / 0.7))
    assert "GPU-0000 on n0" in slow.recommendations[0].why


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ({"cpu_cores": 4.0, "cpu_throttled_ratio": 0.4}, "cpu_starved"),
        ({"cpu_cores": 15.9}, "cpu_starved"),
        ({"cpu_cores": 4.0, "cpu_throttled_ratio": 0.1}, "input_bound"),
        (None, "input_bound"),
    ],
)
def test_a_host_at_its_limit_comes_before_its_pipeline(
    hours: Hours, host: dict[str, Any] | None, kind: str
) -> None:
    hours.workload("w", [FEEDING], host=host)
    assert found(hours)["w"].kind == kind


SMALL = {**DEEP_NOT, "mem_used_gib": 12.0}
"""It fits on 1g.20gb, a seventh of the compute and a quarter of the memory of an H100."""


@pytest.mark.parametrize(
    ("services", "pods", "share", "evidence"),
    [
        (1, 1, 6 / 7, "suspected"),
        (2, 1, 1 / 2, "confirmed"),
        (4, 1, 3 / 4, "confirmed"),
        (1, 4, 3 / 4, "confirmed"),
        (5, 1, 3 / 5, "confirmed"),
    ],
)
def test_a_smaller_instance_saves_where_others_use_the_rest_of_the_gpu(
    hours: Hours, services: int, pods: int, share: float, evidence: str
) -> None:
    """Four of 20 GB share the 80 GB of a GPU: of 2 GPUs 1 is saved, of 4 three, of 5 three.

    Alone it saves nothing: the rest of its GPU stays paid, so that 6/7 are the most.
    """
    for n in range(services):
        hours.workload(f"small-{n}", [SMALL] * pods, gpus_per_pod=1, **ALONE)
    findings = found(hours)
    assert len(findings) == services
    for finding in findings.values():
        assert (finding.kind, finding.evidence) == ("oversized", evidence)
        assert finding.gpu_hours == pytest.approx(48 * pods * share, abs=1e-5)
        assert ("at most" in finding.details["why"]) == (evidence == "suspected")


def test_a_smaller_instance_of_a_model_that_is_divided_saves_all_of_the_rest(
    hours: Hours,
) -> None:
    hours.workload("small", [SMALL], gpus_per_pod=1, **ALONE)
    hours.workload("divided", [{}], profile="1g.20gb", gpus_per_pod=1, **ALONE)
    assert found(hours)["small"].evidence == "confirmed"


def test_memory_that_a_framework_reserved_says_nothing(hours: Hours) -> None:
    hours.workload("torch", [{**DEEP_NOT, "mem_used_gib": 6.0}], **ALONE)
    hours.workload("vllm", [{**DEEP_NOT, "mem_used_gib": 72.0, "mem_least_gib": 72.0}], **ALONE)
    answer = found(hours)
    assert answer["torch"].recommendations[0].verb == "take a MIG instance"
    assert answer["torch"].details["memory"] == "at most 6.0 of 80 GiB"
    assert answer["vllm"].kind == "low_depth"
    assert answer["vllm"].details["memory"].startswith("unknown")
    held = SizingAnalyzer().unjudged(hours.views, hours.window)
    assert [(u.subject.workload, u.gpu_hours) for u in held] == [("vllm", 48.0)]
    assert "max_memory_allocated" in held[0].reasons[0]


@pytest.mark.parametrize(
    ("gib", "sm", "dram", "profile"),
    [
        (6.0, 0.10, 0.05, "1g.10gb"),
        (12.0, 0.10, 0.05, "1g.20gb"),
        (6.0, 0.20, 0.05, "2g.20gb"),  # 0.2 x 7 / 1 is beyond the target of 0.8
        (6.0, 0.10, 0.15, "1g.20gb"),  # 0.15 x 8 / 1 is beyond what memory can do
        (30.0, 0.10, 0.05, "3g.40gb"),
        (45.0, 0.10, 0.05, None),
        (30.0, 0.50, 0.05, None),  # 0.5 x 7 / 4 is too
    ],
)
def test_the_smallest_instance_that_holds_it_is_advised(
    hours: Hours, gib: float, sm: float, dram: float, profile: str | None
) -> None:
    shown = {**DEEP_NOT, "mem_used_gib": gib, "sm_active": sm, "dram_active": dram}
    hours.workload("w", [shown], **ALONE)
    advised = [r for f in found(hours).values() for r in f.recommendations]
    names = [r.why.split(" ")[0] for r in advised if r.verb == "take a MIG instance"]
    assert names == ([profile] if profile else [])


def test_a_model_that_the_site_has_and_that_keeps_pace_is_advised(hours: Hours) -> None:
    hours.workload("w", [{**DEEP_NOT, "mem_used_gib": 30.0}] * 2, **ALONE)
    hours.offers("K80")
    assert found(hours)["w"].kind == "low_depth"
    hours.offers("L4")  # 24 GiB are too few
    assert found(hours)["w"].kind == "low_depth"
    hours.offers("A100-80GB")
    advised = found(hours)["w"]
    assert advised.kind == "oversized"
    assert advised.recommendations[0].why.startswith("a A100-80GB")
    assert float(advised.usd or 0) == pytest.approx(float((H100 - A100) * 96))


def test_an_instance_may_be_too_large_too(hours: Hours) -> None:
    shown = {**DEEP_NOT, "mem_used_gib": 3.0}
    hours.workload("w", [shown], profile="3g.40gb", weight=3 / 7, **ALONE)
    advised = found(hours, least_gpu_hours=12)["w"]
    assert advised.recommendations[0].why.startswith("1g.10gb")
    assert advised.evidence == "suspected"  # the board's power is not the instance's
    assert advised.gpu_hours == pytest.approx(48 * 3 / 7 * 2 / 3, abs=1e-5)


def test_without_profiling_counters_depth_is_withheld_with_the_lines_that_turn_them_on(
    hours: Hours,
) -> None:
    shown = {
        "sm_active": None, "tensor_active": None, "dram_active": None, "mem_used_gib": 3.0,
        "power_w": 150.0,
    }  # fmt: skip
    hours.workload("w", [shown], **ALONE)
    assert found(hours) == {}
    held = SizingAnalyzer().unjudged(hours.views, hours.window)
    assert ["DCGM_FI_PROF_SM_ACTIVE" in r for u in held for r in u.reasons] == [True]


def test_nobody_is_judged_on_a_device_that_others_share(hours: Hours) -> None:
    hours.workload("w", [FEEDING], sharers=2)
    assert found(hours) == {}
    held = SizingAnalyzer().unjudged(hours.views, hours.window)
    assert [(u.subject.workload, u.gpu_hours) for u in held] == [("w", 24.0)]


def test_hours_that_telemetry_names_nobody_for_are_their_holders(hours: Hours) -> None:
    hours.workload("w", [FEEDING], named=False)
    assert found(hours)["w"].gpu_hours == pytest.approx(48 * 0.6)


def test_what_rested_more_than_it_worked_is_only_suspected(hours: Hours) -> None:
    shown = {**DEEP_NOT, "mem_used_gib": 6.0}
    hours.workload("w", [shown], hours=(0, 6), kind="Notebook")
    assert found(hours) == {}
    hours.workload("v", [{**shown, "act": 0.0}], hours=(0, 42), kind="Notebook")
    hours.views.engine.execute("UPDATE rollup_1h SET pod = 'w-0'")
    hours.views.engine.execute("UPDATE ledger SET workload = 'w'")
    advised = found(hours)["w"]
    assert advised.evidence == "suspected"
    assert advised.gpu_hours == pytest.approx(48 * 6 / 7, abs=1e-5)
    assert {c.state for c in advised.recommendations[0].claims} == {"idle", "productive"}


@pytest.mark.parametrize(
    ("cpu_milli", "used", "free", "hours_blocked"),
    [
        (30_000, 2.0, 4, 48 * 0.25),  # 30 of 24 cores is no more than the factor of 1.25
        (48_000, 2.0, 4, 48.0),
        (48_000, 2.0, 0.5, 24.0),
        (48_000, 40.0, 4, 0.0),
        (48_000, None, 4, 48.0),
        (24_000, 2.0, 4, 0.0),
    ],
)
def test_a_hog_costs_the_free_gpus_that_it_blocks(
    hours: Hours, cpu_milli: int, used: float | None, free: float, hours_blocked: float
) -> None:
    hours.node("n0", free_gpus=free)
    host = None if used is None else {"cpu_cores": used, "memory_bytes": 1}
    hours.workload("w", pod={"cpu_request_milli": cpu_milli}, host=host)
    blocked = found(hours).get("w")
    if cpu_milli <= 30_000 or not hours_blocked:
        assert blocked is None
        return
    assert blocked is not None
    assert (blocked.kind, blocked.gpu_hours) == ("cpu_hog", hours_blocked)
    assert blocked.evidence == ("suspected" if used is None else "confirmed")
    assert blocked.usd == H100 * Decimal(repr(hours_blocked))


def test_what_has_no_price_has_no_dollars(hours: Hours) -> None:
    hours.workload("w", [FEEDING], priced=False)
    advised = found(hours)["w"]
    assert advised.usd is None
    assert advised.gpu_hours == pytest.approx(48 * 0.6)
    assert any("price" in answer for answer in advised.details["assumptions"])


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("target", 0, "greater than 0"), ("low_duty", 2, "less than or equal to 1")],
)
def test_a_bad_threshold_names_its_range(name: str, value: float, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        load(environ={}, flags={f"sizing.{name}": value})


ratios = st.floats(0, 1).map(lambda x: round(x, 3))
shows = st.fixed_dictionaries(
    {
        "act": ratios, "gr_engine_active": ratios, "sm_active": st.none() | ratios,
        "tensor_active": st.none() | ratios, "dram_active": st.none() | ratios,
        "fp32_active": st.none() | ratios, "power_w": st.none() | st.floats(60, 700),
        "mem_used_gib": st.none() | st.floats(0.1, 79), "pcie_bps_max": st.floats(0, 2e10),
        "nvlink_bps_max": st.none() | st.floats(0, 9e11),
    }
)  # fmt: skip
fleets = st.lists(
    st.tuples(
        st.lists(shows, min_size=1, max_size=4),
        st.sampled_from(["PyTorchJob", "Deployment", "Notebook"]),
        st.booleans(),
    ),
    max_size=4,
)


@pytest.mark.slow
@given(fleet=fleets)
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_workload_wastes_more_than_it_cost_and_confirmation_takes_two_witnesses(
    views: Any, fleet: list[tuple[list[dict[str, Any]], str, bool]]
) -> None:
    for table in ("rollup_1h", "allocation", "device", "pod", "ledger", "node"):
        views.engine.execute(f"DELETE FROM {table}")
    hours = Hours(views)
    hours.offers("A100-80GB")
    for n, (ranks, kind, priced) in enumerate(fleet):
        hours.workload(f"w{n}", ranks, kind=kind, priced=priced, hours=(0, 26))
    made = SizingAnalyzer().find(views, hours.window)
    assert made == SizingAnalyzer().find(views, hours.window)
    assert len({f.subject.workload for f in made}) == len(made)
    for one in made:
        ranks = fleet[int(one.subject.workload[1:])][0]
        assert 0 < one.gpu_hours <= 26 * len(ranks) + 1e-6
        assert one.usd is None or one.usd <= H100 * 26 * len(ranks)
        for advice in one.recommendations:
            claimed = sum(claim.gpu_hours for claim in advice.claims)
            assert (
                claimed == pytest.approx(one.gpu_hours, abs=1e-4)
                or advice is not (one.recommendations[0])
            )
        if one.evidence == "confirmed":
            assert any(rank["power_w"] is not None for rank in ranks)
    apportioned_usd = build_waterfall(views, hours.window, made)
    assert apportioned_usd.bounded().gpu_hours <= apportioned_usd.bill.gpu_hours
    saved, bill = apportioned_usd.bounded().usd, apportioned_usd.bill.usd
    assert saved is None or bill is None or saved <= bill

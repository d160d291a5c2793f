"""What fewer bits could save: by pipe, by architecture, and never more than the roofline allows."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzers.gpu_peaks import read_gpu_peaks
from analyzers.precision.analyzer import PrecisionAnalyzer
from analyzers.precision.gains import (
    compute_pipe_gain,
    compute_roofline,
    compute_speedup,
    list_formats,
)
from analyzers.waterfall import build_waterfall
from fallow.errors import SettingsError
from fallow.gpu_models import read_gpu_models
from fallow.models import Finding
from fallow.settings import load
from fallow.settings.workloads import PrecisionSettings
from tests.analyzers.goldens import agree
from tests.analyzers.hourly import Hours

GOLDEN = Path(__file__).parent / "golden"
FP32 = {"sm_active": 0.8, "tensor_active": 0.0, "fp32_active": 0.5, "dram_active": 0.3}
BF16 = {"sm_active": 0.8, "tensor_active": 0.4, "fp32_active": 0.05, "dram_active": 0.3}
WAITS = {"sm_active": 0.7, "tensor_active": 0.1, "fp32_active": 0.05, "dram_active": 0.7}


def found(hours: Hours, **chosen: Any) -> dict[str, Finding]:
    analyzer = PrecisionAnalyzer(PrecisionSettings(**chosen))
    return {f.subject.workload: f for f in analyzer.find(hours.views, hours.window)}


@pytest.mark.parametrize("case", sorted(p.name for p in GOLDEN.iterdir()))
def test_a_site_becomes_its_document(case: str, hours: Hours) -> None:
    for workload in json.loads((GOLDEN / case / "site.json").read_text())["workloads"]:
        hours.workload(**workload)
    agree(GOLDEN / case, PrecisionAnalyzer().find(hours.views, hours.window))


def test_empty_tables_give_nothing(hours: Hours) -> None:
    assert PrecisionAnalyzer().find(hours.views, hours.window) == []
    assert PrecisionAnalyzer().unjudged(hours.views, hours.window) == []


@pytest.mark.parametrize(
    ("model", "kind", "shown", "formats"),
    [
        ("H100", "Job", FP32, ["TF32", "BF16"]),
        ("T4", "Job", FP32, ["FP16"]),
        ("K80", "Job", FP32, []),  # no tensor cores
        ("H100", "Job", BF16, ["FP8"]),
        ("H200", "Deployment", BF16, ["FP8"]),
        ("A100-80GB", "Job", BF16, []),  # no FP8 before Hopper
        ("L4", "Job", BF16, []),
        ("H100", "Deployment", WAITS, ["FP8", "INT8", "INT4"]),
        ("A100-80GB", "Deployment", WAITS, ["INT8", "INT4"]),
        ("H100", "Job", WAITS, []),  # training weights stay
        ("H100", "Notebook", WAITS, []),
        ("H100", "Job", {**FP32, "tensor_active": 0.03}, []),
        ("H100", "Job", {**FP32, "sm_active": 0.4}, []),
        ("H100", "Job", {**FP32, "fp32_active": 0.1}, []),
    ],
)
def test_only_what_the_architecture_has_is_advised(
    hours: Hours, model: str, kind: str, shown: dict[str, Any], formats: list[str]
) -> None:
    hours.workload("w", [shown], model=model, kind=kind)
    advised = found(hours).get("w")
    named = [r["format"] for r in advised.details["ranges"]] if advised else []
    assert named == formats
    assert advised is None or advised.evidence == "suspected"


def test_the_range_is_amdahl_under_the_roofline(hours: Hours) -> None:
    hours.workload("w", [FP32])
    hours.workload("m", [{**FP32, "dram_active": 0.7}])
    low = compute_speedup(0.5 / 0.8 * 0.5, 494.5 / 67 * 0.65)
    high = compute_speedup(0.5 / 0.8, 494.5 / 67 * 0.8)
    answer = found(hours)
    assert answer["w"].details["ranges"][0]["times_as_fast"] == pytest.approx([low, high], abs=1e-3)
    assert answer["w"].gpu_hours == pytest.approx(48 * (1 - 1 / low), abs=1e-5)
    # TF32 reads as many bytes as FP32: at 0.7 of 0.8 there is little to win, in BF16 twice that.
    ranges = {r["format"]: r["times_as_fast"] for r in answer["m"].details["ranges"]}
    assert ranges["TF32"] == pytest.approx([0.8 / 0.7] * 2, abs=1e-3)
    assert ranges["BF16"][1] == pytest.approx(2 * 0.8 / 0.7, abs=1e-3)


@pytest.mark.parametrize(
    ("model", "form", "ridge"),
    [
        ("A100-80GB", "bf16_tflops", 153), ("A100-80GB", "tf32_tflops", 77),
        ("A100-80GB", "fp32_tflops", 10), ("H100", "bf16_tflops", 295),
        ("H100", "fp8_tflops", 591),
    ],
)  # fmt: skip
def test_peaks_have_the_published_ridges(model: str, form: str, ridge: float) -> None:
    peaks = read_gpu_peaks()[model]
    assert getattr(peaks, form) * 1000 / peaks.memory_gbs == pytest.approx(ridge, rel=0.06)


def test_counters_that_are_off_are_withheld_with_the_lines_that_turn_them_on(hours: Hours) -> None:
    off = {"sm_active": None, "tensor_active": None, "dram_active": None}
    hours.workload("blind", [off])
    hours.workload("half", [{**FP32, "fp32_active": None}])
    hours.workload("old", [off], model="K80")
    hours.workload("fine", [FP32])
    assert set(found(hours)) == {"fine"}
    held = PrecisionAnalyzer().unjudged(hours.views, hours.window)
    lines = {u.subject.workload: u.reasons[0].count(", gauge, ") for u in held}
    assert lines == {"blind": 4, "half": 1}
    assert all("DCGM_FI_PROF_PIPE_FP32_ACTIVE, gauge, " in u.reasons[0] for u in held)


def test_a_workload_on_two_models_is_judged_on_each_and_pays_once(hours: Hours) -> None:
    hours.workload("w", [BF16])
    hours.workload("w", [BF16], model="A100-80GB")
    advised = found(hours)["w"]
    low = compute_speedup(0.4 / 0.8 / 2, 1979 / 989 * 0.65)
    assert advised.subject.models == ("H100",)
    assert advised.details["hours_at_work"] == 48
    assert advised.gpu_hours == pytest.approx(48 * (1 - 1 / low), abs=1e-5)
    assert sum(c.gpu_hours for c in advised.recommendations[0].claims) == pytest.approx(
        advised.gpu_hours, abs=1e-4
    )


def test_devices_that_are_shared_are_left_out(hours: Hours) -> None:
    hours.workload("w", [FP32], sharers=2)
    assert found(hours) == {}


def test_a_bad_threshold_names_its_range() -> None:
    with pytest.raises(SettingsError, match="less than or equal to 1"):
        load(environ={}, flags={"precision.tensor_asleep": 2})


ratios = st.floats(0.01, 1)


@given(
    model=st.sampled_from(sorted(read_gpu_peaks())),
    sm=ratios, pipe=ratios, dram=st.none() | ratios,
    kind=st.sampled_from(["fp32_asleep", "fp8"]),
)  # fmt: skip
def test_no_range_is_beyond_amdahl_the_roofline_or_the_peak(
    model: str, sm: float, pipe: float, dram: float | None, kind: str
) -> None:
    peaks = read_gpu_peaks()[model]
    arch = next(m.arch for m in read_gpu_models() if m.gpu_model == model)
    now = peaks.fp32_tflops if kind == "fp32_asleep" else peaks.tensor_tflops
    for one in list_formats(kind, arch):
        gain = compute_pipe_gain(pipe, sm, dram, now, peaks, one)
        if gain is None:
            continue
        assert 1 <= gain.low <= gain.high
        assert gain.high <= getattr(peaks, one.rate) / now
        assert gain.high <= compute_roofline(dram, one.bytes) + 1e-9
        assert gain.high <= compute_speedup(min(1.0, pipe / sm), 1e9) + 1e-6
        assert 0 <= gain.shares[0] <= gain.shares[1] < 1


@given(
    fleet=st.lists(
        st.tuples(ratios, ratios, ratios, ratios, st.sampled_from(["H100", "A100-80GB", "T4"])),
        max_size=4,
    )
)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_saved_never_exceeds_the_bill(views: Any, fleet: list[Any]) -> None:
    for table in ("rollup_1h", "allocation", "device", "pod", "ledger"):
        views.engine.execute(f"DELETE FROM {table}")
    hours = Hours(views)
    for n, (sm, tensor, fp32, dram, model) in enumerate(fleet):
        shown = {"sm_active": sm, "tensor_active": tensor / 5, "fp32_active": fp32,
                 "dram_active": dram}  # fmt: skip
        hours.workload(f"w{n % 3}", [shown], kind="Deployment", model=model, hours=(0, 26))
    made = PrecisionAnalyzer().find(views, hours.window)
    apportioned_usd = build_waterfall(views, hours.window, made)
    assert apportioned_usd.bounded().gpu_hours <= apportioned_usd.bill.gpu_hours
    assert sum(f.gpu_hours for f in made) <= 26 * len(fleet) + 1e-6
    for one in made:
        for shown in one.details["ranges"]:
            assert shown["gpu_hours"][0] <= shown["gpu_hours"][1] <= 26 * len(fleet)

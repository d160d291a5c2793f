"""What a finding says of a stretch: figures, words and rules, by hand."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from analyzers.idle.evidence import VETOES, IdleSignals, Judgement, judge_signals
from analyzers.idle.findings import build_case, build_finding, decide_kind
from analyzers.idle.rows import JudgedStretch, NumberedDevice
from fallow.idle_details import Hold
from fallow.settings.idle import IdleSettings
from warehouse.signals.runs import MICRO

HOUR = 3600 * MICRO
SETTINGS = IdleSettings(threshold=0.05, min_duration=timedelta(minutes=60))
SURE = IdleSignals(physics=True, host=True, intent=True)
STRETCH: dict[str, Any] = {
    "cluster": "c", "namespace": "ns", "workload_kind": "Job", "workload": "w", "case": 0, "k": 0,
    "mark": 0, "team": "t", "kind": "idle_job", "evidence": "confirmed", "actionable": True,
    "confidence": 1.0, "coverage": 0.98765, "gpu_hours": 2.0, "usd": None, "start": 0,
    "end": 2 * HOUR, "at": 2 * HOUR, "state": "idle", "verdict": "idle", "gpu_us": 3.0 * HOUR,
    "samples": 240, "devices": 4, "power_w": None, "band_w": None, "band": None,
    "processes": None, "idle_clock": None, "kernel_age_s": None, "numbers": [0], "judgement": 0,
    "gap": None, "longest_rest_us": None, "wanted": None, "exposures": None, "returns": None,
    "own_days": None, "own_returns": None, "holds": None,
    "waiting": None, "running": None, "swapped": None,
}  # fmt: skip


def device(n: int = 0, **columns: Any) -> NumberedDevice:
    base: dict[str, Any] = {
        "device": f"GPU-{n:02}", "node": f"n{n:02}", "model": "raw H100", "gpu_model": "H100",
        "weight": 1.0, "interval_s": 60.0,
    }  # fmt: skip
    return NumberedDevice(**(base | columns))


def case_of(
    members: list[NumberedDevice] | None = None,
    signals: IdleSignals = SURE,
    judgement: Judgement | None = None,
    **columns: Any,
) -> Any:
    row = JudgedStretch(**(STRETCH | columns))
    return build_case(
        row, members or [device()], signals, judgement or judge_signals(signals), source="sample"
    )


def finding(signals: IdleSignals = SURE, settings: IdleSettings = SETTINGS, **columns: Any) -> Any:
    return build_finding(case_of(signals=signals, **columns), settings)


def test_a_case_has_the_hours_and_the_window_of_its_stretch() -> None:
    case = case_of(usd=1.2345678)
    assert case.gpu_hours == 3.0
    assert case.usd == Decimal("1.234567"), "never above the bill"
    assert case.window.start == datetime(1970, 1, 1, tzinfo=UTC)
    assert case.window.end == datetime(1970, 1, 1, 2, tzinfo=UTC)
    assert case_of().usd is None
    assert case_of(gpu_us=0.0036 * 1.6 * MICRO).gpu_hours == 0.000002


def test_a_subject_names_at_most_sixteen_nodes_and_every_model_once() -> None:
    devices = [device(n, model="raw" if n else None) for n in reversed(range(20))]
    devices += [device(30, node=None, gpu_model=None, model="Unknown GPU")]
    subject = case_of(devices).subject
    assert subject.nodes == tuple(f"n{n:02}" for n in range(16))
    assert subject.models == ("H100", "Unknown GPU")
    assert (subject.cluster, subject.workload, subject.team) == ("c", "w", "t")
    assert case_of([device(model=None)]).subject.models == ()


def test_a_finding_lists_at_most_sixteen_devices_and_counts_the_others() -> None:
    devices = [device(n) for n in reversed(range(20))]
    details = build_finding(case_of(devices, devices=20), SETTINGS).details
    assert details["devices"] == [f"GPU-{n:02}" for n in range(16)]
    assert (details["devices_idle"], details["devices_held"]) == (20, 20)
    assert details["why"].startswith("20 of 20 GPUs at or below 5% for 2h")


def test_a_verdict_without_evidence_is_no_finding() -> None:
    with pytest.raises(ValueError, match="no finding without evidence"):
        finding(IdleSignals(opt_out=True))


def test_what_holds_a_workload_is_listed_with_its_requests_first() -> None:
    budget = Hold("PodDisruptionBudget ns/web allows none")
    held = IdleSignals(physics=True, host=True, intent=True, requested=True, on_hold=True)
    found = finding(held, actionable=False, holds=[budget], waiting=12.0, running=0.0)
    reasons = [hold["why"] for hold in found.details["held_by"]]
    assert reasons == ["requests at its servers: 12 wait", budget.why]
    assert "held_by" not in finding(holds=[budget]).details, "no flag, no hold"


def test_an_idle_workload_may_be_acted_upon_and_partly_idle_ranks_never() -> None:
    whole = finding()
    assert (whole.verdict, whole.details["actionable"], whole.details["reasons"]) == (
        "idle", True, [],
    )  # fmt: skip
    partly = finding(kind="over_allocated_ranks")
    assert (partly.verdict, partly.details["actionable"]) == ("partly idle", False)
    assert partly.details["reasons"] == [
        "other devices of the workload compute: ask for fewer, never stop it"
    ]
    doubted = finding(IdleSignals(physics=True))
    assert doubted.details["actionable"] is False


def test_confidence_is_halved_where_shares_are_estimated() -> None:
    assert finding().confidence == 0.9877
    assert finding(IdleSignals(physics=True, host=True, shared_estimated=True)).confidence == (
        0.4938
    )


def test_reasons_name_what_has_no_telemetry() -> None:
    assert finding(gap="1 of 2 has none").details["reasons"] == ["1 of 2 has none"]


def test_details_have_the_figures_of_the_stretch_and_the_rule() -> None:
    details = finding(longest_rest_us=90 * 60 * MICRO, power_w=98.76, band_w=100.04, band="learned",
                      ).details  # fmt: skip
    assert (details["coverage"], details["samples"], details["read_from"]) == (
        0.9877,
        240,
        "sample",
    )
    assert (details["power_w"], details["idle_band_w"], details["idle_band"]) == (
        98.8, 100.0, "learned",
    )  # fmt: skip
    assert details["longest_rest"] == "1h30m"
    assert details["rule"] == {
        "threshold": 0.05, "exit_threshold": 0.1, "exit_samples": 2, "min_duration": "1h",
        "service_duration": "1d", "max_gap": "3 intervals", "coverage": 0.9,
        "power_margin_w": 10.0,
    }  # fmt: skip
    gap = finding(settings=IdleSettings(max_gap=timedelta(minutes=7)))
    assert gap.details["rule"]["max_gap"] == "7m"
    plain = finding().details
    absent = {"power_w", "idle_band_w", "idle_band", "longest_rest", "vetoes", "wanted"}
    assert not absent & set(plain)


@pytest.mark.parametrize("name", sorted(VETOES))
def test_a_veto_that_no_policy_may_ignore_is_listed(name: str) -> None:
    details = finding(IdleSignals(physics=True, host=True, **{name: True})).details
    assert details["vetoes"] == [VETOES[name]]


WANTED: dict[str, Any] = {
    "wanted": 0.0, "exposures": 1, "returns": 2, "own_days": 3, "own_returns": 4,
}  # fmt: skip


def test_the_probability_of_a_return_is_that_of_a_whole_workload() -> None:
    expected = {"probability": 0.0, "within": "4h", "exposures": 1, "returns": 2, "own_days": 3,
                "own_returns": 4}  # fmt: skip
    details = finding(**WANTED).details
    assert details["wanted"] == expected
    assert "wanted_asked" not in details
    assert "wanted" not in finding(kind="over_allocated_ranks", **WANTED).details
    unasked = finding(settings=IdleSettings(min_expected_rest=None), **WANTED).details
    assert unasked["wanted_asked"] is False
    assert "wanted" not in unasked


@pytest.mark.parametrize(
    ("physics", "columns", "text"),
    [
        (None, {}, "unknown"),
        (True, {"power_w": 98.4, "band_w": 100.6, "band": "prior"},
         "98 W, idle band 101 W (prior)"),
        (True, {"power_w": 98.4, "processes": 0.0}, "no process on the device"),
        (True, {"band_w": 98.4, "processes": 0.0}, "no process on the device"),
        (True, {"idle_clock": 1.0}, "the driver says idle clocks"),
        (True, {"processes": 1.0, "idle_clock": 1.0}, "the driver says idle clocks"),
        (True, {"kernel_age_s": 7200.0}, "last kernel 2h ago"),
        (True, {"kernel_age_s": None}, "last kernel 0s ago"),
    ],
)  # fmt: skip
def test_physics_is_described_by_its_strongest_figure(
    physics: bool | None, columns: dict[str, Any], text: str
) -> None:
    signals = IdleSignals(physics=physics, intent=True)
    details = finding(signals, **columns).details
    assert details["signals"]["physics"] == text
    assert (text in details["why"]) is (physics is not None)


@pytest.mark.parametrize(
    ("signals", "host", "intent", "why"),
    [
        (IdleSignals(), "unknown", "unknown", []),
        (IdleSignals(host=True), "idle", "unknown", ["host idle"]),
        (IdleSignals(host=False), "busy", "unknown", ["host busy"]),
        (IdleSignals(intent=True), "unknown", "idle",
         ["no activity of kernels, terminals, requests"]),
        (IdleSignals(host=True, intent=True), "idle", "idle",
         ["host idle", "no activity of kernels, terminals, requests"]),
    ],
)  # fmt: skip
def test_host_and_intent_are_described_where_they_are_known(
    signals: IdleSignals, host: str, intent: str, why: list[str]
) -> None:
    details = finding(signals).details
    assert (details["signals"]["host"], details["signals"]["intent"]) == (host, intent)
    assert details["why"].split("; ")[1:] == why
    assert details["signals"]["compute"] == "activity at or below 0.05 for 2h"


@pytest.mark.parametrize(
    ("workload_kind", "served", "notebook", "kind"),
    [
        ("Notebook", False, False, "idle_notebook"),
        ("Notebook", True, False, "idle_notebook"),
        ("Job", True, True, "idle_job"),
        ("Deployment", False, False, "idle_workload"),
        ("Deployment", True, False, "idle_inference"),
        ("Deployment", False, True, "idle_notebook"),
        ("Deployment", True, True, "idle_notebook"),
    ],
)
def test_the_kind_of_a_finding(
    workload_kind: str, kind: str, *, served: bool, notebook: bool
) -> None:
    assert decide_kind(workload_kind, served, notebook) == kind

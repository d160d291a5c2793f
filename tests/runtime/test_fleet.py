"""The synthetic fleet: deterministic, physically plausible, and honest about what it planted."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import numpy as np
import pytest

from collectors.exposition import read
from fallow.nouns import Finding, Subject
from fallow.window import Window
from runtime.fleet.exposition import scrapes
from runtime.fleet.inventory import kubectl
from runtime.fleet.plan import SLICES, Fleet, lay_out
from runtime.fleet.signals import OUTAGE_NODE, Signals, measure
from runtime.fleet.truth import Stretch, compare, planted
from runtime.fleet.witnesses import batches

END = datetime(2026, 11, 16, tzinfo=UTC)
WINDOW = Window(END - timedelta(days=2), END)


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return lay_out(128, seed=1)


@pytest.fixture(scope="module")
def signals(fleet: Fleet) -> Signals:
    return measure(fleet, WINDOW, 300.0, seed=1)


@pytest.mark.parametrize("gpus", [1, 8, 12, 16, 128, 200])
def test_the_fleet_has_as_many_gpus_as_asked(gpus: int) -> None:
    made = lay_out(gpus, seed=1)
    assert len({d.uuid for d in made.devices}) == gpus
    assert sum(d.weight for d in made.devices) == pytest.approx(gpus)
    for device in made.devices:
        for one, other in zip(device.pods, device.pods[1:], strict=False):
            assert one.end <= other.begin


def test_instances_of_a_gpu_never_exceed_its_slices(fleet: Fleet) -> None:
    instances = [d for d in fleet.devices if d.instance is not None]
    assert instances
    assert sum(int((d.profile or "")[0]) for d in instances) == SLICES
    assert len({(d.uuid, d.instance) for d in instances}) == len(instances)


def test_every_behaviour_of_the_plan_occurs(fleet: Fleet) -> None:
    told = {pod.behaviour for pod in fleet.pods}
    assert {"abandoned notebook", "conflict", "idle rank", "forgotten serving"} <= told
    assert any(not device.pods for device in fleet.devices), "no free GPU"


def test_one_seed_one_fleet_and_another_seed_another(fleet: Fleet, signals: Signals) -> None:
    again = measure(lay_out(128, seed=1), WINDOW, 300.0, seed=1)
    first = next(scrapes(fleet, signals))
    assert first == next(scrapes(lay_out(128, seed=1), again))
    other = lay_out(128, seed=2)
    assert first != next(scrapes(other, measure(other, WINDOW, 300.0, seed=2)))


def test_watts_follow_the_published_figures(fleet: Fleet, signals: Signals) -> None:
    watts, sm = (
        signals.columns["DCGM_FI_DEV_POWER_USAGE"],
        signals.columns["DCGM_FI_PROF_SM_ACTIVE"],
    )
    util = signals.columns["DCGM_FI_DEV_GPU_UTIL"]
    for row, device in enumerate(fleet.devices):
        if device.model.name != "NVIDIA H100 80GB HBM3":
            continue
        free = signals.holder[row] < 0
        idle = ~free & (util[row] == 0)
        conflict = (util[row] > 0) & (sm[row] == 0)
        busy = (sm[row] > 0) & ~conflict
        assert np.abs(watts[row][free] - 70).max(initial=0) < 5
        assert np.abs(watts[row][idle] - 120).max(initial=0) < 5
        expected = 134 + 610 * sm[row][busy]
        assert np.abs(watts[row][busy] - expected).max(initial=0) < 5
        assert (watts[row][conflict] > 300).all()


def test_exporters_print_legal_text_and_a_silent_one_prints_nothing(
    fleet: Fleet, signals: Signals
) -> None:
    texts = list(scrapes(fleet, signals))
    assert len(texts) == len(signals.ticks)
    whole = read(texts[0])
    assert (whole.rejected, whole.cut) == (0, False)
    assert len(whole.lines) == texts[0].count(b"\n")
    node = list(fleet.nodes)[OUTAGE_NODE].encode()
    silent = signals.silent.any(axis=0)
    assert 0 < silent.sum() < silent.size
    assert [node not in text for text in texts] == silent.tolist()


def test_energy_is_the_integral_of_power(signals: Signals) -> None:
    watts = signals.columns["DCGM_FI_DEV_POWER_USAGE"]
    counter = signals.columns["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"]
    steps = np.diff(counter, axis=1)
    assert (steps > 0).all()
    assert np.allclose(steps, watts[:, 1:] * 300_000, atol=2)


def test_the_dump_holds_every_node_and_pod(fleet: Fleet) -> None:
    items = kubectl(fleet, WINDOW)["items"]
    assert sum(i["kind"] == "Node" for i in items) == len(fleet.nodes)
    pods = {i["metadata"]["uid"]: i for i in items if i["kind"] == "Pod"}
    assert set(pods) == {p.uid for p in fleet.pods}
    ended = [p for p in fleet.pods if p.end < 1]
    assert all("terminated" in str(pods[p.uid]["status"]) for p in ended)


def test_notebooks_are_witnessed_idle_exactly_when_they_are(fleet: Fleet, signals: Signals) -> None:
    rows = batches(fleet, signals, "demo", 1)
    notebooks = next(b.rows for b in rows if b.table == "notebook_sample").to_pylist()
    assert notebooks
    assert all(row["last_kernel_activity"] <= row["ts"] for row in notebooks)
    busy = {(r["pod"], r["ts"]) for r in notebooks if r["busy_kernels"]}
    util = signals.columns["DCGM_FI_DEV_GPU_UTIL"]
    for row, device in enumerate(fleet.devices):
        for number, pod in enumerate(fleet.pods):
            if pod.kind != "Notebook" or pod not in device.pods:
                continue
            works = (signals.holder[row] == number) & (util[row] > 0)
            told = {
                (pod.name, datetime.fromtimestamp(t, UTC).replace(tzinfo=None))
                for t in signals.ticks[works].tolist()
            }
            assert told == {pair for pair in busy if pair[0] == pod.name}


def test_what_is_planted_is_what_the_signals_show(fleet: Fleet, signals: Signals) -> None:
    stretches = planted(fleet, signals)
    assert len({s.subject for s in stretches}) >= 8
    util = signals.columns["DCGM_FI_DEV_GPU_UTIL"]
    weight = np.array([d.weight for d in fleet.devices])[:, None]
    held = (signals.held & (signals.holder >= 0) & (util == 0)) * weight
    hours = held.sum() * signals.interval_s / 3600
    assert sum(s.gpu_hours for s in stretches) == pytest.approx(hours)
    assert any(s.partly for s in stretches)


def _finding(start: float, end: float, gpus: float = 1.0, workload: str = "nb") -> Finding:
    origin = WINDOW.start
    return Finding(
        id=f"{workload}{start}",
        analyzer="idle",
        kind="idle",
        subject=Subject("demo", "ns", "Notebook", workload),
        window=Window(origin + timedelta(hours=start), origin + timedelta(hours=end)),
        verdict="idle",
        evidence="confirmed",
        confidence=1.0,
        gpu_hours=gpus * (end - start),
        usd=Decimal(1),
        details={},
    )


def test_precision_and_recall_are_shares_of_gpu_hours() -> None:
    origin = WINDOW.start
    truth = [
        Stretch(
            ("ns", "Notebook", "nb"),
            origin,
            origin + timedelta(hours=10),
            1.0,
            "H100",
            partly=False,
        )
    ]
    exact = compare(truth, [_finding(0, 10)])
    assert (exact.precision, exact.recall, exact.false_alarms) == (1.0, 1.0, 0)
    half = compare(truth, [_finding(5, 15)])
    assert half.precision == pytest.approx(0.5)
    assert half.recall == pytest.approx(0.5)
    assert half.false_alarms == 0
    wrong = compare(truth, [_finding(0, 10), _finding(0, 2, workload="busy")])
    assert wrong.false_alarms == 1
    assert wrong.precision == pytest.approx(10 / 12)
    nothing = compare(truth, [])
    assert (nothing.precision, nothing.recall) == (1.0, 0.0)

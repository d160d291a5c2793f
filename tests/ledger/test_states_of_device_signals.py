"""Whether an allocated device is idle, low or productive: from samples to the ledger's hours.

The figures are known by hand. Every series is ingested, rolled up, allocated and posted by the
same path as a site's.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from analyzers.idle.analyzer import IdleAnalyzer
from analyzers.sizing.analyzer import SizingAnalyzer
from collectors.inventory import build_batches
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from warehouse import signals
from warehouse.lake import Warehouse
from warehouse.signals.readings import sort_rows
from warehouse.stages import files

pytestmark = pytest.mark.slow

T = datetime(2026, 11, 2, tzinfo=UTC)
Hours = dict[str, float]
Account = Callable[..., Hours]
GIB = 1 << 30


def series(every: int, hours: float, seed: int = 1, **columns: Any) -> dict[str, Any]:
    """Return one device's samples: a value for all, or one per sample."""
    count = round(hours * 3600 / every)
    power = columns.pop("power_w", 110.0)
    if isinstance(power, float):
        power = power + np.random.default_rng(seed).normal(0, 0.2, count)
    known = {"mem_used_bytes": 20 * GIB, "mem_free_bytes": 60 * GIB, "power_w": power, **columns}
    return {
        "ts": [T + timedelta(seconds=every * n) for n in range(count)],
        "interval_s": [float(every)] * count,
        **{name: np.broadcast_to(v, count).tolist() for name, v in known.items()},
    }


def batch(devices: Mapping[str, Mapping[str, Any]], cluster: str = "c") -> Batch:
    """Return the rows of `sample` of some devices, a pod on each."""
    rows: dict[str, Any] = {}
    names = {name for shown in devices.values() for name in shown}
    for device, shown in devices.items():
        count = len(shown["ts"])
        fixed = {
            "cluster": cluster, "device": device, "node": "n", "vendor": "nvidia",
            "model": "NVIDIA H100 80GB HBM3", "namespace": "ns", "pod": f"pod-{device}",
        }  # fmt: skip
        for name, value in fixed.items():
            rows.setdefault(name, []).extend([value] * count)
        for name in names:
            rows.setdefault(name, []).extend(shown.get(name, [None] * count))
    rows["ts"] = pa.array([t.replace(tzinfo=None) for t in rows["ts"]], pa.timestamp("us"))
    return Batch.of("sample", rows)


@pytest.fixture
def account(settings: Settings) -> Account:
    """Return what posts samples and says the GPU-hours by state."""

    def posted(hours: float, **devices: Mapping[str, Any]) -> Hours:
        with Warehouse.open_in_memory(settings) as warehouse:
            warehouse.ingest([batch(devices)])
            window = Window(T, T + timedelta(hours=hours))
            _, failures = pipeline.account(warehouse, window)
            assert not failures
            rows = warehouse.query(
                "SELECT state, sum(gpu_seconds) / 3600 AS h FROM ledger GROUP BY ALL"
            )
            return {row["state"]: round(row["h"], 2) for row in rows.to_pylist()}

    return posted


def fsdp(every: int, hours: float, seed: int) -> dict[str, Any]:
    """Return FSDP with CPU offload as a gauge without averages shows it.

    Zero in 83 % of the readings, never for more than 3.3 s; power 123 W in the median (an idle GPU
    with a loaded model draws 120 W) and 347 W at the 95th percentile.
    """
    rng = np.random.default_rng(seed)
    count = round(hours * 3600 / every)
    zero = rng.random(count) < 0.83
    util = np.where(zero, 0.0, rng.integers(30, 100, count))
    base, burst = rng.normal(121, 2, count), rng.uniform(140, 410, count)
    power = np.where(rng.random(count) < 0.6, base, burst)
    return series(every, hours, gpu_util_pct=util, power_w=np.round(power, 2))


def test_bursts_that_a_gauge_misses_are_low_use_and_not_idle(account: Account) -> None:
    found = account(24, a=fsdp(30, 24, 1), b=fsdp(30, 24, 2))
    assert sum(found.values()) == pytest.approx(48, abs=0.02)
    assert found["idle"] < 0.25, "only where a series begins or ends"
    assert found.get("unknown", 0) < 0.1
    assert found["low"] > 37


# The same rule at another interval: the same series, one look of two or every second one.
FEWER_OR_MORE = [pytest.param(every, marks=pytest.mark.long) for every in (15, 60)]


@pytest.mark.parametrize("every", [30, *FEWER_OR_MORE])
def test_bursts_are_low_and_no_finding_at_usual_scrape_intervals(
    settings: Settings, every: int
) -> None:
    """Zero in 83 % of the readings, at any of these intervals, is low use and no idle workload."""
    window = Window(T, T + timedelta(hours=24))
    with Warehouse.open_in_memory(settings) as warehouse:
        warehouse.ingest([batch({"a": fsdp(every, 24, 3), "b": fsdp(every, 24, 4)})])
        _, failures = pipeline.account(warehouse, window)
        found = IdleAnalyzer().find(warehouse, window)
        rows = warehouse.query(
            "SELECT state, sum(gpu_seconds) / 3600 AS h FROM ledger GROUP BY ALL"
        ).to_pylist()
    hours = {row["state"]: row["h"] for row in rows}
    assert not failures
    assert not found
    assert sum(hours.values()) == pytest.approx(48, abs=0.02)
    assert hours.get("idle", 0) < 0.5, "only where a series begins or ends"
    assert hours["low"] > 37


@pytest.mark.parametrize(("minutes", "idle"), [(31, True), (26, False)])
def test_a_rest_between_work_is_idle_from_half_an_hour_on(
    account: Account, minutes: int, *, idle: bool
) -> None:
    """It begins on a bucket, 90 s later, and 210 s later."""
    shown = {}
    for late in (0, 3, 7):
        util = np.full(360, 90.0)
        util[120 + late : 120 + late + 2 * minutes] = 0.0
        power = np.where(util > 0, 600.0, 110.0) + np.random.default_rng(1).normal(0, 0.2, 360)
        shown[f"d{late}"] = series(30, 3, gpu_util_pct=util, power_w=power)
    found = account(3, **shown)
    assert found.pop("idle" if idle else "low") == pytest.approx(3 * minutes / 60, abs=0.02)
    assert found == {"productive": pytest.approx(3 * (3 - minutes / 60), abs=0.02)}


def test_a_device_that_nobody_uses_is_idle_all_its_time(account: Account) -> None:
    assert account(3, a=series(30, 3, gpu_util_pct=0.0)) == {"idle": 3.0}


def test_one_blip_does_not_make_hours_of_idleness_low(account: Account) -> None:
    util = np.zeros(720)
    util[300] = 20.0
    assert account(6, a=series(30, 6, gpu_util_pct=util)) == {"idle": 6.0}


SPIN: dict[str, Any] = {
    "gpu_util_pct": 100.0, "gr_engine_active": 1.0, "sm_active": 0.05, "tensor_active": 0.0,
    "dram_active": 0.001, "pcie_tx_bps": 1e4, "pcie_rx_bps": 1e4,
}  # fmt: skip


def test_a_device_that_spins_is_low(account: Account) -> None:
    found = account(24, a=series(60, 24, power_w=180.0, **SPIN))
    assert found == {"low": 24.0}


def test_a_day_of_spinning_is_a_finding(settings: Settings) -> None:
    with Warehouse.open_in_memory(settings) as warehouse:
        warehouse.ingest([batch({"a": series(60, 24, power_w=180.0, **SPIN)})])
        window = Window(T, T + timedelta(hours=24))
        pipeline.account(warehouse, window)
        found = SizingAnalyzer().find(warehouse, window)
    assert [(f.kind, f.evidence, round(f.gpu_hours)) for f in found] == [
        ("busy_hang", "suspected", 24)
    ]


def test_what_works_or_lacks_a_field_does_not_spin(account: Account) -> None:
    others: list[dict[str, Any]] = [
        {"sm_active": 0.31}, {"tensor_active": 0.02}, {"dram_active": 0.03}, {"power_w": 260.0},
        {"pcie_rx_bps": 2e7}, {"tensor_active": None}, {"dram_active": None},
    ]  # fmt: skip
    shown = {
        f"d{n}": series(60, 2, **{"power_w": 180.0, **SPIN, **other})
        for n, other in enumerate(others)
    }
    assert account(2, **shown) == {"productive": 2.0 * len(others)}


@pytest.mark.parametrize(
    ("power_w", "state"), [(244.0, "low"), (246.0, "productive"), (None, "productive")]
)
def test_without_profiling_power_says_whether_a_busy_engine_spins(
    account: Account, power_w: float | None, state: str
) -> None:
    """A server that hangs in a collective: 183 W at 100 %; 35 % of an H100's 700 W are 245 W."""
    assert account(2, a=series(60, 2, gpu_util_pct=100.0, power_w=power_w)) == {state: 2.0}


def test_frozen_counters_are_unknown(account: Account) -> None:
    still = series(30, 6, gpu_util_pct=0.0, energy_mj=4_000_000, power_w=np.full(720, 113.127))
    assert account(6, a=still) == {"unknown": 6.0}


def test_live_counters_are_idle(account: Account) -> None:
    live = series(30, 6, gpu_util_pct=0.0, energy_mj=np.arange(720) * 3_300_000)
    assert account(6, a=live) == {"idle": 6.0}


def test_steady_little_work_above_the_idle_band_is_low(account: Account) -> None:
    assert account(3, a=series(60, 3, gr_engine_active=0.03, power_w=135.0)) == {"low": 3.0}


def test_little_activity_within_the_idle_band_is_idle(account: Account) -> None:
    assert account(3, a=series(60, 3, gr_engine_active=0.03, power_w=110.0)) == {"idle": 3.0}


def test_an_idle_band_depends_on_its_hour_and_not_on_the_window_that_is_written(
    settings: Settings,
) -> None:
    """The power of idle devices falls at noon: hours of the morning do not know it."""
    power = np.repeat([150.0, 110.0], [12 * 120, 24 * 120])
    noise = np.random.default_rng(1).normal(0, 0.2, len(power))
    shown = {
        device: series(30, 36, gpu_util_pct=np.zeros(len(power)), power_w=power + noise)
        for device in ("a", "b")
    }
    with Warehouse.open_in_memory(settings) as warehouse:
        warehouse.ingest([batch(shown)])
        whole = Window(T, T + timedelta(hours=36))
        pipeline.account(warehouse, whole)
        at_once = signals.derive_signals(warehouse, whole).to_pylist()
        by_hour = [
            row
            for hour in range(36)
            for row in signals.derive_signals(
                warehouse, Window(T + timedelta(hours=hour), T + timedelta(hours=hour + 1))
            ).to_pylist()
        ]
    order = ("bucket", "device")
    by_hour.sort(key=lambda row: [row[name] for name in order])
    at_once.sort(key=lambda row: [row[name] for name in order])
    assert by_hour == at_once
    bands = {row["bucket"].hour + 24 * row["bucket"].day: row["band_w"] for row in at_once}
    assert set(list(bands.values())[:12]) == {150.0}
    assert {row["band"] for row in at_once} == {"learned"}


def draw_use(random: np.random.Generator, samples: int) -> dict[str, Any]:
    """Return utilisation and power of a pod that rests, works a little and works, by turns."""
    levels, watts = np.zeros(samples), np.zeros(samples)
    at = 0
    while at < samples:
        until = at + int(random.integers(2, 150))
        kind = random.choice(["rest", "blips", "little", "work"], p=[0.35, 0.35, 0.15, 0.15])
        here = slice(at, until)
        size = len(levels[here])
        blips = random.random(size) < random.choice([0.01, 0.03, 0.08])
        level = {"rest": 0.0, "blips": 7.0 * blips, "little": 3.0, "work": 80.0}[kind]
        levels[here] = level
        watts[here] = random.choice([110.0, 112.0, 118.0, 124.0]) + 4.0 * levels[here]
        at = until
    return {
        "gpu_util_pct": levels,
        "gr_engine_active": levels / 100,
        "power_w": watts + random.normal(0, 0.3, samples),
    }


# Another seed of the same: the first is in every run.
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2))])
def test_an_hour_has_the_same_states_alone_and_within_a_day(settings: Settings, seed: int) -> None:
    """A service accounts hour by hour, a back-test reads days: both see one history."""
    random = np.random.default_rng(seed)
    hours = 18
    shown = {f"d{n}": series(60, hours, **draw_use(random, hours * 60)) for n in range(16)}
    with Warehouse.open_in_memory(settings) as warehouse:
        warehouse.ingest([batch(shown)])
        whole = Window(T, T + timedelta(hours=hours))
        pipeline.account(warehouse, whole)
        at_once = signals.derive_signals(warehouse, whole).to_pylist()
        by_hour = [
            row
            for hour in range(hours)
            for row in signals.derive_signals(
                warehouse, Window(T + timedelta(hours=hour), T + timedelta(hours=hour + 1))
            ).to_pylist()
        ]
    order = ("device", "bucket")
    by_hour.sort(key=lambda row: [row[name] for name in order])
    at_once.sort(key=lambda row: [row[name] for name in order])
    differing = [(a, b) for a, b in zip(at_once, by_hour, strict=True) if a != b]
    assert differing == []
    assert {row["rule"] for row in at_once} >= {"stretch", "among", "steady", "burst"}


def test_a_row_before_a_silence_does_not_know_what_came_after_it(settings: Settings) -> None:
    """Work until 7:58, no telemetry until 14:00, then idle: 7:55 is no burst between stretches."""
    minutes = np.r_[0:478, 840:1080]
    use = series(60, 18, gpu_util_pct=np.where(np.arange(1080) < 480, 80.0, 0.0))
    shown = {name: [values[n] for n in minutes] for name, values in use.items()}
    begin = T.replace(tzinfo=None)
    pod = {"cluster": "c", "uid": "u", "namespace": "ns", "pod": "pod-GPU-0", "node": "n"}
    life = {"scheduled_at": begin, "first_seen": begin, "last_seen": begin + timedelta(hours=18)}
    with Warehouse.open_in_memory(settings) as warehouse:
        warehouse.ingest([batch({"GPU-0": shown}), *build_batches("pod", [{**pod, **life}])])
        pipeline.account(warehouse, Window(T, T + timedelta(hours=18)))
        states = {row["bucket"]: row for row in read_signals(warehouse)}
        morning = signals.derive_signals(warehouse, Window(T, T + timedelta(hours=9))).to_pylist()
    before = begin + timedelta(hours=7, minutes=55)
    assert max(row["bucket"] for row in morning) == before
    assert states[before]["busy_s"] > 0
    assert states[begin + timedelta(hours=14)]["rule"] == "stretch"
    assert states[before]["rule"] is None
    assert {row["rule"] for row in morning} == {None}


def test_devices_in_parts_have_the_states_of_all_at_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(5)
    shown = {f"GPU-{n:02d}": series(60, 6, **draw_use(random, 360)) for n in range(7)}
    with Warehouse.open(settings, write=True) as warehouse:
        warehouse.ingest([batch(shown)])
        whole = Window(T, T + timedelta(hours=6))
        pipeline.account(warehouse, whole)
        at_once = read_signals(warehouse)
        assert {row["device"] for row in at_once} == set(shown)
        one_device = len(at_once) // len(shown)
        monkeypatch.setattr(signals, "DEVICE_BUCKETS", 2 * one_device)
        assert signals.count_parts(signals.read_fleet(warehouse), whole) == 4
        ranges = signals.list_device_ranges(warehouse, 4)
        assert [r.last_device for r in ranges[:-1]] == ["GPU-01", "GPU-03", "GPU-05"]
        parts = [signals.derive_signals(warehouse, whole, r) for r in ranges]
        assert [len(set(part["device"].to_pylist())) for part in parts] == [1, 2, 2, 2]
        with (
            mock.patch.object(signals, "learn_bands", wraps=signals.learn_bands) as learned,
            mock.patch.object(signals, "read_fleet", wraps=signals.read_fleet) as counted,
        ):
            signals.write_signals(warehouse, whole)
        assert learned.call_count == 1, "once for all parts"
        assert counted.call_count == 1, "once for all windows and parts"
        assert read_signals(warehouse) == at_once
        monkeypatch.setattr(files, "FILE_ROWS", 1)
        for _ in range(2):  # the second replaces the rows of the files of the first
            with mock.patch.object(files, "add_files", wraps=files.add_files) as added:
                signals.write_signals(warehouse, whole)
            assert added.call_count == 4, "each part writes files"
            assert read_signals(warehouse) == at_once


def test_rows_of_two_clusters_lie_in_the_order_of_their_table(settings: Settings) -> None:
    shown = {name: series(60, 2) for name in ("GPU-3", "GPU-1", "GPU-2")}
    with Warehouse.open_in_memory(settings) as warehouse:
        warehouse.ingest([batch(shown, cluster) for cluster in ("b", "a")])
        whole = Window(T, T + timedelta(hours=2))
        pipeline.account(warehouse, whole)
        rows = pl.DataFrame(signals.derive_signals(warehouse, whole))
    assert rows["cluster"].n_unique() == 2
    assert rows.height == 6 * 24
    assert rows.equals(rows.sort("device", "bucket", maintain_order=True))


def test_a_window_is_one_pass_up_to_the_bound_and_three_days_at_least(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = {f"GPU-{n}": series(60, 1, gpu_util_pct=0.0) for n in range(3)}
    with Warehouse.open_in_memory(settings) as warehouse:
        warehouse.ingest([batch(hours)])
        pipeline.account(warehouse, Window(T, T + timedelta(hours=1)))
        day, fleet = Window(T, T + timedelta(hours=24)), signals.read_fleet(warehouse)
        for bound, wanted in ((3 * 288, 1), (3 * 288 - 1, 2), (100, 9), (1, 864)):
            monkeypatch.setattr(signals, "DEVICE_BUCKETS", bound)
            assert signals.count_parts(fleet, day) == wanted
            assert signals.compute_stride(fleet) == timedelta(days=3)
        monkeypatch.setattr(signals, "DEVICE_BUCKETS", 3 * 12 * 73)
        assert signals.compute_stride(fleet) == timedelta(hours=73)
        everything = signals.list_device_ranges(warehouse, 864)
        assert len(everything) <= 3 + 1
        assert everything[0].first_device == ""
        assert everything[-1].last_device == signals.ALL_DEVICES.last_device


def read_signals(warehouse: Warehouse) -> list[dict[str, Any]]:
    order = '"cluster", device, bucket, namespace, pod'
    rows: list[dict[str, Any]] = warehouse.query(f"FROM signal ORDER BY {order}").to_pylist()
    return rows


def test_hours_in_which_every_collector_was_away_have_no_states(settings: Settings) -> None:
    with Warehouse.open_in_memory(settings) as warehouse:
        warehouse.ingest([batch({"GPU-0": series(60, 1, gpu_util_pct=0.0)})])
        pipeline.account(warehouse, Window(T, T + timedelta(hours=1)))
        later = Window(T + timedelta(hours=30), T + timedelta(hours=32))
        assert signals.derive_signals(warehouse, later).num_rows == 0


def test_what_a_service_accounts_again_is_what_later_readings_may_change() -> None:
    assert pipeline.LEDGER_LOOKBACK >= signals.CONTEXT


@pytest.mark.parametrize("seed", range(3))
def test_the_rows_that_states_are_read_from_have_one_order(seed: int) -> None:
    """A device that changes hands within five minutes has two rows of one time and stream.

    Their order was the engine's, and the demo's idle hours differed by a tenth from run to run.
    """
    ordered = [
        (1, 600, 3), (1, 900, 0), (1, 900, 1), (1, 900, 2), (1, 900, 3), (1, 900, 11),
        (2, 300, 12), (2, 900, 13), (2, 900, 14), (10, 0, 15),
    ]  # fmt: skip
    rows = pl.DataFrame(ordered, schema=("stream", "at_us", "owner"), orient="row")
    shuffled = rows.sample(fraction=1, shuffle=True, seed=seed)
    assert sort_rows(shuffled).rows() == ordered
    assert sort_rows(rows).rows() == ordered


def test_a_slow_exporter_changes_no_state_of_another_device(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longest scrape interval widens the time that is read around a window, and no more."""
    window = Window(T + timedelta(hours=7), T + timedelta(hours=9))
    devices = {
        "a": fsdp(60, 16, 1),
        "b": series(60, 16, gpu_util_pct=0.0),
        "slow": series(1000, 16, gpu_util_pct=0.0),
    }
    states = []
    with Warehouse.open_in_memory(settings) as warehouse:
        warehouse.ingest([batch(devices)])
        _, failures = pipeline.account(warehouse, Window(T, T + timedelta(hours=16)))
        assert not failures
        for readings in (signals.READINGS, 1):  # 6 h 40 min of context, and the least
            monkeypatch.setattr(signals, "READINGS", readings)
            rows = pl.DataFrame(signals.derive_signals(warehouse, window))
            states.append(rows.filter(pl.col("device") != "slow").sort("device", "bucket"))
    assert states[0].height == 48
    assert states[0].equals(states[1])

"""Idle GPUs with the power of real sensors, each beside a twin that repeats its first reading.

An idle H100 at 0.1 W has runs of 3 to 8 equal readings at 30 s, and now and then much longer ones.
From samples to the ledger, by the path of a site.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from warehouse.lake import Warehouse

pytestmark = pytest.mark.slow

T = datetime(2026, 11, 2, tzinfo=UTC)
HOURS, GPUS, EVERY_S = 12, 4, 30
COUNT = HOURS * 3600 // EVERY_S
QUIET_W, NOISY_W = 0.3, 2.0


def draw_power(rng: np.random.Generator, mean_w: float, step_w: float, noise_w: float) -> Any:
    """Return an idle GPU's readings: each value stands for 3 to 8, one of fifty for 30 to 60."""
    holds = np.where(rng.random(COUNT) < 0.02, rng.integers(30, 61, COUNT),
                     rng.integers(3, 9, COUNT))  # fmt: skip
    if noise_w == NOISY_W:
        holds = np.ones(COUNT, dtype=int)
    values = np.repeat(rng.normal(mean_w, noise_w, COUNT), holds)[:COUNT]
    return np.round(np.round(values / step_w) * step_w, 1)


def build_batch(gpus: dict[str, dict[str, Any]]) -> Batch:
    """Return the samples of GPUs, a pod on each: power_w, energy_mj, node."""
    at = [(T + timedelta(seconds=EVERY_S * n)).replace(tzinfo=None) for n in range(COUNT)]
    fixed = {
        "cluster": "c", "vendor": "nvidia", "model": "NVIDIA H100 80GB HBM3", "namespace": "ns",
        "gpu_util_pct": 0.0, "mem_used_bytes": 20 << 30, "interval_s": float(EVERY_S), "temp_c": 34,
        "sm_clock_mhz": 345, "energy_mj": None, "node": "n",
    }  # fmt: skip
    rows: dict[str, Any] = {"ts": pa.array(at * len(gpus), pa.timestamp("us"))}
    for name, own in gpus.items():
        for column, value in {**fixed, "device": name, "pod": f"pod-{name}", **own}.items():
            values = value.tolist() if isinstance(value, np.ndarray) else [value] * COUNT
            rows.setdefault(column, []).extend(values)
    return Batch.of("sample", rows)


def account(settings: Settings, gpus: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Return the share of each GPU's hours that is idle in the ledger."""
    window = Window(T, T + timedelta(hours=HOURS))
    with Warehouse.open_in_memory(settings) as warehouse:
        warehouse.ingest([build_batch(gpus)])
        _, failures = pipeline.account(warehouse, window)
        assert not failures
        rows = warehouse.query(
            "SELECT device, coalesce(sum(seconds) FILTER (WHERE state = 'idle'), 0)"
            f" / {HOURS * 3600} AS share FROM ledger GROUP BY device"
        ).to_pylist()
    return {row["device"]: row["share"] for row in rows}


def build_twins(step_w: float, noise_w: float, *, energy: bool) -> dict[str, dict[str, Any]]:
    """Return idle GPUs (`a0`…) and a twin of each that repeats its first reading (`z0`…)."""
    rng = np.random.default_rng(int(10 * step_w + noise_w))
    gpus: dict[str, dict[str, Any]] = {}
    for number in range(GPUS):
        power = draw_power(rng, 117 + rng.uniform(-3, 3), step_w, noise_w)
        gpus[f"a{number}"] = {"power_w": power}
        gpus[f"z{number}"] = {"power_w": np.full(COUNT, power[0])}
        if energy:
            used = np.cumsum(power * EVERY_S * 1000)
            gpus[f"a{number}"]["energy_mj"] = used
            gpus[f"z{number}"]["energy_mj"] = np.full(COUNT, used[0])
    return gpus


LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("step_w", "noise_w", "energy"),
    [
        pytest.param(0.1, QUIET_W, True, marks=LONG),
        pytest.param(1.0, QUIET_W, True, marks=LONG),
        (10.0, QUIET_W, True),
        pytest.param(10.0, NOISY_W, True, marks=LONG),
        (0.1, QUIET_W, False),
        pytest.param(0.1, NOISY_W, False, marks=LONG),
        pytest.param(1.0, QUIET_W, False, marks=LONG),
        (1.0, NOISY_W, False),
        pytest.param(10.0, NOISY_W, False, marks=LONG),
    ],
)
def test_idle_gpus_are_idle_and_their_frozen_twins_are_not(
    settings: Settings, step_w: float, noise_w: float, *, energy: bool
) -> None:
    """Without an energy counter the runs of the other GPUs are the second sign."""
    shares = account(settings, build_twins(step_w, noise_w, energy=energy))
    assert np.mean([share for gpu, share in shares.items() if gpu < "z"]) >= 0.99, shares
    assert max(share for gpu, share in shares.items() if gpu > "z") < 0.01, shares


def test_a_constant_is_judged_by_its_neighbours(settings: Settings) -> None:
    """Whole watts among tenths on its node are a repeat; on a node of whole watts they are not."""
    rng = np.random.default_rng(1)
    fine = {f"a{n}": {"power_w": draw_power(rng, 115 + n, 0.1, QUIET_W)} for n in range(2)}
    short = np.where(np.arange(COUNT) % 360 < 180, 117.0, 118.0)
    other = {f"b{n}": {"power_w": short, "node": "m"} for n in range(2)}
    lone = {"x": {"power_w": np.full(COUNT, 20.0), "node": "o", "model": "NVIDIA L4"}}
    shares = account(settings, fine | other | lone | {"z": {"power_w": short}})
    assert shares.pop("z") < 0.2
    assert shares.pop("x") == 1.0, "no second sign: no energy counter, neighbours or others"
    assert min(shares.values()) >= 0.99, shares


def test_an_idle_node_of_whole_watts_is_idle(settings: Settings) -> None:
    """Most of its GPUs stand still for hours, one flickers, and none has an energy counter."""
    rng = np.random.default_rng(7)
    fleet = {f"a{n}": {"power_w": np.full(COUNT, 113.0 + n)} for n in range(7)}
    fleet["b"] = {"power_w": draw_power(rng, 117, 1, NOISY_W)}
    assert min(account(settings, fleet).values()) >= 0.99

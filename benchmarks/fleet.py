"""A synthetic fleet: jobs come and go on nodes of eight GPUs, and each scrape is one wide table.

Each slot of a node (one, two, four or eight GPUs) is a state machine of training, serving,
notebook, idle-held and free stretches of hours. Utilisation, temperatures and clocks are whole
numbers as drivers print them; power, profiling ratios and link rates are noisy, which is what
decides bytes per sample. Synthetic: real fleets may be noisier or calmer.
"""

from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa

from fallow.tables import Batch

TRAIN, SERVE, NOTEBOOK, IDLE, FREE = range(5)
_MIX = np.array([0.40, 0.15, 0.10, 0.15, 0.20])
_MEAN_HOURS = np.array([8.0, 48.0, 3.0, 5.0, 2.0])
_SLOTS = ((8,), (4, 4), (4, 2, 1, 1), (2, 2, 2, 2), (1,) * 8)
_MEMORY = 80 * 2**30
_MIB = 2**20

METRICS = (
    "gpu_util_pct",
    "gr_engine_active",
    "sm_active",
    "sm_occupancy",
    "tensor_active",
    "fp64_active",
    "fp32_active",
    "fp16_active",
    "dram_active",
    "mem_copy_util_pct",
    "enc_util_pct",
    "dec_util_pct",
    "mem_used_bytes",
    "mem_free_bytes",
    "power_w",
    "energy_mj",
    "temp_c",
    "mem_temp_c",
    "sm_clock_mhz",
    "mem_clock_mhz",
    "pcie_tx_bps",
    "pcie_rx_bps",
    "nvlink_tx_bps",
    "nvlink_rx_bps",
    "throttle_mask",
)
"""The 25 canonical columns that every scrape fills: what dcgm-exporter's profiling set gives."""


class SyntheticFleet:
    """GPUs whose jobs go on from one scrape to the next."""

    def __init__(self, gpus: int, seed: int = 0, *, cluster: str = "bench") -> None:
        self.rng = np.random.default_rng(seed)
        self.gpus = gpus
        nodes = -(-gpus // 8)
        layouts = self.rng.integers(0, len(_SLOTS), nodes)
        sizes = np.concatenate([np.array(_SLOTS[i]) for i in layouts])
        self._slot = np.repeat(np.arange(len(sizes)), sizes)[:gpus]
        self._slots = len(sizes)
        self._state = self.rng.choice(5, self._slots, p=_MIX)
        self._until = self.rng.exponential(_MEAN_HOURS[self._state] * 3600)
        self._job = np.arange(self._slots)
        self._mem = self.rng.integers(4_000, 78_000, self._slots)
        self._level = self.rng.uniform(0.3, 1.0, self._slots)
        self._energy = self.rng.integers(0, 10**12, gpus)
        self._ts: datetime | None = None
        index = np.arange(gpus)
        self._fixed = {
            "cluster": _repeat_text(cluster, gpus),
            "device": pa.array([f"GPU-{i * 2654435761 % 2**32:08x}-5eed-f1ee" for i in index]),
            "node": pa.array([f"node-{i // 8:05d}" for i in index]),
            "vendor": _repeat_text("nvidia", gpus),
            "model": _repeat_text("NVIDIA H100 80GB HBM3", gpus),
            "source": _repeat_text("exporters", gpus),
            "gpu_index": pa.array(index % 8),
        }

    def scrape(self, ts: datetime, interval_s: float = 15.0) -> pa.Table:
        """Return one sample of every GPU: the `sample` schema, one row per device, naive UTC."""
        elapsed_s = (ts - self._ts).total_seconds() if self._ts else interval_s
        self._ts = ts
        self._turn(elapsed_s)
        columns = self._metrics(self._state[self._slot], elapsed_s)
        is_allocated = self._state[self._slot] != FREE
        job = self._job[self._slot]
        naive = ts.replace(tzinfo=None)
        data: dict[str, object] = {
            **self._fixed,
            **{name: pa.array(values) for name, values in columns.items()},
            "ts": pa.repeat(pa.scalar(naive, pa.timestamp("us")), self.gpus),
            "interval_s": np.full(self.gpus, interval_s),
            "namespace": _list_names("team-", job % 100, is_allocated),
            "pod": _list_names("job-", job, is_allocated),
            "container": _list_names("main", np.full(self.gpus, ""), is_allocated),
        }
        return Batch.of("sample", data).rows

    def _turn(self, elapsed_s: float) -> None:
        self._until -= elapsed_s
        over = np.flatnonzero(self._until <= 0)
        self._state[over] = self.rng.choice(5, len(over), p=_MIX)
        self._until[over] = self.rng.exponential(_MEAN_HOURS[self._state[over]] * 3600)
        self._job[over] = self._job.max() + 1 + np.arange(len(over))
        self._mem[over] = self.rng.integers(4_000, 78_000, len(over))
        self._level[over] = self.rng.uniform(0.3, 1.0, len(over))

    def _metrics(self, state: np.ndarray, elapsed_s: float) -> dict[str, np.ndarray]:
        rng, count = self.rng, self.gpus
        level = self._level[self._slot]
        # A notebook computes in one sample of ten, a server follows its load, training is steady.
        duty = np.select(
            [state == TRAIN, state == SERVE, state == NOTEBOOK],
            [level, level * rng.uniform(0.1, 0.9, count), level * (rng.random(count) < 0.1)],
            0.0,
        )
        busy = duty > 0
        wobble = np.clip(duty * rng.normal(1, 0.03, count), 0, 1)

        def ratio(share: float) -> np.ndarray:
            noisy = np.clip(wobble * share * rng.normal(1, 0.05, count), 0, 1)
            return np.round(np.where(busy, noisy, 0.0), 6).astype(np.float32)

        def rate(scale: float, rest: float) -> np.ndarray:
            spread = rng.lognormal(0, 0.3, count)
            return np.rint(np.where(busy, scale * duty, rest) * spread).astype(np.float32)

        is_allocated = state != FREE
        used = np.where(is_allocated, self._mem[self._slot], 4)
        power = np.round(68 + 560 * wobble + 4 * rng.normal(0, 1, count), 3)
        self._energy = self._energy + np.rint(power * elapsed_s * 1000).astype(np.int64)
        zero = np.zeros(count, np.float32)
        return {
            "gpu_util_pct": np.where(busy, np.clip(np.rint(wobble * 110), 1, 100), 0),
            "gr_engine_active": ratio(0.98),
            "sm_active": ratio(0.85),
            "sm_occupancy": ratio(0.4),
            "tensor_active": ratio(0.35),
            "fp64_active": zero,
            "fp32_active": ratio(0.08),
            "fp16_active": zero,
            "dram_active": ratio(0.5),
            "mem_copy_util_pct": np.rint(np.where(busy, wobble * 50, 0)),
            "enc_util_pct": zero,
            "dec_util_pct": zero,
            "mem_used_bytes": used * _MIB,
            "mem_free_bytes": _MEMORY - used * _MIB,
            "power_w": power.astype(np.float32),
            "energy_mj": self._energy,
            "temp_c": np.rint(30 + 38 * wobble + rng.normal(0, 0.7, count)),
            "mem_temp_c": np.rint(38 + 42 * wobble + rng.normal(0, 0.7, count)),
            "sm_clock_mhz": np.where(busy, 1980 - 15 * rng.integers(0, 4, count), 345),
            "mem_clock_mhz": np.where(busy, 2619, 1593),
            "pcie_tx_bps": rate(4e9, 2e5),
            "pcie_rx_bps": rate(6e9, 3e5),
            "nvlink_tx_bps": np.where(state == TRAIN, rate(9e10, 0), 0),
            "nvlink_rx_bps": np.where(state == TRAIN, rate(9e10, 0), 0),
            "throttle_mask": np.where(busy, np.where(power > 600, 4, 0), 1),
        }


def build_scrapes(
    fleet: SyntheticFleet, start: datetime, count: int, interval_s: float = 15.0
) -> list[pa.Table]:
    """Return `count` scrapes from `start` on, `interval_s` seconds apart."""
    step = timedelta(seconds=interval_s)
    return [fleet.scrape(start + i * step, interval_s) for i in range(count)]


def build_devices(samples: pa.Table, now: datetime, step: timedelta) -> Batch:
    """Return the inventory of a scrape's devices, seen until a step after `now`."""
    end = pa.scalar((now + step).replace(tzinfo=None), pa.timestamp("us"))
    columns = {name: samples.column(name) for name in ("cluster", "device", "node", "vendor")}
    count = samples.num_rows
    return Batch.of(
        "device",
        {
            **columns,
            "model": samples.column("model"),
            "gpu_model": pa.repeat(pa.scalar("H100"), count),
            "weight": np.ones(count),
            "interval_s": np.full(count, step.total_seconds()),
            "first_seen": samples.column("ts"),
            "last_seen": pa.repeat(end, count),
        },
    )


def _repeat_text(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text), count)


def _list_names(prefix: str, numbers: np.ndarray, there: np.ndarray) -> pa.Array:
    return pa.array(np.char.add(prefix, numbers.astype(str)), pa.string(), mask=~there)

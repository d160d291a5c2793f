"""Define the data that the simulator's packages exchange."""

from datetime import datetime

import msgspec
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int16]
Marks = npt.NDArray[np.bool_]

TICK_S = 30
"""Length of a tick in seconds; values are constant within one tick."""
STATES = ("unavailable", "stranded", "free", "startup", "idle", "low", "productive", "lost")
"""True states in the ledger's words (docs/concepts.md); `unknown` is never true."""


class SimulatedDevice(msgspec.Struct, frozen=True):
    """A GPU, or one MIG instance of it."""

    uuid: str
    """UUID of the GPU: its instances share it."""
    node: str
    index: int
    gpu_model: str
    """Canonical (`fallow/gpu_models.csv`)."""
    profile: str | None = None
    instance: int | None = None
    weight: float = 1.0
    """GPUs: an instance by its compute slices."""


class Holder(msgspec.Struct, frozen=True):
    """A pod as the telemetry of its devices names it, and its top owner."""

    uid: str
    namespace: str
    pod: str
    container: str
    workload_kind: str
    workload: str
    team: str


class DeviceAllocation(msgspec.Struct, frozen=True):
    """A pod held devices for a time: [start, end), seconds since the epoch; `rank` by device."""

    holder: Holder
    devices: tuple[int, ...]
    """Indices of the fleet's devices; the position here is the pod's rank of the device."""
    start_s: float
    end_s: float
    """Infinite while it runs."""
    share: float = 1.0
    """Part of each device, when it is shared."""


class Outage(msgspec.Struct, frozen=True):
    """A device that could not be allocated: [start, end), seconds since the epoch."""

    device: int
    start_s: float
    end_s: float
    why: str
    """node-lost | spot | xid | cordoned"""


class Block(msgspec.Struct, frozen=True):
    """The truth about every device at every tick of a stretch of time: arrays [device, tick].

    `holder` is an index of `holders`, -1 = none. `state` is an index of `STATES`. `stop_harms`: a
    stop of the holder's workload at that tick would lose work. Sensors are the hardware's true
    values; what exporters show may differ (`simulator.exporters.quirks`).
    """

    ticks: npt.NDArray[np.float64]
    """Seconds since the epoch, `TICK_S` apart."""
    devices: tuple[SimulatedDevice, ...]
    holders: tuple[Holder, ...]
    holder: Codes
    state: Codes
    stop_harms: Marks
    sm_active: Floats
    """0-1, like the other ratios."""
    gr_engine_active: Floats
    tensor_active: Floats
    fp32_active: Floats
    dram_active: Floats
    gpu_util_pct: Floats
    mem_used_mib: Floats
    power_w: Floats
    """Of the GPU: all MIG instances of one GPU show the same."""
    energy_mj: npt.NDArray[np.float64]
    """Counter of the GPU since boot."""
    temp_c: Floats
    sm_clock_mhz: Floats
    pcie_rx_bytes: Floats
    """Bytes per second."""
    pcie_tx_bytes: Floats
    nvlink_bytes: Floats
    """Bytes per second sent over NVLink; as many are received."""
    xid: Codes
    """0 = none since boot."""
    throttle_mask: Codes
    """Why clocks are below their maximum: NVML's clocks event reasons."""
    every_s: float = TICK_S
    """Seconds between ticks: longer for a scraper with a longer interval."""

    @property
    def start(self) -> float:
        """First tick, seconds since the epoch."""
        return float(self.ticks[0])


class Histogram(msgspec.Struct, frozen=True):
    """What a server counted of one latency since its start."""

    metric: str
    """e2e | ttft | itl"""
    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    """Observations up to each bound, and all."""
    total_s: float


class TrainingMetrics(msgspec.Struct, frozen=True):
    """The metrics that a training loop exports."""

    tokens_per_s: float | None
    """Of the whole job; only its first rank reports it."""
    allocated_bytes: float
    reserved_bytes: float
    steps: float | None = None
    """The optimizer's steps so far; only its first rank reports them."""


class HostSample(msgspec.Struct, frozen=True):
    """Host signals and intent signals of one pod at one time (signals besides the GPU's)."""

    holder: Holder
    at: datetime
    cpu_cores: float
    memory_bytes: float
    network_rx_bytes_s: float
    network_tx_bytes_s: float
    cpu_throttled: float = 0.0
    """Share of the CFS periods in which the CPU is throttled."""
    kernel_busy: bool | None = None
    """Jupyter: a kernel executes; None = no notebook."""
    kernel_last_activity: datetime | None = None
    terminal_last_activity: datetime | None = None
    requests_running: float | None = None
    """Inference: None = serves nothing."""
    requests_total: float | None = None
    latencies: tuple[Histogram, ...] = ()
    pace: TrainingMetrics | None = None
    """Training: None = no loop runs."""
    server_last_activity: datetime | None = None
    """Jupyter's `/api/status`: an open tab's polls count, too."""

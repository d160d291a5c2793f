"""What every device shows at every tick: the behaviours turned into what exporters measure."""

import zlib

import msgspec
import numpy as np

from fallow.window import Window
from runtime.fleet.behaviour import BEHAVIOURS, Curve, Floats, Marks
from runtime.fleet.plan import Device, Fleet, Pod

OUTAGE = (0.55, 0.60)
"""When the exporter of the outage's node is silent, as shares of the demo's time."""
OUTAGE_NODE = 1
"""Which node that is (0 = first)."""


class Signals(msgspec.Struct, frozen=True):
    """Arrays of devices x ticks in the exporters' units; `holder` is a place in `Fleet.pods`."""

    ticks: Floats
    interval_s: float
    holder: "np.ndarray[tuple[int, int], np.dtype[np.int64]]"
    silent: Marks
    held: Marks
    columns: dict[str, Floats]
    requests: dict[str, Floats]
    kernel_busy: dict[str, Marks]


def measure(fleet: Fleet, window: Window, interval_s: float, seed: int) -> Signals:
    """Return what the exporters of the fleet would measure over the window.

    Watts per model are in `plan.MODELS`; energy is their integral in mJ; under MIG every
    instance shows its board's power, as dcgm-exporter does.
    """
    begin = window.start.timestamp()
    n = int(window.seconds // interval_s)
    seconds = begin + interval_s * np.arange(n, dtype=np.float64)
    shape = (len(fleet.devices), n)
    activity, memory = np.zeros(shape), np.zeros(shape)
    held, conflict, bound = np.zeros(shape, bool), np.zeros(shape, bool), np.zeros(shape, bool)
    holder = np.full(shape, -1, np.int64)
    place = {pod.uid: number for number, pod in enumerate(fleet.pods)}
    requests: dict[str, Floats] = {}
    kernel_busy: dict[str, Marks] = {}
    for row, device in enumerate(fleet.devices):
        for pod in device.pods:
            span = slice(round(pod.begin * n), round(pod.end * n))
            curve = _curve(device, pod, seconds, seed)
            holder[row, span] = place[pod.uid]
            activity[row, span] = curve.activity[span]
            memory[row, span] = curve.memory
            held[row, span] = curve.held[span]
            conflict[row, span] = curve.conflict
            bound[row, span] = curve.input_bound
            if curve.requests is not None:
                requests[pod.uid] = curve.requests
            if curve.kernel_busy is not None:
                kernel_busy[pod.uid] = curve.kernel_busy
    moved = _Moved(activity, memory, conflict, bound, holder >= 0)
    columns = _columns(fleet, moved, interval_s, seed)
    return Signals(
        seconds, interval_s, holder, _silence(fleet, n), held, columns, requests, kernel_busy
    )


def _curve(device: Device, pod: Pod, seconds: Floats, seed: int) -> Curve:
    stream = np.random.default_rng([seed, zlib.crc32(f"{device.uuid}/{pod.uid}".encode())])
    return BEHAVIOURS[pod.behaviour](stream, seconds, device.rank)


def _silence(fleet: Fleet, n: int) -> Marks:
    silent = np.zeros((len(fleet.devices), n), bool)
    if len(fleet.nodes) > OUTAGE_NODE:
        node = list(fleet.nodes)[OUTAGE_NODE]
        rows = [row for row, device in enumerate(fleet.devices) if device.node == node]
        silent[rows, round(OUTAGE[0] * n) : round(OUTAGE[1] * n)] = True
    return silent


class _Moved(msgspec.Struct, frozen=True):
    activity: Floats
    memory: Floats
    conflict: Marks
    bound: Marks
    taken: Marks


def _columns(fleet: Fleet, moved: _Moved, interval_s: float, seed: int) -> dict[str, Floats]:
    activity, conflict, taken = moved.activity, moved.conflict, moved.taken
    rng = np.random.default_rng([seed, 1])
    models = [device.model for device in fleet.devices]
    weight = _column([device.weight for device in fleet.devices])
    busy = activity > 0
    base, full = _column([m.base_w for m in models]), _column([m.full_w for m in models])
    rest = np.where(taken, _column([m.context_w for m in models]),
                    _column([m.bare_w for m in models]))  # fmt: skip
    watts = np.where(busy, np.minimum(base + full * activity, base + full), rest)
    watts = _board(fleet, watts, weight) + rng.normal(0, 0.8, activity.shape)
    shown = np.where(conflict, 0.0, activity)
    engine = np.where(busy, np.clip(activity * 1.1 + 0.02, 0, 1), 0)
    size = _column([float(m.memory_mib) for m in models]) * weight
    return {
        "DCGM_FI_DEV_GPU_UTIL": np.round(100 * engine),
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": np.where(conflict, 0.0, engine),
        "DCGM_FI_PROF_SM_ACTIVE": shown,
        "DCGM_FI_PROF_DRAM_ACTIVE": shown * 0.55,
        "DCGM_FI_DEV_FB_USED": np.round(np.where(taken, moved.memory, 0.0) * size),
        "DCGM_FI_DEV_POWER_USAGE": watts,
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": np.round(
            1e9 + np.cumsum(watts * interval_s * 1000, axis=1)
        ),
        "DCGM_FI_PROF_PCIE_RX_BYTES": np.round(shown * np.where(moved.bound, 9e9, 6e8)),
    }


def _column(values: list[float]) -> Floats:
    return np.array(values, np.float64)[:, None]


def _board(fleet: Fleet, watts: Floats, weight: Floats) -> Floats:
    """Give every MIG instance its board's power: the instances' powers, weighted."""
    out = watts.copy()
    boards: dict[str, list[int]] = {}
    for row, device in enumerate(fleet.devices):
        if device.instance is not None:
            boards.setdefault(device.uuid, []).append(row)
    for rows in boards.values():
        out[rows] = (watts[rows] * weight[rows]).sum(axis=0)
    return out

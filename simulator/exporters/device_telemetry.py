"""Compute what exporters show of a block: sensor values with quirks, and the pods they name.

Both the texts (`dcgm`) and the rows (`rows`) are built from this, so that they cannot differ. What
an exporter remembers (a value that it repeats, a series that lingers) goes back to the beginning of
the block at most: use blocks that begin earlier than the first requested tick.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from simulator.exporters.device_catalog import ExporterField, get_memory_mib, get_model, read_fields
from simulator.exporters.quirks import Quirks
from simulator.models import Block, DeviceAllocation, Holder, Marks, SimulatedDevice
from simulator.work.device_facts import has_nvlink

Doubles = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
NOISE_W = 0.12
SLOT, LONG_SLOT, LONG_SHARE = 11, 44, 0.08
"""Samples of two runs of equal power, of a long run, and the share of long runs: an idle H100's."""
HBM_WARMER_C = 11.0
_MJ_PER_KWH = 3.6e9
_OLD_XIDS = np.array([13, 31, 43, 63, 94])


class SharedSeries(msgspec.Struct, frozen=True):
    """A further series of a device: of another pod that shares it, or of a pod that has ended."""

    device: int
    """Index among the shown devices."""
    holder: Holder
    when: Marks
    """By tick."""
    values: Doubles
    """By [field, tick], or [field, 1] where it is always the same; NaN = blank."""
    shared: bool
    """One of several per-pod copies, which replace the device's own series."""


class DeviceTelemetry(msgspec.Struct, frozen=True):
    """Arrays over [device, tick] of the requested devices and ticks."""

    ticks: Doubles
    every_s: float
    """Seconds between ticks."""
    devices: tuple[SimulatedDevice, ...]
    holders: tuple[Holder, ...]
    values: Doubles
    """By [field, device, tick], in printed units; NaN = blank."""
    printed: Marks
    """By [field, device]: whether the exporter has the field at all."""
    gpu_values: Doubles
    """By [field, device, tick]: the values of the GPU's own line; only where `beside_instances`."""
    holder: Codes
    """Index in `holders` of the named pod; -1 = none."""
    silent: Marks
    skew_s: Doubles
    """By device: how much the clock is ahead; NaN = lines have no timestamp."""
    lower: Marks
    exported: Marks
    names_46: Marks
    beside_instances: Marks
    twice: Marks
    copies: tuple[SharedSeries, ...]


def distort(
    block: Block,
    quirks: Quirks,
    *,
    allocations: Sequence[DeviceAllocation] = (),
    first: int = 0,
    last: int | None = None,
    device_indices: Sequence[int] | None = None,
) -> DeviceTelemetry:
    """Return what is shown of ticks [first, last) of some devices (all, unless `device_indices`).

    `allocations` name the pods that share a device; without them a shared device shows the block's
    holder.
    """
    places = (
        np.arange(len(block.devices))
        if device_indices is None
        else np.asarray(device_indices, np.int64)
    )
    devices = tuple(block.devices[i] for i in places.tolist())
    ticks = block.ticks[first : len(block.ticks) if last is None else last]
    view = _View(block, quirks, places, devices, ticks)
    source = view.sources(first)
    values = view.values(source)
    gpu_values = values.copy() if "mig-labels" in quirks else values
    beside_instances = view.of_node("mig-labels") & np.array(
        [d.instance is not None for d in devices]
    )
    view.blank(values)
    printed = _mark_printed(devices).copy()
    printed &= ~view.hidden()
    _partition(values, printed, beside_instances)
    holder = view.seen(block.holder, source).astype(np.int64)
    restart = view.by_node("exporter-restart")
    gap = view.by_node("missing-pod-labels") | view.by_node("exporter-restart", "gap_s")
    holder[gap] = -1
    sharing = (
        _list_sharing(view, allocations, values, gap) if "time-slicing-copies" in quirks else []
    )
    return DeviceTelemetry(
        ticks=ticks,
        every_s=block.every_s,
        devices=devices,
        holders=block.holders,
        values=values,
        printed=printed,
        gpu_values=gpu_values,
        holder=holder,
        silent=view.by_node("exporter-down") | restart,
        skew_s=view.skew(),
        lower=view.of_node("hostname-lower"),
        exported=view.of_node("exported-labels"),
        names_46=view.of_node("dcgm-4.6-names"),
        beside_instances=beside_instances,
        twice=view.of_node("duplicate-scrapes"),
        copies=(
            *sharing,
            *_list_lingering(
                view, first, holder, gap, beside_instances | _mark_shared(sharing, devices)
            ),
        ),
    )


class _View:
    """The requested devices and ticks, and the effect of quirks on them."""

    def __init__(
        self,
        block: Block,
        quirks: Quirks,
        places: Codes,
        devices: tuple[SimulatedDevice, ...],
        ticks: Doubles,
    ) -> None:
        self.block, self.quirks, self.places = block, quirks, places
        self.devices, self.ticks = devices, ticks
        self.keys = [get_key(d) for d in devices]
        self.uuids = [d.uuid for d in devices]
        self.nodes, code = np.unique([d.node for d in devices], return_inverse=True)
        self.node = code.reshape(-1)

    def of_node(self, name: str) -> Marks:
        """Return by device whether its node has a quirk for ever."""
        struck = self.quirks.strikes(name, self.nodes.tolist(), self.ticks[:1]).struck
        return np.asarray(struck[self.node, 0])

    def hidden(self) -> Marks:
        """Return by [field, device] which fields of whole GPUs a node's exporter lacks."""
        fields = read_fields()
        of_profiler = np.array([f.prof for f in fields])[:, None]
        energy = np.array([f.column == "energy_mj" for f in fields])[:, None]
        whole = np.array([d.instance is None for d in self.devices])
        marks: Marks = (of_profiler & whole & self.of_node("no-profiling")) | (
            energy & whole & self.of_node("no-energy-counter")
        )
        return marks

    def by_node(self, name: str, after: str = "") -> Marks:
        """Return by [device, tick] when a node is affected; `after` adds that many seconds."""
        quirks = self.quirks
        struck = quirks.strikes(name, self.nodes.tolist(), self.ticks).struck
        if after and name in quirks:
            # The time after an effect is the same effect, shifted by these seconds.
            tick_s = self.block.every_s
            steps = int(quirks.value(name, after) // tick_s)
            for step in range(1, steps + 1):
                before = self.ticks - step * tick_s
                struck |= quirks.strikes(name, self.nodes.tolist(), before).struck
        return np.asarray(struck[self.node])

    def sources(self, first: int) -> Codes:
        """Return which tick of the block each [device, tick] shows."""
        own = np.arange(first, first + len(self.ticks))
        source = np.broadcast_to(own, (len(self.devices), len(own)))
        stale = self.quirks.strikes("stale-series", self.keys, self.ticks)
        if not stale.any:
            return source
        begin = np.searchsorted(self.block.ticks, stale.begin)
        return np.where(stale.struck, np.minimum(begin, own), source)

    def seen(self, array: npt.NDArray[Any], source: Codes) -> npt.NDArray[Any]:
        """Return an array's values at the ticks that are shown."""
        if source.strides[0] == 0 and source.size:
            # No value is stale: a slice, because gathering would take five times as long.
            array = array[:, int(source[0, 0]) : int(source[0, -1]) + 1]
            return array if len(self.places) == len(array) else array[self.places]
        return array[self.places[:, None], source]

    def values(self, source: Codes) -> Doubles:
        """Return every field's true values as printed, then distorted; by [field, device, tick]."""
        values = np.empty((len(read_fields()), *source.shape))
        for i, field in enumerate(read_fields()):
            values[i] = self._field(field, source)
        prof = [i for i, f in enumerate(read_fields()) if f.prof]
        stuck = self.quirks.strikes("gr-engine-stuck-zero", self.keys, self.ticks).struck
        if stuck.any():
            values[np.ix_(prof)] = np.where(stuck, 0.0, values[prof])
        latched = self.quirks.strikes("gpu-util-latched-100", self.keys, self.ticks).struck
        if latched.any():
            most = self.quirks.value("gpu-util-latched-100", "empty_mib")
            empty = latched & (values[_find_index("mem_used_bytes")] <= most)
            values[_find_index("gpu_util_pct")][empty] = 100.0
        self._reset(values[_find_index("energy_mj")])
        old = self.quirks.strikes("xid-latched", self.uuids, self.ticks).struck
        if old.any():
            choice = self.quirks.chance("xid-latched", self.uuids, salt=2) * len(_OLD_XIDS)
            code = np.broadcast_to(_OLD_XIDS[choice.astype(int)][:, None], old.shape)
            xid = values[_find_index("xid")]
            xid[:] = np.where(old & (xid == 0), code, xid)
        return values

    def _field(self, field: ExporterField, source: Codes) -> Doubles:
        block, column = self.block, field.column
        if column in _CONSTANT:
            return np.zeros(source.shape)
        facts = {
            "mem_clock_mhz": lambda d: get_model(d).mem_clock_mhz,
            "mem_reserved_bytes": lambda d: get_model(d).reserved_mib,
        }
        if column in facts:
            per_device = np.array([facts[column](d) for d in self.devices])
            return np.broadcast_to(per_device.reshape(-1, 1), source.shape)
        raw = self.seen(getattr(block, _SENSORS[column]), source).astype(np.float64)
        if column == "power_w":
            raw = raw + np.where(raw > 0, _draw_noise(block.ticks)[source], 0.0)
            return self._resolve(self._hold(raw, source))
        if column == "mem_temp_c":
            raw = raw + HBM_WARMER_C
        elif column == "mem_copy_util_pct":
            raw = raw * 100
        elif column == "mem_free_bytes":
            whole = np.array([get_memory_mib(d) for d in self.devices])
            reserved_mib = np.array(
                [0.0 if d.profile else get_model(d).reserved_mib for d in self.devices]
            )
            raw = np.maximum((whole - reserved_mib)[:, None] - np.rint(raw), 0.0)
        return np.asarray(np.rint(raw) if field.whole else np.round(raw, 6))

    def _hold(self, watts: Doubles, source: Codes) -> Doubles:
        """Repeat the power of quiet GPUs: the readings since a run's begin, by absolute time.

        A slot of eleven samples has two runs, some slots of 44 have one.
        """
        gpus = self.uuids
        quiet = self.quirks.strikes("held-power", gpus, self.ticks[:1]).struck[:, 0]
        if not quiet.any():
            return watts
        sample = np.round(self.ticks / self.block.every_s)
        slot, long_slot = sample // SLOT, sample // LONG_SLOT
        cut = 3 + np.floor(self.quirks.chance("held-power", gpus, slot, salt=1) * (SLOT - 5))
        begin = np.where(sample % SLOT < cut, slot * SLOT, slot * SLOT + cut)
        long_run = self.quirks.chance("held-power", gpus, long_slot, salt=2) < LONG_SHARE
        begin = np.where(long_run, long_slot * LONG_SLOT, begin)
        before = np.maximum(source - (sample - begin).astype(np.int64), 0)
        first = self.seen(self.block.power_w, before).astype(np.float64)
        steady = abs(watts - first) < self.quirks.value("held-power", "least_w")
        return np.where(quiet[:, None] & steady & (watts > 0), first, watts)

    def _resolve(self, watts: Doubles) -> Doubles:
        """Round the power to its sensor's steps."""
        coarse = self.of_node("coarse-power")
        if coarse.any():
            step = self.quirks.value("coarse-power", "step_w")
            watts = np.where(coarse[:, None], np.rint(watts / step) * step, watts)
        return np.asarray(np.round(watts, 6))

    def _reset(self, energy: Doubles) -> None:
        """Reset the counters: the values do not depend on where a block is cut."""
        quirks = self.quirks
        if "counter-reset" not in quirks:
            return
        struck = quirks.strikes("counter-reset", self.uuids, self.ticks[:1]).struck[:, 0]
        wrap = max(quirks.value("counter-reset", "wrap_kwh") * _MJ_PER_KWH, 1.0)
        begun = np.rint(quirks.chance("counter-reset", self.uuids, salt=2) * wrap)
        energy[struck] = (energy[struck] + begun[struck][:, None]) % wrap

    def blank(self, values: Doubles) -> None:
        """Blank one field of each affected device, a different field at each effect."""
        struck = self.quirks.strikes("sentinels", self.keys, self.ticks)
        if not struck.any:
            return
        legal = np.array([i for i, f in enumerate(read_fields()) if f.blank])
        for device in np.flatnonzero(struck.struck.any(axis=1)).tolist():
            ticks_struck = np.flatnonzero(struck.struck[device])
            slot = np.floor(struck.begin[device, ticks_struck])
            pick = self.quirks.chance("sentinels", [self.keys[device]], slot, salt=2)[0]
            values[legal[(pick * len(legal)).astype(int)], device, ticks_struck] = np.nan

    def skew(self) -> Doubles:
        """Return by device by how much its node's clock is ahead; NaN = it is right."""
        wrong = [get_skew_s(self.quirks, node) for node in self.nodes.tolist()]
        return np.array([np.nan if s is None else s for s in wrong], np.float64)[self.node]


def get_skew_s(quirks: Quirks, node: str) -> float | None:
    """Return how many seconds a node's clock is ahead (negative: behind); None = it is right."""
    if not quirks.strikes("clock-skew", [node], np.zeros(1)).any:
        return None
    ahead = quirks.chance("clock-skew", [node], salt=2)[0] < 0.5  # noqa: PLR2004  (a fair coin)
    return quirks.value("clock-skew", "skew_s") * (1 if ahead else -1)


def get_key(device: SimulatedDevice) -> str:
    """Return a device's canonical identity: the GPU's UUID, or `<UUID>/gi<N>`."""
    return device.uuid if device.instance is None else f"{device.uuid}/gi{device.instance}"


def _list_sharing(
    view: _View, allocations: Sequence[DeviceAllocation], values: Doubles, gap: Marks
) -> list[SharedSeries]:
    """Return a copy per pod of every shared device."""
    sliced = view.of_node("time-slicing-copies")
    place = {int(p): i for i, p in enumerate(view.places.tolist())}
    copies = []
    for allocation in allocations:
        if allocation.share >= 1:
            continue
        is_allocated = (view.ticks >= allocation.start_s) & (view.ticks < allocation.end_s)
        for device in (place[d] for d in allocation.devices if d in place):
            when = is_allocated & ~gap[device]
            if sliced[device] and when.any():
                copies.append(
                    SharedSeries(device, allocation.holder, when, values[:, device], shared=True)
                )
    return copies


def _mark_shared(sharing: Sequence[SharedSeries], devices: Sequence[SimulatedDevice]) -> Marks:
    marks = np.zeros(len(devices), np.bool_)
    marks[[copy.device for copy in sharing]] = True
    return marks


def _list_lingering(
    view: _View, first: int, holder: Codes, gap: Marks, spared: Marks
) -> list[SharedSeries]:
    """Return the series of pods that have just ended, with their last values."""
    quirks, block = view.quirks, view.block
    if "stale-series" not in quirks:
        return []
    steps = int(quirks.value("stale-series", "linger_s") // block.every_s)
    earliest = max(first - steps, 0)
    prone = quirks.chance("stale-series", view.keys, salt=3) < quirks.value("stale-series", "rate")
    copies = []
    last = first + len(view.ticks)
    for device in np.flatnonzero(prone).tolist():
        if spared[device]:
            continue
        holders = block.holder[view.places[device], earliest:last]
        for change in (np.flatnonzero(holders[1:] != holders[:-1]) + earliest + 1).tolist():
            former_holder = int(block.holder[view.places[device], change - 1])
            if former_holder < 0:
                continue
            when = np.zeros(len(view.ticks), np.bool_)
            when[max(change - first, 0) : max(change + steps - first, 0)] = True
            when &= ~gap[device] & (holder[device] != former_holder)
            if when.any():
                then = distort(
                    block,
                    _drop_quirks(quirks, "stale-series"),
                    first=change - 1,
                    last=change,
                    device_indices=[int(view.places[device])],
                )
                values = then.values[:, 0]
                copies.append(
                    SharedSeries(device, block.holders[former_holder], when, values, shared=False)
                )
    return copies


def _drop_quirks(quirks: Quirks, name: str) -> Quirks:
    return Quirks(quirks.seed, {n: parameters for n, parameters in quirks.on.items() if n != name})


def _partition(values: Doubles, printed: Marks, beside_instances: Marks) -> None:
    """Let instances beside their GPUs report no use, and no memory."""
    for i, field in enumerate(read_fields()):
        if field.column == "gpu_util_pct":
            printed[i] |= beside_instances
            values[i][beside_instances] = 0.0
        elif field.column in {"mem_free_bytes", "mem_used_bytes"}:
            printed[i] &= ~beside_instances


def _mark_printed(devices: Sequence[SimulatedDevice]) -> Marks:
    plain = np.array([d.instance is None for d in devices])
    linked = np.array([has_nvlink(d) for d in devices])
    only = {
        "mem_temp_c": np.array([get_model(d).hbm for d in devices]),
        "nvlink_tx_bps": linked,
        "nvlink_rx_bps": linked,
    }
    return np.stack([(plain | f.mig) & only.get(f.column, True) for f in read_fields()])


@cache
def _find_index(column: str) -> int:
    """Return the place of the field that fills a column."""
    return next(i for i, f in enumerate(read_fields()) if f.column == column)


def _draw_noise(ticks: Doubles) -> Doubles:
    """Return the difference (watts) between a power reading and the true value, by its time.

    The last digits of a sensor that reads milliwatts change all the time: a reading without a
    change is an old value. All instances of a GPU show the GPU's one reading.
    """
    return np.asarray((ticks * 0.618034 % 1 - 0.5) * 2 * NOISE_W)


_CONSTANT = frozenset({"pcie_replay", "remapped_uncorrectable", "row_remap_failure"})
_SENSORS = {
    "sm_clock_mhz": "sm_clock_mhz",
    "mem_temp_c": "temp_c",
    "temp_c": "temp_c",
    "power_w": "power_w",
    "energy_mj": "energy_mj",
    "gpu_util_pct": "gpu_util_pct",
    "mem_copy_util_pct": "dram_active",
    "xid": "xid",
    "mem_free_bytes": "mem_used_mib",
    "mem_used_bytes": "mem_used_mib",
    "gr_engine_active": "gr_engine_active",
    "sm_active": "sm_active",
    "tensor_active": "tensor_active",
    "fp32_active": "fp32_active",
    "throttle_mask": "throttle_mask",
    "dram_active": "dram_active",
    "pcie_tx_bps": "pcie_tx_bytes",
    "pcie_rx_bps": "pcie_rx_bytes",
    "nvlink_tx_bps": "nvlink_bytes",
    "nvlink_rx_bps": "nvlink_bytes",
}
"""The block's array behind each column."""

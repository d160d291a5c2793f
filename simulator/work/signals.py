"""Compute what every device shows at every tick: scripts become sensor values and truth.

Pods that share a device add up: engine, SM, tensor and DRAM activity and traffic up to the device's
limits, memory up to its size. Instances of one GPU show the GPU's power, the sum of theirs. A node
that is lost or reclaimed is switched off; its counters start from zero when it returns, as they do
after the reset that follows an XID. A cordoned device continues to work for its holder.

Nothing here is `stranded`: that depends on the pending pods, so the world decides it.
"""

import zlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec
import numpy as np

from simulator.models import (
    STATES,
    TICK_S,
    Block,
    Codes,
    DeviceAllocation,
    Floats,
    Marks,
    Outage,
    SimulatedDevice,
)
from simulator.work.behaviours import Script
from simulator.work.chance import Array, draw_normal, draw_uniform, draw_words
from simulator.work.device_facts import (
    AMBIENT_C,
    LOAD_C,
    SAG,
    SETTLE_S,
    DeviceFacts,
    build_device_facts,
)
from simulator.work.effects import Effect
from simulator.work.kinds import read_kinds

OFF = ("node-lost", "spot")
RESETS = (*OFF, "xid")
FATAL_XID = 79
"""The message of a device that an XID makes unavailable: fallen off the bus."""
IDLE_CONTEXT_BPS, IDLE_BARE_BPS = 40_000.0, 500.0
PCIE_BPS = 50e9
"""The maximum of the link (generation 5, 16 lanes)."""
BESIDE_LINKS_BPS = 0.6e9
"""What ranks that talk over NVLink still send over PCIe."""
BARE_MIB = 4.0
NOISE_W = 0.8
HOT_C, HOT_CLOCK, HOT_POWER = 92.0, 0.6, 0.72
"""A GPU that throttles: its temperature, and the factors of its clock and power."""
GPU_IDLE, SW_THERMAL, HW_THERMAL = 0x1, 0x20, 0x40
"""Bits of NVML's clocks event reasons."""
RATIOS = ("tensor", "fp32", "dram", "rx_bps", "tx_bps")
PIPES = {"tensor", "fp32", "dram"}
"""Ratios that are per SM activity."""


class Carry(msgspec.Struct, frozen=True):
    """The state that one stretch passes to the next, by device."""

    until_s: float
    """Last tick of the stretch; minus infinity before the first."""
    energy_mj: Array
    temp_c: Array
    xid: Codes


class EarlierScript(msgspec.Struct, frozen=True):
    """What a pod did before it got another script: pulled an image, or waited for its gang."""

    until_s: float
    script: Script


class _Sums(msgspec.Struct):
    """Sums over the devices while pods are added, [device, tick]."""

    holder: Codes
    state: Codes
    stop_harms: Marks
    context: Marks
    off: Marks
    """Switched off."""
    hot: Marks
    """Too hot for full speed."""
    busy: Array
    now: Array
    sm: Array
    memory: Array
    tensor: Array
    fp32: Array
    dram: Array
    rx_bps: Array
    tx_bps: Array
    link_bps: Array
    """Sent to other GPUs over NVLink; as much is received."""


def build_idle_state(devices: Sequence[SimulatedDevice]) -> Carry:
    """Return the state of idle devices that have been up for some days."""
    energy = [1e11 + 8e11 * draw_uniform(_derive_seed(d), "energy") for d in devices]
    return Carry(
        -np.inf,
        np.round(np.array(energy)),
        np.full(len(devices), AMBIENT_C + 4.0),
        np.zeros(len(devices), np.int16),
    )


def compute_signals(  # noqa: PLR0917  (the order of the rooms' agreement)
    devices: Sequence[SimulatedDevice],
    allocations: Sequence[DeviceAllocation],
    scripts: Mapping[str, Script],
    outages: Sequence[Outage],
    ticks: Array,
    carry: Carry | None = None,
    effects: Sequence[Effect] = (),
    earlier: Mapping[str, Sequence[EarlierScript]] = MappingProxyType({}),
) -> tuple[Block, Carry]:
    """Return the block of these ticks (TICK_S apart), and what the next one needs.

    `scripts` by pod uid, `earlier` what some pods followed before, in order. Cutting a time into
    blocks and passing the carry on changes nothing.

    Raises:
        KeyError: an allocation without a script, or a GPU model without facts.
    """
    devices = tuple(devices)
    before = build_idle_state(devices) if carry is None else carry
    active_allocations = [t for t in allocations if t.start_s <= ticks[-1] and t.end_s > ticks[0]]
    sums = _build_empty((len(devices), len(ticks)))
    links = build_device_facts(devices).nvlink_bps
    for place, allocation in enumerate(active_allocations):
        since_s = allocation.start_s
        for past in earlier.get(allocation.holder.uid, ()):
            _add(sums, place, allocation, past.script, ticks, links, since_s, past.until_s)
            since_s = max(since_s, past.until_s)
        script = scripts[allocation.holder.uid]
        _add(sums, place, allocation, script, ticks, links, since_s, allocation.end_s)
    _clip(sums)
    _take_away(sums, outages, ticks)
    _add_heat(sums, effects, ticks)
    resets = sorted(
        (o.device, int(np.searchsorted(ticks, o.end_s)))
        for o in outages
        if o.why in RESETS and before.until_s < o.end_s <= ticks[-1]
    )
    xid = _list_xids(_list_events(outages, effects), ticks, before, resets)
    return _measure(devices, active_allocations, sums, xid, resets, ticks, before)


def _build_empty(shape: tuple[int, int]) -> _Sums:
    return _Sums(
        np.full(shape, -1, np.int16),
        np.full(shape, STATES.index("free"), np.int16),
        *(np.zeros(shape, bool) for _ in range(4)),
        *(np.zeros(shape) for _ in range(10)),
    )


def _add(  # noqa: PLR0917  (one caller)
    sums: _Sums,
    place: int,
    allocation: DeviceAllocation,
    script: Script,
    ticks: Array,
    links: Array,
    since_s: float,
    until_s: float,
) -> None:
    """Add one pod to its devices for the ticks of [since, until) in which it held them."""
    until_s = min(until_s, allocation.end_s)
    span = slice(*np.searchsorted(ticks, [since_s, until_s]).tolist())
    now = ticks[span]
    if not len(now):
        return
    first = script.plan.first_rank
    activity = script.play(now, range(first, first + len(allocation.devices)))
    facts = read_kinds()
    at = (_select_rows(allocation.devices), span)
    vacant = sums.holder[at] < 0
    sums.holder[at] = np.where(vacant, place, sums.holder[at])
    # The states are in order: the busiest pod decides the state of a shared device.
    sums.state[at] = np.where(vacant, activity.state, np.maximum(sums.state[at], activity.state))
    sums.stop_harms[at] |= activity.stop_harms
    sums.context[at] |= facts.context[activity.kind]
    for name in ("busy", "now", "sm", "memory"):
        getattr(sums, name)[at] += getattr(activity, name)
    carried = np.where(facts.computes[activity.kind], activity.busy, 1.0)
    for name in RATIOS:
        scale = activity.sm if name in PIPES else carried
        getattr(sums, name)[at] += facts.ratios[name][activity.kind] * scale
    if facts.ratios["links"][activity.kind].any():
        sent = facts.ratios["links"][activity.kind] * carried * links[at[0]]
        sums.link_bps[at] += sent
        for wire in (sums.rx_bps, sums.tx_bps):
            wire[at] = np.where(sent > 0, np.minimum(wire[at], BESIDE_LINKS_BPS), wire[at])


def _select_rows(places: tuple[int, ...]) -> slice | list[int]:
    """Return neighbours as a slice, which spares a copy of every array."""
    dense = places == tuple(range(places[0], places[0] + len(places)))
    return slice(places[0], places[0] + len(places)) if dense else list(places)


def _clip(sums: _Sums) -> None:
    for name in ("busy", "now", "sm", "memory", *sorted(PIPES)):
        values = getattr(sums, name)
        np.minimum(values, 1.0, out=values)
    for values in (sums.rx_bps, sums.tx_bps):
        np.minimum(values, PCIE_BPS, out=values)


def _take_away(sums: _Sums, outages: Sequence[Outage], ticks: Array) -> None:
    """Remove what outages make impossible."""
    for outage in outages:
        span = slice(*np.searchsorted(ticks, [outage.start_s, outage.end_s]).tolist())
        row = (outage.device, span)
        lost = sums.holder[row] < 0 if outage.why == "cordoned" else np.ones_like(sums.off[row])
        sums.off[row] |= outage.why in OFF
        sums.state[row] = np.where(lost, STATES.index("unavailable"), sums.state[row])
        sums.stop_harms[row] &= ~lost
        sums.context[row] &= ~lost
        for name in ("busy", "now", "sm", "memory", "link_bps", *RATIOS):
            getattr(sums, name)[row] *= ~lost


def _add_heat(sums: _Sums, effects: Sequence[Effect], ticks: Array) -> None:
    for effect in effects:
        if effect.why == "thermal":
            begin, end = np.searchsorted(ticks, [effect.start_s, effect.end_s]).tolist()
            sums.hot[effect.device, begin:end] = True


def _measure(  # noqa: PLR0917  (everything meets here once)
    devices: tuple[SimulatedDevice, ...],
    active_allocations: Sequence[DeviceAllocation],
    sums: _Sums,
    xid: Codes,
    resets: Sequence[tuple[int, int]],
    ticks: Array,
    before: Carry,
) -> tuple[Block, Carry]:
    facts = build_device_facts(devices)
    steady, gauge_watts = _compute_watts(devices, facts, sums, ticks)
    energy = _compute_running_sum(before.energy_mj, np.rint(steady * (TICK_S * 1000.0)), resets)
    temp = _compute_temperature(devices, facts, steady, sums.hot, before.temp_c)
    off = sums.off
    clock = np.where(sums.context, facts.boost_mhz * (1 - SAG * sums.sm), facts.rest_mhz)
    clock = np.where(sums.hot, clock * HOT_CLOCK, clock)
    for rows in _list_instances(devices):
        clock[rows] = clock[rows].max(axis=0)
    idle_bps = np.where(sums.context, IDLE_CONTEXT_BPS, IDLE_BARE_BPS)
    block = Block(
        ticks=ticks,
        devices=devices,
        holders=tuple(t.holder for t in active_allocations),
        holder=sums.holder,
        state=sums.state,
        stop_harms=sums.stop_harms,
        sm_active=_convert_f32(sums.sm),
        gr_engine_active=_convert_f32(sums.busy),
        tensor_active=_convert_f32(sums.tensor),
        fp32_active=_convert_f32(sums.fp32),
        dram_active=_convert_f32(sums.dram),
        gpu_util_pct=_convert_f32(np.rint(100 * sums.now)),
        mem_used_mib=_convert_f32(
            np.where(off, 0, np.rint(sums.memory * facts.memory_mib) + BARE_MIB)
        ),
        power_w=_convert_f32(gauge_watts),
        energy_mj=energy,
        temp_c=_convert_f32(np.rint(temp)),
        sm_clock_mhz=_convert_f32(np.where(off, 0, np.rint(clock / 15) * 15)),
        pcie_rx_bytes=_convert_f32(np.where(off, 0, sums.rx_bps + idle_bps)),
        pcie_tx_bytes=_convert_f32(np.where(off, 0, sums.tx_bps + idle_bps)),
        nvlink_bytes=_convert_f32(sums.link_bps),
        xid=xid,
        throttle_mask=_find_reasons(sums),
    )
    after = Carry(float(ticks[-1]), energy[:, -1].copy(), temp[:, -1].copy(), xid[:, -1].copy())
    return block, after


def _find_reasons(sums: _Sums) -> Codes:
    """Return why clocks are low: nothing runs, or the GPU is too hot."""
    idle_clocks = np.where(sums.now == 0, np.int16(GPU_IDLE), np.int16(0))
    heat = np.where(sums.hot, np.int16(SW_THERMAL | HW_THERMAL), np.int16(0))
    reasons: Codes = np.where(sums.off, np.int16(0), idle_clocks | heat)
    return reasons


def _compute_watts(
    devices: tuple[SimulatedDevice, ...], facts: DeviceFacts, sums: _Sums, ticks: Array
) -> tuple[Array, Array]:
    """Return each tick's mean power, and what a gauge of one instant would show of it."""
    noise = np.stack([_draw_noise(d, ticks) for d in devices]) * NOISE_W
    rest = np.where(sums.context, facts.context_w, facts.bare_w)
    works = sums.busy > 0
    load = facts.sm_w * sums.sm
    # A gauge that is read between two short kernels shows an idle GPU.
    gauge_load = load * np.divide(sums.now, sums.busy, out=np.zeros_like(load), where=works)
    awake = sums.now > 0
    for rows in _list_instances(devices):
        weight = np.array([devices[row].weight for row in rows])[:, None]
        load[rows] = (load[rows] * weight).sum(axis=0)
        gauge_load[rows] = (gauge_load[rows] * weight).sum(axis=0)
        works[rows], awake[rows] = works[rows].any(axis=0), awake[rows].any(axis=0)
        rest[rows] = rest[rows].max(axis=0)
    out = []
    for busy, watts in ((works, load), (awake, gauge_load)):
        drawn_w = np.where(busy, np.minimum(facts.base_w + watts, facts.limit_w), rest)
        drawn_w = np.where(sums.hot & busy, drawn_w * HOT_POWER, drawn_w)
        out.append(np.where(sums.off, 0.0, drawn_w + noise))
    return out[0], out[1]


def _list_instances(devices: tuple[SimulatedDevice, ...]) -> list[list[int]]:
    """Return the rows of each partitioned GPU."""
    rows: dict[str, list[int]] = {}
    for row, device in enumerate(devices):
        if device.instance is not None:
            rows.setdefault(device.uuid, []).append(row)
    return list(rows.values())


def _compute_running_sum(start: Array, gained: Array, resets: Sequence[tuple[int, int]]) -> Array:
    """Return the running sum, which starts from zero at each reset (row, place of the tick)."""
    counter: Array = np.cumsum(np.concatenate([start[:, None], gained], axis=1), axis=1)
    for row, place in resets:
        counter[row, place + 1 :] -= counter[row, place]
    return counter[:, 1:]


def _compute_temperature(
    devices: tuple[SimulatedDevice, ...], facts: DeviceFacts, watts: Array, hot: Marks, start: Array
) -> Array:
    place = np.array([draw_uniform(_derive_seed(d), "temperature") for d in devices])[:, None]
    target = AMBIENT_C + LOAD_C * watts / facts.limit_w + 8.0 * (place - 0.5)
    target = np.where(hot, HOT_C, target)
    step = 1 - np.exp(-TICK_S / SETTLE_S)
    out = np.empty_like(target)
    last = start
    for tick in range(target.shape[1]):
        last = last + step * (target[:, tick] - last)
        out[:, tick] = last
    return out


def _list_events(
    outages: Sequence[Outage], effects: Sequence[Effect]
) -> list[tuple[float, int, int]]:
    """Return when which device reports which XID."""
    xid_events = [(e.start_s, e.device, e.code) for e in effects if e.why == "xid"]
    return xid_events + [(o.start_s, o.device, FATAL_XID) for o in outages if o.why == "xid"]


def _list_xids(
    events: Sequence[tuple[float, int, int]],
    ticks: Array,
    before: Carry,
    resets: Sequence[tuple[int, int]],
) -> Codes:
    """Return the last XID of each device since its driver was loaded."""
    places = [
        (int(np.searchsorted(ticks, at)), device, code)
        for at, device, code in events
        if before.until_s < at <= ticks[-1]
    ]
    out = np.repeat(before.xid[:, None], len(ticks), axis=1)
    for place, device, code in sorted([*places, *((at, row, 0) for row, at in resets)]):
        out[device, place:] = code
    return out


def _draw_noise(device: SimulatedDevice, ticks: Array) -> Array:
    return draw_normal(draw_words(_derive_seed(device), "watts", ticks, 1)[0])


def _derive_seed(device: SimulatedDevice) -> int:
    """Return a seed of the GPU: its instances share the GPU's values."""
    return zlib.crc32(device.uuid.encode())


def _convert_f32(values: Array) -> Floats:
    return values.astype(np.float32)

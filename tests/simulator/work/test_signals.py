"""What devices show: power laws, counters, sharing, instances, outages; cut anywhere, the same."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fallow.gpu_models import read_gpu_models
from simulator.models import (
    STATES,
    TICK_S,
    Block,
    DeviceAllocation,
    Holder,
    Outage,
    SimulatedDevice,
)
from simulator.work.behaviours import Script, WorkPlan, build_script
from simulator.work.chance import Array
from simulator.work.effects import Effect, draw_effects
from simulator.work.signals import Carry, compute_signals

MONDAY = 1_789_948_800.0
NOISE_W = 3.0
"""More than four standard deviations of a board's power at rest."""
ARRAYS = [
    name
    for name in Block.__struct_fields__
    if name not in {"ticks", "devices", "holders", "holder", "every_s"}
]


def ticks(begin: float, hours: float) -> Array:
    return begin + 30.0 * np.arange(round(hours * 120), dtype=np.float64)


def boards(count: int, model: str = "H100") -> tuple[SimulatedDevice, ...]:
    return tuple(
        SimulatedDevice(f"GPU-{n:04d}", f"node-{n // 8}", n % 8, model) for n in range(count)
    )


def instances(uuid: str = "GPU-split") -> tuple[SimulatedDevice, ...]:
    shapes = (("3g.40gb", 3), ("2g.20gb", 2), ("1g.10gb", 1))
    return tuple(
        SimulatedDevice(uuid, "node-9", 0, "A100-80GB", profile, number, slices / 7)
        for number, (profile, slices) in enumerate(shapes, start=1)
    )


class Fleet:
    """Devices, and the pods put on them."""

    def __init__(self, devices: tuple[SimulatedDevice, ...]) -> None:
        self.devices = devices
        self.tenures: list[DeviceAllocation] = []
        self.scripts: dict[str, Script] = {}

    def put(
        self,
        plan: WorkPlan,
        *rows: int,
        start: float = MONDAY,
        end: float = np.inf,
        share: float = 1.0,
    ) -> Script:
        uid = f"pod-{len(self.tenures)}"
        holder = Holder(uid, "ns", uid, "main", "Job", uid, "team")
        self.tenures.append(DeviceAllocation(holder, rows, start, end, share))
        self.scripts[uid] = build_script(plan, start)
        return self.scripts[uid]

    def block(
        self,
        over: Array,
        carry: Carry | None = None,
        outages: tuple[Outage, ...] = (),
        happened: tuple[Effect, ...] = (),
    ) -> tuple[Block, Carry]:
        return compute_signals(
            self.devices, self.tenures, self.scripts, outages, over, carry, happened
        )


def busy_fleet() -> tuple[Fleet, tuple[Outage, ...], tuple[Effect, ...]]:
    fleet = Fleet((*boards(8), *instances()))
    fleet.put(WorkPlan("training", 1, ranks=2), 0, 1)
    fleet.put(WorkPlan("day notebook", 2), 2, start=MONDAY + 610, end=MONDAY + 9000)
    fleet.put(WorkPlan("serving", 3), 2, start=MONDAY + 9000)
    fleet.put(WorkPlan("bursty serving", 4, params={"mean": 0.03}), 3, share=0.5)
    fleet.put(WorkPlan("serving", 5), 3, share=0.5)
    fleet.put(WorkPlan("serving", 6, gpu_model="A100-80GB"), 8)
    fleet.put(WorkPlan("abandoned notebook", 7, gpu_model="A100-80GB"), 9)
    fleet.put(WorkPlan("training", 8), 4)
    fleet.put(WorkPlan("training", 9), 5)
    outages = (
        Outage(4, MONDAY + 4000, MONDAY + 7000, "node-lost"),
        Outage(5, MONDAY + 5000, MONDAY + 8000, "xid"),
        Outage(6, MONDAY + 3000, MONDAY + 6000, "cordoned"),
        Outage(0, MONDAY + 3000, MONDAY + 6000, "cordoned"),
    )
    happened = (
        Effect(1, MONDAY + 2000, MONDAY + 5000, "thermal"),
        Effect(0, MONDAY + 2500, MONDAY + 2500, "xid", 31),
    )
    return fleet, outages, happened


@given(cuts=st.lists(st.integers(1, 399), max_size=4))
@settings(max_examples=20)
def test_cutting_a_time_into_blocks_changes_nothing(cuts: list[int]) -> None:
    fleet, outages, happened = busy_fleet()
    over = ticks(MONDAY - 600, 400 / 120)
    whole, after = fleet.block(over, None, outages, happened)
    carry, parts = None, []
    for begin, end in pairwise([0, *sorted(set(cuts)), 400]):
        part, carry = fleet.block(over[begin:end], carry, outages, happened)
        parts.append(part)
    for name in ARRAYS:
        joined = np.concatenate([getattr(part, name) for part in parts], axis=1)
        np.testing.assert_array_equal(joined, getattr(whole, name), err_msg=name)
    names = [
        [part.holders[n].uid if n >= 0 else "" for n in row]
        for part in [whole]
        for row in part.holder
    ]
    pieces = [
        [p.holders[n].uid if n >= 0 else "" for p in parts for n in p.holder[row]]
        for row in range(len(fleet.devices))
    ]
    assert pieces == names
    assert carry is not None
    np.testing.assert_array_equal(carry.energy_mj, after.energy_mj)


def test_the_energy_counter_is_the_integral_of_power() -> None:
    fleet = Fleet(boards(2))
    fleet.put(WorkPlan("training", 1), 0)
    block, _ = fleet.block(ticks(MONDAY, 6))
    joules = np.diff(block.energy_mj, axis=1) / 1000
    assert (joules > 0).all()
    np.testing.assert_allclose(joules, block.power_w[:, 1:] * TICK_S, rtol=1e-5)


def test_power_follows_the_published_law() -> None:
    fleet = Fleet(boards(3))
    fleet.put(WorkPlan("training", 1), 0)
    fleet.put(WorkPlan("forgotten serving", 1), 1)
    block, _ = fleet.block(ticks(MONDAY + 12 * 3600, 6))
    works = block.sm_active[0] > 0
    expected = np.minimum(134 + 610 * block.sm_active[0], 700)
    assert np.abs(block.power_w[0] - expected)[works].max() < NOISE_W
    assert np.abs(block.power_w[1] - 120).max() < NOISE_W  # a model in memory and no request
    assert np.abs(block.power_w[2] - 70).max() < NOISE_W  # nobody
    assert block.mem_used_mib[1].min() > 0.8 * 80 * 1024
    assert block.mem_used_mib[2].max() < 10


@pytest.mark.parametrize("model", [m.gpu_model for m in read_gpu_models()])
def test_every_known_model_stays_between_rest_and_its_limit(model: str) -> None:
    facts = next(m for m in read_gpu_models() if m.gpu_model == model)
    fleet = Fleet(boards(3, model))
    fleet.put(WorkPlan("training", 1, gpu_model=model), 0)
    fleet.put(WorkPlan("forgotten serving", 1, gpu_model=model), 1)
    block, _ = fleet.block(ticks(MONDAY + 12 * 3600, 3))
    assert block.power_w[0].max() <= facts.tdp_w + NOISE_W
    assert np.abs(block.power_w[1] - facts.idle_context_w).max() < NOISE_W
    assert np.abs(block.power_w[2] - facts.idle_bare_w).max() < NOISE_W
    works = block.sm_active[0] > 0.2
    assert block.power_w[0][works].min() > facts.idle_context_w
    assert block.sm_clock_mhz[0].max() > block.sm_clock_mhz[2].max()


def test_pods_that_share_a_device_add_up_to_no_more_than_it_has() -> None:
    one, two, both = Fleet(boards(1)), Fleet(boards(1)), Fleet(boards(1))
    plans = (
        WorkPlan("serving", 1, params={"memory": 0.3}),
        WorkPlan("serving", 2, params={"memory": 0.4}),
    )
    over = ticks(MONDAY + 14 * 3600, 4)
    one.put(plans[0], 0)
    two.put(plans[1], 0)
    for plan in plans:
        both.put(plan, 0, share=0.5)
    a, b, ab = (fleet.block(over)[0] for fleet in (one, two, both))
    for name in ("gr_engine_active", "sm_active", "dram_active"):
        summed = np.minimum(getattr(a, name) + getattr(b, name), 1)
        np.testing.assert_allclose(getattr(ab, name), summed, rtol=1e-5)
    assert ab.mem_used_mib[0, -1] == pytest.approx(0.7 * 80 * 1024, rel=0.01)
    assert ab.power_w.max() <= 700 + NOISE_W
    np.testing.assert_array_equal(ab.stop_harms, a.stop_harms | b.stop_harms)
    # One context's base, not two.
    works = (a.sm_active[0] > 0) & (b.sm_active[0] > 0)
    expected = np.minimum(134 + 610 * ab.sm_active[0], 700)
    assert works.any()
    assert np.abs(ab.power_w[0] - expected)[works].max() < NOISE_W


def test_instances_show_their_boards_power_and_their_own_activity() -> None:
    fleet = Fleet(instances())
    for row, name in enumerate(("training", "abandoned notebook", "serving")):
        fleet.put(WorkPlan(name, row, gpu_model="A100-80GB"), row)
    block, _ = fleet.block(ticks(MONDAY + 14 * 3600, 4))
    for name in ("power_w", "energy_mj", "temp_c", "sm_clock_mhz"):
        rows = getattr(block, name)
        np.testing.assert_array_equal(rows[0], rows[1], err_msg=name)
        np.testing.assert_array_equal(rows[0], rows[2], err_msg=name)
    assert block.sm_active[0].mean() > 0.3
    assert block.sm_active[1].max() == 0
    sm = (block.sm_active * np.array([[3], [2], [1]]) / 7).sum(axis=0)
    slope = 400 * 744 / 700 - 100 * 134 / 120
    expected = 100 * 134 / 120 + slope * sm
    works = sm > 0
    assert np.abs(block.power_w[0] - expected)[works].max() < NOISE_W
    assert block.mem_used_mib[2].max() <= 10 * 1024 + 10


def test_requests_shorter_than_a_scrape_escape_gauges_but_not_the_energy() -> None:
    fleet = Fleet(boards(1))
    fleet.put(WorkPlan("bursty serving", 4, params={"mean": 0.05}), 0)
    block, _ = fleet.block(ticks(MONDAY + 12 * 3600, 12))
    works = block.sm_active[0] > 0
    assert (block.gpu_util_pct[0][works] == 0).mean() > 0.5
    assert set(np.unique(block.gpu_util_pct)) == {0.0, 100.0}
    missed = works & (block.gpu_util_pct[0] == 0)
    assert np.abs(block.power_w[0] - 120)[missed].max() < NOISE_W
    watts = np.diff(block.energy_mj[0]) / 1000 / TICK_S
    assert watts[missed[1:]].min() > 134 - NOISE_W


def test_a_lost_node_is_off_and_counts_from_zero_when_it_is_back() -> None:
    fleet, outages, happened = busy_fleet()
    block, _ = fleet.block(ticks(MONDAY, 3), None, outages, happened)
    over = block.ticks
    lost = (over >= MONDAY + 4000) & (over < MONDAY + 7000)
    assert {STATES[n] for n in block.state[4][lost]} == {"unavailable"}
    assert not block.stop_harms[4][lost].any()
    for name in ("power_w", "sm_active", "mem_used_mib", "sm_clock_mhz"):
        assert getattr(block, name)[4][lost].max() == 0, name
    assert np.ptp(block.energy_mj[4][lost]) == 0
    back = np.flatnonzero(over >= MONDAY + 7000)[0]
    assert 0 < block.energy_mj[4][back] < 1000 * TICK_S * 1000 < block.energy_mj[4][back - 1]


def test_an_xid_is_latched_until_the_device_is_reset() -> None:
    fleet, outages, happened = busy_fleet()
    block, _ = fleet.block(ticks(MONDAY, 3), None, outages, happened)
    over = block.ticks
    assert set(block.xid[0][over >= MONDAY + 2500]) == {31}  # the application's error
    assert set(block.xid[0][over < MONDAY + 2500]) == {0}
    broken = (over >= MONDAY + 5000) & (over < MONDAY + 8000)
    assert set(block.xid[5][broken]) == {79}
    assert set(block.xid[5][~broken]) == {0}
    assert {STATES[n] for n in block.state[5][broken]} == {"unavailable"}


def test_a_cordon_takes_away_only_what_nobody_holds() -> None:
    fleet, outages, happened = busy_fleet()
    block, _ = fleet.block(ticks(MONDAY, 3), None, outages, happened)
    cordoned = (block.ticks >= MONDAY + 3000) & (block.ticks < MONDAY + 6000)
    assert {STATES[n] for n in block.state[6][cordoned]} == {"unavailable"}
    assert {STATES[n] for n in block.state[6][~cordoned]} == {"free"}
    assert "unavailable" not in {STATES[n] for n in block.state[0]}
    assert block.power_w[6].min() > 60


def test_heat_slows_the_board_that_works() -> None:
    fleet, outages, happened = busy_fleet()
    block, _ = fleet.block(ticks(MONDAY, 3), None, outages, happened)
    hot = (block.ticks >= MONDAY + 2600) & (block.ticks < MONDAY + 5000)
    works = block.sm_active[:2].min(axis=0) > 0
    assert block.temp_c[1][hot].max() > 88 > block.temp_c[0][hot].max()
    ratio = block.sm_clock_mhz[1][hot & works] / block.sm_clock_mhz[0][hot & works]
    assert ratio.max() < 0.7
    cool, warm = (block.power_w[row][hot & works].mean() for row in (0, 1))
    assert warm < 0.8 * cool


@pytest.mark.parametrize(("model", "peak"), [("H100", 450e9), ("A30", 100e9), ("L40S", 0.0)])
def test_ranks_that_talk_use_nvlink_where_their_gpus_have_it(model: str, peak: float) -> None:
    fleet = Fleet(boards(4, model))
    fleet.put(WorkPlan("communicating training", 3, 4, model), 0, 1, 2, 3)
    quiet = Fleet(boards(4, model))
    quiet.put(WorkPlan("training", 3, 4, model), 0, 1, 2, 3)
    block, _ = fleet.block(ticks(MONDAY + 3600, 2))
    works = block.gr_engine_active > 0.3
    assert works.any()
    sent = block.nvlink_bytes[works] / block.gr_engine_active[works]
    assert sent == pytest.approx(0.95 * peak, rel=0.01)
    assert (block.pcie_tx_bytes[works].max() > 1e9) == (peak == 0)
    assert not quiet.block(ticks(MONDAY + 3600, 2))[0].nvlink_bytes.any()


def test_devices_of_one_pod_are_its_ranks_and_nobody_is_free() -> None:
    fleet = Fleet(boards(5))
    fleet.put(WorkPlan("idle rank", 1, ranks=4, first_rank=2, pod_ranks=2), 0, 3)
    block, _ = fleet.block(ticks(MONDAY + 3600, 3))
    assert block.sm_active[0].mean() > 0.3
    assert block.sm_active[3].max() == 0
    assert (block.holder[[1, 2, 4]] == -1).all()
    assert {STATES[n] for n in block.state[1]} == {"free"}


def test_a_holders_time_begins_and_ends_with_its_tenure() -> None:
    fleet = Fleet(boards(1))
    fleet.put(WorkPlan("training", 1), 0, start=MONDAY + 45, end=MONDAY + 300)
    block, _ = fleet.block(ticks(MONDAY, 0.1))
    held = block.ticks[block.holder[0] >= 0]
    assert [held[0], held[-1]] == [MONDAY + 60, MONDAY + 270]


def test_effects_come_at_their_rates_and_do_not_depend_on_the_cut() -> None:
    fleet = boards(1000)
    month = 30 * 86_400
    whole = draw_effects(fleet, 7, MONDAY, MONDAY + month, often=4)
    middle = MONDAY + 1_000_001
    cut = [
        *draw_effects(fleet, 7, MONDAY, middle, often=4),
        *draw_effects(fleet, 7, middle, MONDAY + month, often=4),
    ]
    assert cut == whole
    thermal = [e for e in whole if e.why == "thermal"]
    assert len(thermal) == pytest.approx(4 * 0.5 * 1000 * 30 / 365, rel=0.35)
    assert all(600 <= e.end_s - e.start_s <= 5400 for e in thermal)
    assert {e.code for e in whole if e.why == "xid"} >= {13, 31, 43}

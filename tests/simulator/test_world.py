"""A world: one seed is one world however it is cut, and what is done to it has consequences."""

from collections import Counter
from math import inf

import msgspec
import numpy as np
import pytest

from fallow.errors import UsageError
from simulator.arrivals import Arrival, read_categories, replace_shares
from simulator.cluster.nodes import build_fleet, build_nodes
from simulator.models import STATES, TICK_S, Block, Holder
from simulator.workload_scripts import SimulatedWorkload, WorkloadPod
from simulator.world import Spec, World
from tests.simulator.switching import switch_off

START = 1_793_577_600.0  # Monday, 2026-11-02
HOUR = 3600.0


def made(gpus: int = 32, seed: int = 3, **spec: object) -> World:
    return World(Spec(nodes=build_fleet(gpus), start_s=START, **spec), seed)  # type: ignore[arg-type]


def only(shares: dict[str, float], nodes: dict[str, int], seed: int = 3, **spec: object) -> World:
    """Return a world in which only these categories are brought, all else left out."""
    mix = tuple(c for c in replace_shares(shares) if c.category in shares)
    there = build_nodes(nodes)
    fields = {"fault_rate": 0.0, "effects": 0.0, **spec}
    return World(Spec(nodes=there, start_s=START, mix=mix, **fields), seed)  # type: ignore[arg-type]


def state(block: Block, name: str) -> int:
    return int((block.state == STATES.index(name)).sum())


def holders(block: Block) -> np.ndarray[tuple[int, int], np.dtype[np.object_]]:
    names = np.array([*(h.uid for h in block.holders), ""], dtype=object)
    return names[block.holder]


def test_one_seed_is_one_world_however_it_is_cut() -> None:
    whole = made().advance(START + 6 * HOUR)
    world = made()
    parts = [world.advance(START + h * HOUR) for h in (0.5, 2, 6)]
    for name in ("sm_active", "power_w", "energy_mj", "state", "stop_harms", "xid"):
        together = np.concatenate([getattr(p, name) for p in parts], axis=1)
        np.testing.assert_array_equal(getattr(whole, name), together, err_msg=name)
    np.testing.assert_array_equal(
        holders(whole), np.concatenate([holders(p) for p in parts], axis=1)
    )
    assert not np.array_equal(whole.sm_active, made(seed=4).advance(START + 6 * HOUR).sm_active)


def test_what_is_held_has_a_state_of_use_and_what_is_not_has_none() -> None:
    block = made().advance(START + 6 * HOUR)
    unheld = {STATES.index(name) for name in ("free", "stranded", "unavailable")}
    unallocated = block.holder < 0
    assert set(np.unique(block.state[unallocated]).tolist()) <= unheld
    assert not set(np.unique(block.state[~unallocated]).tolist()) & {
        STATES.index("free"),
        STATES.index("stranded"),
    }
    assert block.ticks[0] == START
    assert np.all(np.diff(block.ticks) == TICK_S)
    assert not block.stop_harms[unallocated].any()


def test_pods_show_what_devices_they_hold_and_pools_are_about_full() -> None:
    world = made(64)
    world.advance(START + HOUR)
    pods = {p["metadata"]["uid"]: p for p in world.store.list("Pod")}
    for allocation in world.list_allocations(START + HOUR - TICK_S, START + HOUR):
        node = pods[allocation.holder.uid]["spec"]["nodeName"]
        assert {world.devices[d].node for d in allocation.devices} == {node}
    held = sum(
        world.devices[d].weight * t.share
        for t in world.list_allocations(START + HOUR - TICK_S, START + HOUR)
        for d in t.devices
    )
    assert 0.6 * 64 < held <= 64


def test_finished_jobs_end_their_pods_and_are_tidied_away() -> None:
    world = only({"train": 1.0}, {"h100": 1})
    world.advance(START + 12 * HOUR)
    assert len(world.finished) > 3
    early = [key for key, at in world.finished.items() if at < START + 8 * HOUR]
    for kind, space, name in early:
        assert world.store.get(kind, name, space) is None
    done = {t.holder.workload for t in world.cluster.allocations if t.end_s < inf}
    assert {name for _, _, name in early} <= done


def test_a_stopped_notebook_comes_back_at_its_next_use_and_an_abandoned_one_never() -> None:
    world = only({"day-notebook": 0.5, "forgotten": 0.4}, {"h100": 1})
    world.advance(START + 2 * HOUR)  # two in the morning
    book = next(k for k in world.cast.roles if k[0] == "Notebook")
    assert switch_off(world, book)
    assert not switch_off(world, book), "it is off already"
    world.advance(START + 6 * HOUR)
    assert not [p for p in world.store.list("Pod") if p["metadata"]["name"].startswith(book[2])]
    (stop,) = [s for s in world.stops if s.key == book]
    assert (stop.active, stop.idle, stop.lost_gpu_s) == (False, True, 0.0)
    assert stop.back_s is not None
    assert START + 7 * HOUR < stop.back_s < START + 36 * HOUR
    world.advance(START + 36 * HOUR)
    assert [p for p in world.store.list("Pod") if p["metadata"]["name"] == f"{book[2]}-0"]

    server = next(k for k in world.cast.roles if k[0] == "Deployment")
    switch_off(world, server)
    world.advance(START + 48 * HOUR)
    assert world.stops[-1].key == server
    assert world.stops[-1].back_s is None
    assert world.store.get(*server[:1], server[2], server[1])["spec"]["replicas"] == 0  # type: ignore[index]


def test_who_stops_work_in_progress_does_harm_and_its_owner_resumes_it() -> None:
    world = only({"train": 0.4}, {"h100": 2}, seed=5)
    world.advance(START + 2 * HOUR)
    (uid,) = [
        u
        for u, s in world.cast.scripts.items()
        if u
        in {t.holder.uid for t in world.list_allocations(START + 2 * HOUR - 1, START + 2 * HOUR)}
        and s.done_s is not None
        and s.done_s > START + 5 * HOUR
        and s.unsaved_s(START + 2 * HOUR) > 600
    ][:1]
    holder = world.cluster.holder(uid)
    key = (holder.workload_kind, holder.namespace, holder.workload)
    before = world.cast.scripts[uid].unsaved_s(world.now_s)
    switch_off(world, key)
    world.advance(START + 5 * HOUR)
    (stop,) = world.stops
    assert stop.active
    assert stop.lost_gpu_s == pytest.approx(before, abs=TICK_S)
    allocations = [t for t in world.cluster.allocations if t.holder.workload == holder.workload]
    again = [t for t in allocations if t.start_s > stop.at_s]
    assert again, "an hour later its owner has resumed it"
    block = world.advance(START + 6 * HOUR)
    resumed = world.cast.scripts[again[-1].holder.uid]
    assert 0 < resumed.plan.replay_s <= before + 60
    assert block.ticks[0] == START + 5 * HOUR


def test_a_gang_begins_together_and_ends_together_when_a_node_goes() -> None:
    world = only({"pretrain": 1.0}, {"h100": 2, "h100-gke": 2}, seed=1)
    world.advance(START + 3 * HOUR)
    held = world.list_allocations(world.now_s - 1, world.now_s)
    gang = [t for t in held if t.holder.workload == held[0].holder.workload]
    scripts = [world.cast.scripts[t.holder.uid] for t in gang]
    assert len(gang) == 2
    assert len({s.start_s for s in scripts}) == 1
    assert sorted(s.plan.first_rank for s in scripts) == [0, 8]
    node = world.devices[gang[0].devices[0]].node
    world.lose(node, "node-lost", world.now_s + 7200)
    world.advance(START + 4 * HOUR)
    uids = {t.holder.uid for t in gang}
    ended = {t.holder.uid: t.end_s for t in world.cluster.allocations if t.holder.uid in uids}
    assert all(end < START + 3 * HOUR + 60 for end in ended.values()), ended


def test_a_rank_that_waits_for_its_gang_leaves_its_devices_idle() -> None:
    world = only({"pretrain": 1.0}, {"h100": 2}, seed=1)
    world.advance(START + 3 * HOUR)
    held = world.list_allocations(world.now_s - 1, world.now_s)
    lost = world.devices[held[0].devices[0]].node
    world.lose(lost, "node-lost", world.now_s + 2 * HOUR)
    block = world.advance(START + 6 * HOUR)
    rest = [number for number, device in enumerate(world.devices) if device.node != lost]
    hours = {
        name: (block.state[rest] == STATES.index(name)).sum(axis=1) * TICK_S / HOUR
        for name in ("idle", "startup", "productive")
    }
    assert hours["idle"] == pytest.approx(2.0, abs=0.2)
    assert max(hours["startup"]) < 0.2
    assert min(hours["productive"]) > 0.3


@pytest.mark.parametrize(("often", "some"), [(0.0, False), (1000.0, True)])
def test_failures_can_be_switched(often: float, some: bool) -> None:
    block = made(fault_rate=often).advance(START + 12 * HOUR)
    assert bool(state(block, "unavailable")) is some
    if some:
        assert state(block, "lost"), "work was lost with the nodes"


def test_free_devices_are_stranded_only_beside_somebody_who_waits() -> None:
    crowded = only({"pretrain": 1.0}, {"h100": 3}, seed=2)
    block = crowded.advance(START + 6 * HOUR)
    waited = [w for w in crowded.cluster.waits if (w.bound_s or inf) - w.queued_s > 600]
    assert waited, "the second job of 16 GPUs does not fit beside the first"
    assert state(block, "stranded") == 8 * len(block.ticks)
    assert not state(block, "free")
    roomy = only({"train": 0.2}, {"h100": 2})
    assert not state(roomy.advance(START + 6 * HOUR), "stranded")


def test_doors_see_one_look_until_the_world_has_moved() -> None:
    world = made(16)
    first = world.snapshot()
    assert world.snapshot() is first
    assert first.now_s == world.now_s - TICK_S
    world.advance(START + HOUR)
    later = world.snapshot()
    assert later is not first
    running = Counter(p["status"]["phase"] for p in later.objects["Pod"])["Running"]
    assert 0 < len(later.hosts) <= running


def test_a_world_goes_forward_and_tick_by_tick_alone() -> None:
    with pytest.raises(UsageError, match="begin at"):
        World(Spec(nodes=build_fleet(8), start_s=START + 7), 1)
    world = made(8)
    world.advance(START + HOUR)
    for wrong in (START + HOUR, START, START + HOUR + 7):
        with pytest.raises(UsageError, match="cannot go to"):
            world.advance(wrong)
    with pytest.raises(UsageError, match="best-fit"):
        World(msgspec.structs.replace(world.spec, placement="worst"), 1)


def test_a_master_made_again_takes_the_place_of_the_one_before() -> None:
    alone = next(c for c in read_categories() if c.kind == "PyTorchJob" and c.replicas == 1)
    role = SimulatedWorkload(Arrival(0.0, alone, "job", 1, 3600.0))
    role.parts[0] = WorkloadPod("old")
    pod = Holder("new", alone.namespace, "job-master-0", "pytorch", "PyTorchJob", "job", "team")
    assert role.place(pod) == 0

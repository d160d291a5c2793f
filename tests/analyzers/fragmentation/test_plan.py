"""The defragmentation plan: feasible, honest, and as short as exhaustive search finds it."""

import itertools
from collections.abc import Iterator, Sequence

import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from analyzers.fragmentation import exact
from analyzers.fragmentation.placement import (
    WHOLE,
    FreeSlot,
    MovePlan,
    NodeSpace,
    PlacedPod,
    PodRelocation,
    PoolPlacement,
)
from analyzers.fragmentation.planning import plan_moves
from fallow.node_requirements import BlockingTaint

pytestmark = pytest.mark.slow
TAINT = BlockingTaint("dedicated", "", "NoSchedule")


class Books:
    """What is free on each place while moves are tried: an account of its own."""

    def __init__(self, ground: PoolPlacement) -> None:
        self.ground = ground
        self.gpu = [list(p.gpu) for p in ground.places]
        self.cpu = [p.cpu_milli for p in ground.places]

    def arrive(self, pod: PlacedPod, target: int, devices: Sequence[int]) -> bool:
        """Take what a pod needs of what is free; False where it is not."""
        source, place = self.ground.places[pod.place], self.ground.places[target]
        if (
            source.sort != place.sort
            or place.taints - source.taints
            or (pod.zonal and source.zone != place.zone)
        ):
            return False
        if len(set(devices)) != len(pod.devices):
            return False
        for device in devices:
            self.gpu[target][device] -= pod.devices[0][1]
        self.cpu[target] -= pod.cpu_milli
        return self.cpu[target] >= 0 and min(self.gpu[target]) >= 0

    def leave(self, pod: PlacedPod) -> None:
        for device, milli in pod.devices:
            self.gpu[pod.place][device] += milli
        self.cpu[pod.place] += pod.cpu_milli

    def slots(self) -> int:
        need, found = self.ground.slot, 0
        for gpu, cpu in zip(self.gpu, self.cpu, strict=True):
            count = sum(free >= WHOLE for free in gpu) // need.gpus
            found += min(count, cpu // need.cpu_milli) if need.cpu_milli else count
        return found


def slots_after(ground: PoolPlacement, moves: Sequence[PodRelocation]) -> int | None:
    """Return the slots after the moves, None where they cannot all be made at once."""
    books, pods = Books(ground), {t.uid: t for t in ground.tenants}
    if not all(books.arrive(pods[m.uid], m.target, m.devices) for m in moves):
        return None
    for move in moves:
        books.leave(pods[move.uid])
    return books.slots()


def gangs(ground: PoolPlacement) -> dict[str, list[PlacedPod]]:
    found: dict[str, list[PlacedPod]] = {}
    for i, tenant in enumerate(ground.tenants):
        found.setdefault(tenant.group or f"alone {i}", []).append(tenant)
    return found


def within_budgets(ground: PoolPlacement, restarted: Sequence[PlacedPod]) -> bool:
    return all(
        sum(t.budget == name for t in restarted) <= ground.budgets.get(name, 0)
        for name in {t.budget for t in restarted if t.budget}
    )


def ways(ground: PoolPlacement, pod: PlacedPod) -> Iterator[PodRelocation | None]:
    yield None
    for target, place in enumerate(ground.places):
        if target != pod.place:
            for devices in itertools.combinations(range(len(place.gpu)), len(pod.devices)):
                yield PodRelocation(pod.uid, pod.place, target, devices)


def fewest_restarts(ground: PoolPlacement, more: int) -> int | None:
    """Try everything."""
    movable = [g for g in gangs(ground).values() if not any(t.stays for t in g)]
    want = Books(ground).slots() + more
    choices = [c for n in range(len(movable) + 1) for c in itertools.combinations(movable, n)]
    for chosen in sorted(choices, key=lambda c: sum(map(len, c))):
        pods = [t for group in chosen for t in group]
        if not within_budgets(ground, pods):
            continue
        for tried in itertools.product(*(ways(ground, t) for t in pods)):
            after = slots_after(ground, [m for m in tried if m])
            if after is not None and after >= want:
                return len(pods)
    return None


HELD = [((0,), 1000), ((1,), 1000), ((0, 1), 1000), ((0,), 500), ((1,), 300)]


@st.composite
def grounds(draw: st.DrawFn) -> PoolPlacement:
    places, tenants = [], []
    for n in range(draw(st.sampled_from([2, 3, 3]))):
        free, left = [WHOLE] * draw(st.integers(2, 3)), 8
        for k in range(draw(st.integers(1, 2))):
            want = draw(st.sampled_from(HELD))
            devices, milli = want
            if any(free[d] < milli for d in devices):
                continue
            for d in devices:
                free[d] -= milli
            cpu = draw(st.integers(0, 3))
            left -= cpu
            tenants.append(
                PlacedPod(
                    f"{n}-{k}",
                    "",
                    n,
                    tuple((d, milli) for d in devices),
                    cpu,
                    group=draw(st.sampled_from(["", "", "", "gang"])),
                    budget=draw(st.sampled_from(["", "", "", "pdb"])),
                    stays=draw(st.sampled_from([""] * 6 + ["it is protected"])),
                    zonal=draw(st.sampled_from([False, False, True])),
                )
            )
        places.append(
            NodeSpace(
                str(n),
                draw(st.integers(left // 2, left)),
                0,
                tuple(free),
                draw(st.sampled_from(["a"] * 7 + ["b"])),
                draw(st.sampled_from(["z1", "z1", "z2"])),
                draw(st.sampled_from([frozenset()] * 5 + [frozenset({TAINT})])),
            )
        )
    slot = FreeSlot(2, draw(st.sampled_from([0, 0, 4])))
    return PoolPlacement(places, tenants, slot, {"pdb": draw(st.integers(0, 2))})


def check(ground: PoolPlacement, found: MovePlan, more: int) -> None:
    pods = {t.uid: t for t in ground.tenants}
    moved = [pods[m.uid] for m in found.moves]
    assert len({t.uid for t in moved}) == len(moved)
    restarted = [t for g in gangs(ground).values() if any(t in moved for t in g) for t in g]
    assert not any(t.stays for t in restarted)
    assert within_budgets(ground, restarted)
    assert found.restarts == len(restarted)
    after = slots_after(ground, found.moves)
    assert after is not None
    assert after >= Books(ground).slots() + more
    assert len(found.slots) >= more


@settings(max_examples=300)
@given(grounds(), st.integers(1, 2))
def test_a_plan_is_feasible_moves_only_what_may_move_and_is_the_shortest(
    ground: PoolPlacement, more: int
) -> None:
    known = fewest_restarts(ground, more)
    found = plan_moves(ground, more)
    event(f"{known} restarts")
    assert (found is None) == (known is None)
    if found is not None:
        check(ground, found, more)
        assert found.restarts == known == found.fewest


def half_full(nodes: int, **more: object) -> PoolPlacement:
    """Nodes of 8 GPUs, each with two pods of one GPU and CPU to spare."""
    places = [NodeSpace(f"n{n}", 64_000, 0, (0, 0, *[WHOLE] * 6), "pool") for n in range(nodes)]
    tenants = [
        PlacedPod(f"{n}-{k}", "", n, ((k, WHOLE),), 4_000, **more)  # type: ignore[arg-type]
        for n in range(nodes)
        for k in range(2)
    ]
    return PoolPlacement(places, tenants, FreeSlot(8))


def test_a_large_pool_is_planned_greedily_and_proven_by_the_bound() -> None:
    ground = half_full(200)
    found = plan_moves(ground, 5)
    assert found is not None
    check(ground, found, 5)
    assert (found.restarts, found.proven) == (10, True)


@pytest.mark.parametrize("why", ["stays", "budget"])
def test_there_is_no_plan_where_nothing_may_move(why: str) -> None:
    assert plan_moves(half_full(3, **{why: "x"}), 1) is None


def test_the_program_agrees_with_the_greedy_plan_where_that_is_the_shortest() -> None:
    ground = half_full(4)
    found, fewest, _ = exact.solve_moves(ground, 2, ground.movable(), 10)
    assert found is not None
    check(ground, found, 2)
    assert (found.restarts, fewest) == (4, 4)


def test_a_slot_that_lacks_cpu_is_no_slot() -> None:
    ground = half_full(2)
    squatter = PlacedPod("cpu", "", 0, (), 60_000)
    places = [msgspec.structs.replace(p, cpu_milli=20_000) for p in ground.places]
    places[1] = msgspec.structs.replace(places[1], cpu_milli=90_000)
    with_squatter = PoolPlacement(places, [*ground.tenants, squatter], FreeSlot(8, 80_000))
    found = plan_moves(with_squatter, 1)
    assert found is not None
    check(with_squatter, found, 1)
    assert "cpu" in {m.uid for m in found.moves} or found.slots == (1,)

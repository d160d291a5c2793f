"""What people bring: every kind is placed where it belongs, and has a handle that stops it."""

import pytest

from fallow.errors import UsageError
from simulator import switches
from simulator.arrivals import Category, read_categories, replace_shares
from simulator.cluster.nodes import build_fleet, build_nodes
from simulator.supply import fit_mix
from simulator.workload_templates import build_manifest, compute_pod_size
from simulator.world import Spec, World
from tests.simulator.switching import switch_off

START = 1_793_577_600.0
KINDS = sorted({c.kind for c in read_categories()})
POOLS = {
    "h100": 3, "h100-mig": 1, "a100": 2, "a100-mig": 1, "l40s": 2, "l4": 2, "l4-shared": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def world() -> World:
    spec = Spec(
        nodes=build_nodes(POOLS),
        start_s=START,
        mix=replace_shares({"kept": 0.2, "train": 0.0}),
        fault_rate=0.0,
        effects=0.0,
        returns=False,
    )
    made = World(spec, 2)
    made.advance(START + 1800)
    return made


def test_every_kind_holds_devices_of_the_product_it_asks_for(world: World) -> None:
    nodes = {n["metadata"]["name"]: n["metadata"]["labels"] for n in world.store.list("Node")}
    seen = set()
    for allocation in world.list_allocations(START + 1799, START + 1800):
        holder = allocation.holder
        key = (holder.workload_kind, holder.namespace, holder.workload)
        category = world.cast.roles[key].arrival.category
        seen.add(category.kind)
        labels = nodes[world.devices[allocation.devices[0]].node]
        assert labels["nvidia.com/gpu.product"] == category.product
        assert len(allocation.devices) == category.gpus
        gpus = sum(world.devices[d].weight * allocation.share for d in allocation.devices)
        assert gpus == pytest.approx(category.gpus * category.weight, rel=1e-4)
        assert holder.team == category.team
    assert seen == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_handle_that_takes_its_pods_away(world: World, kind: str) -> None:
    held = [t.holder for t in world.list_allocations(world.now_s - 1, world.now_s)]
    holder = next(h for h in held if h.workload_kind == kind)
    key = (kind, holder.namespace, holder.workload)
    assert switch_off(world, key)
    world.advance(world.now_s + 300)
    obj = world.store.get(kind, holder.workload, holder.namespace)
    assert obj is not None
    assert switches.is_off(obj)
    names = {t.holder.workload for t in world.list_allocations(world.now_s - 1, world.now_s)}
    assert holder.workload not in names
    category = world.cast.roles[key].arrival.category
    world.store.patch(kind, holder.workload, holder.namespace, switches.build_on_patch(category))
    world.advance(world.now_s + 600)
    obj = world.store.get(kind, holder.workload, holder.namespace)
    assert obj is not None
    assert not switches.is_off(obj)
    pods = world.store.list("Pod", holder.namespace)
    # It has pods again; whether there is still room for them is another matter.
    assert [p for p in pods if p["metadata"]["name"].startswith(holder.workload)]


def test_pods_have_the_published_shapes_and_slices_their_part() -> None:
    assert [compute_pod_size(n) for n in (1, 2, 4, 8)] == [
        (11400, 48128), (16200, 66560), (32200, 132096), (88000, 327680)
    ]  # fmt: skip
    cpu, memory = compute_pod_size(1, 1 / 7)
    assert (cpu, memory) == (1628, 6875)


def test_a_fleet_gets_work_for_the_devices_it_has() -> None:
    def shares(nodes: dict[str, int]) -> dict[str, float]:
        return {
            c.category: c.share for c in fit_mix(read_categories(), build_nodes(nodes)) if c.share
        }

    small = shares({"h100": 1})
    assert "pretrain" not in small, "sixteen GPUs never fit into eight"
    assert not {c for c in small if _of(c).product != "NVIDIA-H100-80GB-HBM3"}
    assert sum(small.values()) == pytest.approx(0.97, abs=0.03)
    slices = shares({"a100-mig": 1})
    assert set(slices) == {"small-notebook", "unused"}
    assert sum(c.share for c in fit_mix(read_categories(), build_fleet(512))) == pytest.approx(
        0.98, abs=0.03
    )


def _of(name: str) -> Category:
    return next(c for c in read_categories() if c.category == name)


def test_what_nobody_knows_how_to_write_is_refused() -> None:
    import msgspec  # noqa: PLC0415

    from simulator.arrivals import Arrival  # noqa: PLC0415

    strange = msgspec.structs.replace(read_categories()[0], kind="DaemonSet")
    with pytest.raises(UsageError, match="DaemonSet"):
        build_manifest(Arrival(START, strange, "x-1", 1, 60.0))

"""Nodes of the pools: exact in number, and read by our own collector as what they are."""

from collections import Counter
from datetime import UTC, datetime

import msgspec
import pytest

from collectors.kube.devices import Dra
from collectors.kube.nodes import build_node_row
from collectors.kube.shapes import Node
from collectors.prices.card import read_built_in
from fallow.errors import UsageError
from simulator.cluster import nodes, pools
from simulator.cluster.mig import build_layout

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize("gpus", [1, 3, 7, 64, 512, 1000])
def test_a_fleet_has_exactly_the_gpus_asked_for(gpus: int) -> None:
    specs = nodes.build_fleet(gpus)
    assert len({d.uuid for d in nodes.list_devices(specs, seed=7)}) == gpus


def test_the_same_seed_gives_the_same_uuids_and_another_seed_others() -> None:
    specs = nodes.build_fleet(64)
    assert nodes.list_devices(specs, 7) == nodes.list_devices(specs, 7)
    first, second = ({d.uuid for d in nodes.list_devices(specs, s)} for s in (7, 8))
    assert not first & second


@pytest.mark.parametrize("pool", pools.read_pools().values(), ids=lambda p: p.name)
def test_our_collector_reads_each_pool_as_the_table_says(pool: pools.PoolSpec) -> None:
    spec = nodes.SimulatedNode(f"{pool.name}-0", pool)
    body = nodes.build_node_object(spec, NOW.timestamp())
    node = msgspec.convert(body, Node)
    row = build_node_row(node, cluster="c", now=NOW, dra=Dra())
    assert {k: row[k] for k in ("provider", "region", "zone", "instance_type")} == {
        "provider": pool.provider,
        "region": pool.region,
        "zone": pool.zone,
        "instance_type": pool.instance_type,
    }
    assert (row["capacity_type"], row["pool"]) == (pool.capacity_type, pool.name)
    assert (row["gpu_count"], row["gpu_model"]) == (pool.gpu_count, pool.product)
    assert (row["sharing"] == "time-slicing") == (pool.replicas > 1)
    assert (row["sharing"] == "mig") == bool(pool.mig)
    assert row["ready"]
    assert not row["unschedulable"]
    assert row["cpu_milli"] < pool.vcpu * 1000
    assert row["memory_bytes"] < pool.memory_gib * 2**30


def test_a_node_that_the_site_owns_is_of_no_cloud() -> None:
    pool = pools.read_pools()["h100"]
    owned = msgspec.structs.replace(pool, manager="own", provider="own")
    body = nodes.build_node_object(nodes.SimulatedNode("a", owned), NOW.timestamp())
    row = build_node_row(msgspec.convert(body, Node), cluster="c", now=NOW, dra=Dra())
    assert [row[name] for name in ("provider", "capacity_type", "pool")] == [None] * 3
    assert not any("azure" in label for label in body["metadata"]["labels"])


@pytest.mark.parametrize("pool", pools.read_pools().values(), ids=lambda p: p.name)
def test_every_pool_is_of_an_instance_type_of_the_price_catalogue(pool: pools.PoolSpec) -> None:
    offers = {
        (c.provider, c.region, c.instance_type): (
            c.gpu_model,
            c.gpu_count,
            int(c.vcpu),
            int(c.memory_gib),
        )
        for c in read_built_in()
    }
    assert offers[pool.provider, pool.region, pool.instance_type] == (
        pool.gpu_model,
        pool.gpu_count,
        pool.vcpu,
        pool.memory_gib,
    )


def test_the_shares_of_the_pools_make_a_whole() -> None:
    assert sum(p.share for p in pools.read_pools().values()) == pytest.approx(1)


def test_the_plugin_offers_what_the_devices_are() -> None:
    spec = nodes.SimulatedNode("n", pools.read_pools()["h100-mig"])
    found = Counter(d.profile for d in nodes.list_devices([spec], 7))
    assert found == {None: 4, "1g.10gb": 16, "2g.20gb": 1, "3g.40gb": 3}
    assert nodes.count_resources(spec.pool) == {
        "nvidia.com/gpu": 4,
        "nvidia.com/mig-1g.10gb": 16,
        "nvidia.com/mig-2g.20gb": 1,
        "nvidia.com/mig-3g.40gb": 3,
    }


def test_single_strategy_counts_instances_as_gpus() -> None:
    spec = nodes.SimulatedNode("n", pools.read_pools()["a100-mig"])
    body = nodes.build_node_object(spec, 0)
    assert body["status"]["capacity"]["nvidia.com/gpu"] == "56"
    assert body["metadata"]["labels"]["nvidia.com/gpu.count"] == "56"
    assert body["metadata"]["labels"]["nvidia.com/gpu.product"].endswith("-MIG-1g.5gb")


def test_instances_of_a_board_never_weigh_more_than_it() -> None:
    weights: Counter[tuple[str, int]] = Counter()
    for device in nodes.list_devices(nodes.build_fleet(512), 7):
        weights[device.node, device.index] += device.weight  # type: ignore[assignment]
    assert max(weights.values()) <= 1 + 1e-9


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("7x", "no MIG layout: '7x'"),
        ("banana", "like 2x3g.40gb"),
        ("2x4g.40gb", "cannot hold 4g.40gb+4g.40gb"),
        ("1x9g.90gb", "has no MIG profile '9g.90gb'"),
    ],
)
def test_a_layout_that_no_board_can_have_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        build_layout("H100", text)
    assert says in str(caught.value)


def test_an_unknown_pool_names_the_legal_ones() -> None:
    with pytest.raises(UsageError, match=r"no node pool 'b300'.*h100, h100-spot"):
        nodes.build_nodes({"b300": 1})

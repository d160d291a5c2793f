"""What is found in pools: their size, their shape, empty and squatted nodes, stranded GPUs."""

import json
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.pools.analyzer import PoolsAnalyzer
from analyzers.waterfall import build_waterfall
from fallow.models import Finding
from fallow.settings.capacity import PoolsSettings
from tests.analyzers.goldens import agree

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parent / "golden"
Pools = Any
DAY_H100_NODE = Decimal("1320.96")


def found(pools: Pools, **chosen: Any) -> dict[str, Finding]:
    return {
        f.kind: f for f in PoolsAnalyzer(PoolsSettings(**chosen)).find(pools.views, pools.window)
    }


def fill(pools: Pools, given: dict[str, Any]) -> None:
    for node in given["nodes"]:
        pools.node(**node)
    for pod in given["pods"]:
        pools.pod(**{**pod, "hours": tuple(pod.get("hours", (0, 24)))})
    pools.post()
    pools.prices(given.get("prices", ["p5.48xlarge", "p5.4xlarge", "g6.12xlarge", "g6.xlarge"]))


@pytest.mark.parametrize("case", sorted(p.name for p in GOLDEN.iterdir()))
def test_a_site_becomes_its_document(case: str, pools: Pools) -> None:
    fill(pools, json.loads((GOLDEN / case / "site.json").read_text()))
    agree(GOLDEN / case, PoolsAnalyzer().find(pools.views, pools.window))


def test_empty_tables_give_nothing(pools: Pools) -> None:
    assert PoolsAnalyzer().find(pools.views, pools.window) == []
    assert PoolsAnalyzer().unjudged(pools.views, pools.window) == []


def test_a_pool_that_its_peak_fills_is_no_finding(pools: Pools) -> None:
    for n in range(2):
        pools.node(f"n{n}")
        pools.pod(f"p{n}", f"n{n}", gpus=8, cpu_milli=64000)
    pools.post()
    pools.prices()
    assert found(pools) == {}


def test_what_never_ran_together_is_not_added_up(pools: Pools) -> None:
    for n in range(2):
        pools.node(f"n{n}")
        pools.pod(f"p{n}", f"n{n}", (12 * n, 12 * n + 12), gpus=8, cpu_milli=64000)
    pools.post()
    pools.prices()
    advised = found(pools)["oversized_pool"]
    assert advised.usd == DAY_H100_NODE
    assert advised.gpu_hours == 8 * 24
    assert advised.details["same_type"]["nodes"] == 1
    assert advised.details["today"]["nodes"] == 2


@pytest.mark.parametrize(("quantile", "nodes"), [(1.0, 3), (0.9, 2)])
def test_a_pool_may_be_sized_for_most_of_the_time(
    pools: Pools, quantile: float, nodes: int
) -> None:
    for n in range(5):
        pools.node(f"n{n}")
    for n, hours in enumerate([(0, 24), (0, 24), (3, 5)]):
        pools.pod(f"p{n}", f"n{n}", hours, gpus=8, cpu_milli=64000)
    pools.post()
    pools.prices()
    assert found(pools, quantile=quantile)["oversized_pool"].details["same_type"]["nodes"] == nodes


def test_headroom_and_daemonsets_take_their_room(pools: Pools) -> None:
    for n in range(4):
        pools.node(f"n{n}", "g6.12xlarge", pool="l4")
        pools.pod(f"agent-{n}", f"n{n}", cpu_milli=10000, kind="DaemonSet", owner_name="agent",
                  workload="agent")  # fmt: skip
    for n in range(8):
        pools.pod(f"p{n}", f"n{n % 4}", gpus=1, cpu_milli=18000)
    pools.post()
    pools.prices(["g6.12xlarge"])
    assert set(found(pools)) == {"stranded_gpus"}  # 37.81 cores on a node: two pods, not four
    pools.views.engine.execute("DELETE FROM pod WHERE starts_with(pod, 'agent')")
    assert "oversized_pool" not in found(pools, daemon_cpu_milli=0)  # 47.81: two pods still
    pools.views.engine.execute("UPDATE pod SET cpu_request_milli = 11000")
    advised = found(pools, daemon_cpu_milli=0)["oversized_pool"]
    assert advised.details["same_type"]["nodes"] == 2
    assert advised.evidence == "suspected"  # no pod without GPUs is seen
    spare = found(pools, daemon_cpu_milli=0, headroom=0.5)["oversized_pool"]
    assert spare.details["same_type"]["nodes"] == 3


def test_only_types_that_could_run_the_pods_are_advised(pools: Pools) -> None:
    """The arm64, AMD and unpriced types here are all cheaper or newer: none is taken."""
    products = ["NVIDIA-L4", "NVIDIA-T4G", "AMD-Radeon-Pro-V520", "NVIDIA-H200"]
    selector = json.dumps({"fallow.selector": {"nvidia.com/gpu.product": products}})
    pools.node("n0", "g6.12xlarge", pool="l4")
    pools.pod("p0", "n0", gpus=1, cpu_milli=1000, memory_gib=4, annotations=selector)
    pools.pod("web", "n0", cpu_milli=100, memory_gib=1)
    pools.post()
    pools.prices()
    advised = found(pools, daemon_cpu_milli=500)["misshapen_pool"]
    assert [m["instance_type"] for m in advised.details["packed"]["mix"]] == ["g6.xlarge"]
    refused = advised.details["refused_types"]
    assert {"g5g.xlarge", "g5g.metal"} <= set(refused["no price"]) | set(refused["architecture"])
    assert "g4ad.xlarge" in refused["GPU vendor"]
    assert "p5e.48xlarge" in refused["no price"]
    assert "g4dn.xlarge" in refused["GPU model"]
    assert advised.usd == (Decimal("4.6016") - Decimal("0.8048")) * 24


def test_a_gang_is_not_torn_apart_for_smaller_nodes(pools: Pools) -> None:
    for n in range(2):
        pools.node(f"n{n}")
    for rank in range(4):
        pools.pod(f"r{rank}", "n0", gpus=1, kind="PyTorchJob", workload="gang", owner_name="gang")
    pools.post()
    pools.prices()
    advised = found(pools)["oversized_pool"]
    mix = advised.details["packed"]["mix"]
    assert [(m["instance_type"], m["nodes"]) for m in mix] == [("p5.48xlarge", 1)]
    pools.views.engine.execute("UPDATE pod SET workload_kind = 'Deployment', owner_kind = 'x'")
    single = found(pools)["misshapen_pool"].details["packed"]["mix"]
    assert [(m["instance_type"], m["nodes"]) for m in single] == [("p5.4xlarge", 4)]


def test_pods_without_requests_keep_their_gpus_part_of_the_host(pools: Pools) -> None:
    pools.node("n0", "g6.12xlarge", pool="l4")
    pools.pod("p0", "n0", gpus=1, cpu_milli=None)
    pools.pod("web", "n0", cpu_milli=100, memory_gib=1)
    pools.post()
    pools.prices()
    advised = found(pools)
    assert "misshapen_pool" not in advised  # a quarter of 47.81 cores is no g6.xlarge


def test_reserved_and_unpriced_pools_say_what_they_save(pools: Pools) -> None:
    for n in range(3):
        pools.node(f"r{n}", pool="kept", capacity_type="reserved")
        pools.node(f"s{n}", "p5e.48xlarge", pool="spotty")
    pools.pod("a", "r0", gpus=8)
    pools.pod("b", "s0", gpus=8)
    pools.post()
    pools.prices()
    by_pool = {
        f.subject.workload: f
        for f in PoolsAnalyzer().find(pools.views, pools.window)
        if f.kind == "oversized_pool"
    }
    assert by_pool["kept"].recommendations[0].saving == "commitment"
    assert by_pool["spotty"].usd is None
    assert by_pool["spotty"].gpu_hours == 16 * 24
    withheld = {
        u.subject.workload: u.reasons for u in PoolsAnalyzer().unjudged(pools.views, pools.window)
    }
    assert "no price" in withheld["spotty"][0]


@pytest.mark.parametrize(("nodes", "saving"), [(1, "cash"), (2, "commitment"), (3, "commitment")])
def test_a_commitment_of_an_on_demand_type_saves_no_cash_below_what_it_pays(
    pools: Pools, nodes: int, saving: str
) -> None:
    """Two of three nodes are not needed: the bill falls by those that no commitment pays."""
    for n in range(3):
        pools.node(f"n{n}")
    pools.pod("a", "n0", gpus=8)
    pools.post()
    pools.prices()
    commitment = {"source": "commitment x", "term": "reserved", "node_usd_h": Decimal(40)}
    pools.prices(["p5.48xlarge"], **commitment, nodes=nodes)
    [finding] = [
        f for f in PoolsAnalyzer().find(pools.views, pools.window) if f.kind == "oversized_pool"
    ]
    assert finding.recommendations[0].saving == saving


def test_waiting_pods_turn_cash_into_capacity(pools: Pools) -> None:
    for n in range(3):
        pools.node(f"n{n}")
    pools.pod("p0", "n0", gpus=8)
    pools.post()
    pools.prices()
    assert found(pools)["oversized_pool"].recommendations[0].saving == "cash"
    pools.pod("waits", None, gpus=16, phase="Pending")
    advice = found(pools)["oversized_pool"].recommendations[0]
    assert advice.saving == "capacity"
    assert "pods for 16 GPUs wait" in (advice.caution or "")


def test_a_pool_of_two_models_is_to_be_parted(pools: Pools) -> None:
    pools.node("n0", "p5.4xlarge", pool="any")
    pools.node("n1", "g4dn.xlarge", pool="any")
    for n in range(2):
        pools.pod(f"p{n}", f"n{n}", gpus=1, cpu_milli=1000, memory_gib=4, workload="either")
    pools.post()
    pools.prices()
    mixed = found(pools)["mixed_pool"]
    assert mixed.usd is None
    assert mixed.gpu_hours == 0
    assert mixed.details["workloads_on_several"] == ["Deployment/ns/either"]
    assert [m["taints"][0]["value"] for m in mixed.details["manifest"]] == [
        "NVIDIA-H100-80GB-HBM3",
        "Tesla-T4",
    ]


HELD = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 23), st.integers(1, 24),
        st.sampled_from([0, 0.5, 1, 2, 4]), st.integers(0, 12),
    ),
    max_size=12,
)  # fmt: skip


@pytest.mark.slow
def test_savings_never_exceed_the_bill_and_are_the_same_again(pools: Pools) -> None:
    for n in range(4):
        pools.node(f"n{n}", "g6.12xlarge" if n % 2 else "g6.xlarge", pool=f"pool-{n // 2}")
    analyzer = PoolsAnalyzer(PoolsSettings(min_saving=0))

    @settings(max_examples=10)
    @given(HELD, st.booleans())
    def check(held: list[tuple[int, int, int, float, int]], priced: bool) -> None:
        pools.empty("pod", "ledger", "rate")
        room = {f"n{n}": [4.0 if n % 2 else 1.0] * 24 for n in range(4)}
        for number, (n, begin, length, gpus, cpu) in enumerate(held):
            end = min(begin + length, 24)
            if all(room[f"n{n}"][h] >= gpus for h in range(begin, end)):
                for hour in range(begin, end):
                    room[f"n{n}"][hour] -= gpus
                pools.pod(f"p{number}", f"n{n}", (begin, end), gpus=gpus, cpu_milli=cpu * 250,
                          memory_gib=1)  # fmt: skip
        pools.post()
        if priced:
            pools.prices()
        made = analyzer.find(pools.views, pools.window)
        assert made == analyzer.find(pools.views, pools.window)
        bill = build_waterfall(pools.views, pools.window, made)
        wanted = "SELECT pool, sum(usd) FROM ledger GROUP BY 1"
        bills = dict(pools.views.engine.execute(wanted).fetchall())
        for finding in made:
            assert finding.usd is None or 0 <= finding.usd <= bills[finding.subject.workload]
            if "bound" in finding.details and "usd_per_hour" in finding.details["bound"]:
                packed = finding.details["packed"]["usd_per_hour"]
                assert finding.details["bound"]["usd_per_hour"] <= packed
                assert packed <= finding.details["today"]["usd_per_hour"]
        saved = bill.saved()
        assert (saved.usd or 0) <= (bill.bill.usd or 0)
        assert saved.gpu_hours <= bill.bill.gpu_hours + 1e-6

    check()


def test_pods_that_began_one_after_another_are_held_together(pools: Pools) -> None:
    for n in range(4):
        pools.node(f"n{n}")
    for n, begin in enumerate((0, 2, 4)):
        pools.pod(f"p{n}", f"n{n}", (begin, 24), gpus=8, cpu_milli=64000)
    pools.post()
    pools.prices()
    advised = found(pools)["oversized_pool"]
    assert advised.details["demand"]["gpus"] == 24
    assert advised.details["same_type"]["nodes"] == 3


def test_gpus_that_the_ledger_says_are_held_are_not_given_back(pools: Pools) -> None:
    """The inventory lacks the pods of n1, which held its GPUs for half a day."""
    for n in range(2):
        pools.node(f"n{n}")
    pools.pod("p0", "n0", gpus=8, cpu_milli=64000)
    pools.held["n1"].append((0, 12, 8.0))
    pools.post()
    pools.prices()
    made = found(pools)
    assert made["empty_nodes"].gpu_hours == 8 * 12
    assert made["empty_nodes"].usd == DAY_H100_NODE / 2
    for finding in made.values():
        claims = finding.recommendations[0].claims
        assert sum(c.gpu_hours for c in claims if c.state == "free") == 8 * 12


def test_short_gaps_are_the_autoscalers_own(pools: Pools) -> None:
    pools.node("n0")
    pools.pod("a", "n0", (0, 10), gpus=8)
    pools.pod("b", "n0", (10.25, 24), gpus=8)
    pools.pod("web", "n0", (0, 24), cpu_milli=100)
    pools.post()
    pools.prices()
    assert found(pools) == {}
    shorter = found(pools, empty_after=timedelta(minutes=10))
    assert shorter["cpu_squatters"].gpu_hours == pytest.approx(2)


def half_full(pools: Pools, waiting: int, **pods: Any) -> None:
    """Each of four nodes holds one pod of four GPUs; jobs of eight wait for 20 hours."""
    for n in range(4):
        pools.node(f"n{n}")
        pools.pod(f"p{n}", f"n{n}", gpus=4, cpu_milli=64000)
    for k in range(waiting):
        pools.pod(
            f"big-{k}", None, (4, 24), kind="Job",
            **{"gpus": 8, "phase": "Pending", "cpu_milli": 64000, **pods},
        )  # fmt: skip
    pools.post()
    pools.prices()


@pytest.mark.parametrize(("waiting", "nodes"), [(0, 2), (1, 3), (2, None), (4, None)])
def test_no_pool_scales_in_below_what_waits(pools: Pools, waiting: int, nodes: int | None) -> None:
    """Two nodes hold what runs, and each job that waits needs one more."""
    half_full(pools, waiting)
    advised = found(pools, quantile=0.5).get("oversized_pool")
    assert (advised and advised.details["same_type"]["nodes"]) == nodes
    assert "misshapen_pool" not in found(pools)


@pytest.mark.parametrize(
    "pods",
    [{"labels": '{"gpu_spec": "A100"}'}, {"cpu_milli": 192_000}, {"gpus": 9}, {"phase": "Failed"}],
    ids=["model", "CPU", "GPUs", "ended"],
)
def test_what_could_not_run_in_a_pool_does_not_keep_it(pools: Pools, pods: dict[str, Any]) -> None:
    half_full(pools, 4, **pods)
    assert found(pools)["oversized_pool"].details["same_type"]["nodes"] == 2


@pytest.mark.parametrize(("waiting", "hours"), [(0, 48 * 8), (1, 24 * 8), (2, None)])
def test_empty_nodes_stay_for_what_waits(pools: Pools, waiting: int, hours: float | None) -> None:
    for n in range(3):
        pools.node(f"n{n}")
    pools.pod("p0", "n0", gpus=8)
    for k in range(waiting):
        pools.pod(f"big-{k}", None, (23, 24), gpus=8, phase="Pending")
    pools.post()
    pools.prices()
    empty = found(pools).get("empty_nodes")
    assert (empty and empty.gpu_hours) == hours

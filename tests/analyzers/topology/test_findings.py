"""Which jobs lie too wide: for their size, for what was free, and only while they talk."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzers.topology.analyzer import TopologyAnalyzer
from analyzers.topology.spread import GangNode, compare_spread, find_blocks
from analyzers.waterfall import build_waterfall
from fallow.errors import SettingsError
from fallow.models import Finding
from fallow.settings import load
from fallow.settings.workloads import TopologySettings
from tests.analyzers.goldens import agree
from tests.analyzers.hourly import Hours

GOLDEN = Path(__file__).parent / "golden"
TALK = {"net_rx_bps": 5e9, "net_tx_bps": 5e9}
NVLINK = 450.0


def found(hours: Hours, **chosen: Any) -> dict[str, Finding]:
    analyzer = TopologyAnalyzer(TopologySettings(**chosen))
    return {f.subject.workload: f for f in analyzer.find(hours.views, hours.window)}


def held(hours: Hours) -> dict[str, str]:
    rows = TopologyAnalyzer().unjudged(hours.views, hours.window)
    return {u.subject.workload: u.reasons[0] for u in rows}


@pytest.mark.parametrize("case", sorted(p.name for p in GOLDEN.iterdir()))
def test_a_site_becomes_its_document(case: str, hours: Hours) -> None:
    site = json.loads((GOLDEN / case / "site.json").read_text())
    for room in site["rooms"]:
        hours.room(**room)
    for workload in site["workloads"]:
        hours.workload(**workload)
    agree(GOLDEN / case, TopologyAnalyzer().find(hours.views, hours.window))


def test_empty_tables_give_nothing(hours: Hours) -> None:
    assert TopologyAnalyzer().find(hours.views, hours.window) == []
    assert TopologyAnalyzer().unjudged(hours.views, hours.window) == []


def test_a_job_on_two_nodes_that_fits_on_one_waits_for_the_network(hours: Hours) -> None:
    hours.room("n0", 7)
    hours.room("n1", 7)
    hours.workload("w", [{}] * 2, gpus_per_pod=1, nodes=["n0", "n1"], host=TALK)
    wide = found(hours)["w"]
    assert wide.evidence == "confirmed"
    assert wide.details["spread"]["node"] == {"used": 2, "needed": 1}
    # 10 of 100 GB/s are busy; inside a node they would move at 450.
    assert wide.gpu_hours == pytest.approx(96 * 0.1 * (1 - 100 / NVLINK), abs=1e-5)


def test_another_pool_is_no_nearer_place(hours: Hours) -> None:
    hours.room("n0", 0)
    hours.room("n1", 0)
    hours.room("n2", 8, pool="other")
    hours.workload("w", [{}] * 4, gpus_per_pod=2, nodes=["n0", "n1"], host=TALK)
    assert found(hours) == {}
    hours.views.engine.execute("UPDATE node SET pool = 'p'")
    assert set(found(hours)) == {"w"}


def test_a_job_that_found_no_nearer_place_is_not_to_blame(hours: Hours) -> None:
    hours.room("n0", 0)
    hours.room("n1", 0)
    hours.workload("others", [{}] * 2, gpus_per_pod=1, nodes=["n0", "n1"], kind="Deployment")
    hours.workload("w", [{}] * 2, gpus_per_pod=1, nodes=["n0", "n1"], host=TALK)
    assert found(hours) == {}
    assert "no narrower place" in held(hours)["w"]
    hours.views.engine.execute("UPDATE allocation SET start = start + INTERVAL 1 HOUR "
                               "WHERE workload = 'others'")  # fmt: skip
    assert set(found(hours)) == {"w"}


@pytest.mark.parametrize(
    ("host", "shown", "evidence", "reason"),
    [
        (TALK, {}, "confirmed", None),
        ({"net_rx_bps": 1e4, "net_tx_bps": 1e4}, {"pcie_bps_max": 9e9}, None, None),
        (None, {"pcie_bps_max": 9e9}, "suspected", None),
        (None, {"pcie_bps_max": 1e6}, None, None),
        (None, {"pcie_bps_max": None}, None, "is not measured"),
    ],
)
def test_what_does_not_talk_may_lie_as_wide_as_it_likes(
    hours: Hours,
    host: dict[str, float] | None,
    shown: dict[str, Any],
    evidence: str | None,
    reason: str | None,
) -> None:
    hours.room("n0", 7)
    hours.room("n1", 7)
    hours.workload("w", [shown] * 2, gpus_per_pod=1, nodes=["n0", "n1"], host=host)
    wide = found(hours).get("w")
    assert (wide.evidence if wide else None) == evidence
    assert (reason or "") in held(hours).get("w", "")
    assert ("w" in held(hours)) == (reason is not None)


def test_replicas_and_jobs_that_need_their_nodes_are_left_alone(hours: Hours) -> None:
    for node in ("n0", "n1"):
        hours.room(node, 7)
    hours.workload("svc", [{}] * 2, gpus_per_pod=1, nodes=["n0", "n1"], kind="Deployment",
                   host=TALK)  # fmt: skip
    hours.workload("big", [{}] * 16, gpus_per_pod=8, nodes=["m0", "m1"], host=TALK)
    assert found(hours) == {}


@pytest.mark.parametrize(
    ("labels", "zone", "names"),
    [
        ("{}", None, ["node"]),
        (None, "z", ["zone", "node"]),
        ('{"topology.k8s.aws/network-node-layer-2": "b"}', "z", ["zone", "block", "node"]),
        (
            '{"network.topology.nvidia.com/spine": "b", "topology.kubernetes.io/rack": "r", '  # noqa: ISC004
            '"nvidia.com/gpu.clique": "k"}',
            "z",
            ["zone", "block", "rack", "domain", "node"],
        ),
    ],
)
def test_levels_are_those_that_labels_name(
    labels: str | None, zone: str | None, names: list[str]
) -> None:
    assert list(find_blocks("n", zone, labels)) == names


def test_a_bad_threshold_names_its_range() -> None:
    with pytest.raises(SettingsError, match="greater than 0"):
        load(environ={}, flags={"topology.score": 0})


nodes = st.lists(
    st.tuples(st.integers(0, 8), st.sampled_from("ab"), st.sampled_from("xyz")),
    min_size=1, max_size=8,
)  # fmt: skip


@given(site=nodes, data=st.data())
def test_the_nearest_place_is_never_farther_than_the_one_it_has(
    site: list[tuple[int, str, str]], data: st.DataObject
) -> None:
    rack = "topology.kubernetes.io/rack"
    places = [
        GangNode(f"n{n}", gpus, find_blocks(f"n{n}", zone, json.dumps({rack: name})))
        for n, (gpus, zone, name) in enumerate(site)
    ]
    takes = [data.draw(st.integers(0, place.gpus)) for place in places]
    used = [
        GangNode(place.node, take, place.blocks)
        for place, take in zip(places, takes, strict=True) if take
    ]  # fmt: skip
    if not used:
        return
    lies = compare_spread(used, places, "H100")
    assert 0 < lies.score <= 1
    for name, count in lies.used.items():
        assert 1 <= lies.needed[name] <= count
    whole = [place for place in places if place.gpus >= sum(takes)]
    assert (lies.needed["node"] == 1) == bool(whole or len(used) == 1)


def test_a_flooded_link_costs_all_that_a_nearer_place_would_spare(hours: Hours) -> None:
    hours.room("n0", 7, zone="a")
    hours.room("n1", 7, zone="b")
    flood = {"net_rx_bps": 1e12, "net_tx_bps": 1e12}
    hours.workload("w", [{}] * 2, gpus_per_pod=1, nodes=["n0", "n1"], host=flood)
    made = TopologyAnalyzer().find(hours.views, hours.window)
    assert made[0].gpu_hours == pytest.approx(96 * (1 - 5 / NVLINK), abs=1e-5)


jobs = st.lists(
    st.fixed_dictionaries(
        {
            "pods": st.integers(2, 4),
            "gpus": st.sampled_from([1, 2]),
            "nodes": st.lists(st.integers(0, 3), min_size=2, max_size=4, unique=True),
            "begin": st.integers(0, 24),
            "rate": st.sampled_from([0.0, 1e9, 3e10, 1e12]),
            "heard": st.booleans(),
            "priced": st.booleans(),
        }
    ),
    min_size=1,
    max_size=3,
)


@pytest.mark.slow
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(jobs, st.lists(st.sampled_from("ab"), min_size=4, max_size=4))
def test_what_is_saved_never_exceeds_the_bill(
    views: Any, wanted: list[dict[str, Any]], zones: list[str]
) -> None:
    for table in ("node", "device", "allocation", "rollup_1h", "ledger", "pod", "pod_sample"):
        views.engine.execute(f"DELETE FROM {table}")
    hours = Hours(views)
    for n, zone in enumerate(zones):
        hours.room(f"n{n}", 4, zone=zone)
    for number, job in enumerate(wanted):
        result = {"net_rx_bps": job["rate"], "net_tx_bps": job["rate"]}
        hours.workload(
            f"w{number}",
            [{"pcie_bps_max": job["rate"]}] * (job["pods"] * job["gpus"]),
            gpus_per_pod=job["gpus"],
            nodes=[f"n{n}" for n in job["nodes"]],
            hours=(job["begin"], 48),
            host=result if job["heard"] else None,
            priced=job["priced"],
        )
    analyzer = TopologyAnalyzer(TopologySettings(least_gpu_hours=0, talk_gbs=1e-6))
    made = analyzer.find(views, hours.window)
    assert made == analyzer.find(views, hours.window)
    held = "SELECT workload, sum(gpu_seconds) / 3600, sum(usd) FROM ledger GROUP BY 1"
    bills = {name: (h, usd) for name, h, usd in views.engine.execute(held).fetchall()}
    for finding in made:
        gpu_hours, usd = bills[finding.subject.workload]
        assert 0 < finding.gpu_hours <= gpu_hours
        assert finding.usd is None or 0 <= finding.usd <= usd
        assert (finding.usd is None) == (usd is None)
        assert 0 < finding.details["share"] < 1
    apportioned_usd = build_waterfall(views, hours.window, made)
    saved, bill = apportioned_usd.bounded(), apportioned_usd.bill
    assert saved.gpu_hours <= bill.gpu_hours
    assert (saved.usd or 0) <= (bill.usd or 0)
    assert (saved.gpu_hours > 0) == bool(made)

"""What a fleet with telemetry loses: hours, dollars, causers, advice; and what is withheld."""

import json
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzers.fragmentation.analyzer import FragmentationAnalyzer
from analyzers.waterfall import build_waterfall
from fallow.settings.capacity import FragmentationSettings
from fallow.window import Window
from tests.analyzers.fragmentation.conftest import WINDOW
from tests.analyzers.goldens import agree

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parent / "golden"
END = WINDOW.end.replace(tzinfo=None)
LAST = END - timedelta(minutes=5)
OWN_MIX = FragmentationSettings(least_pods=1, min_gpus=0.1)
Fleet = Any


def two_half_full_nodes(fleet: Fleet, **pods: Any) -> None:
    """Jobs of 8 GPUs come; two nodes of 8 have 4 pods of one GPU each."""
    for n in range(2):
        fleet.node(f"n{n}")
        for k in range(4):
            fleet.pod(f"p{n}{k}", f"n{n}", [k], **pods)
    for k in range(8):
        fleet.pod(f"big-{k}", None, list(range(8)), cpu_request_milli=40_000)


@pytest.mark.parametrize("case", ["two_half_full_nodes", "cpu_squatter"])
def test_a_fleet_becomes_its_document(case: str, fleet: Fleet, window: Window) -> None:
    if case == "two_half_full_nodes":
        two_half_full_nodes(fleet)
    else:
        fleet.node("n0")
        for k in range(4):
            fleet.pod(f"p{k}", "n0", [k])
        fleet.pod("etl", "n0", cpu_request_milli=50_000)
    fleet.post()
    found = FragmentationAnalyzer(OWN_MIX).find(fleet.views, window)
    agree(GOLDEN / case, found)


def test_the_plan_frees_a_whole_node_with_the_fewest_moves(fleet: Fleet, window: Window) -> None:
    two_half_full_nodes(fleet)
    fleet.post()
    (found,) = FragmentationAnalyzer(OWN_MIX).find(fleet.views, window)
    plan = found.details["plan"]
    assert (plan["slots_freed"], len(plan["moves"]), plan["proven_fewest"]) == (1, 4, True)
    assert {(m["from"], m["to"]) for m in plan["moves"]} == {("n0", "n1")}
    assert found.details["unusable_gpus"] == plan["usable_gpus_gained"] == 8
    assert found.recommendations[0].verb == "defragment"


@pytest.mark.parametrize(("held", "verbs"), [(4, ["place new pods on fuller nodes"]), (5, [])])
def test_packing_is_advised_where_the_whole_pool_has_room_for_a_job(
    fleet: Fleet, window: Window, held: int, verbs: list[str]
) -> None:
    """Eight GPUs are free on two nodes, or six: jobs of 8 fit only where pods stand together."""
    for n in range(2):
        fleet.node(f"n{n}")
        for k in range(held):
            fleet.pod(f"p{n}{k}", f"n{n}", [k], kind="Notebook")
    for k in range(8):
        fleet.pod(f"big-{k}", None, list(range(8)), cpu_request_milli=40_000)
    fleet.post()
    (found,) = FragmentationAnalyzer(OWN_MIX).find(fleet.views, window)
    assert [advice.verb for advice in found.recommendations if advice.claims] == verbs


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        ({"kind": "PyTorchJob"}, "PyTorchJob"),
        ({"kind": None}, "its owner could not be resolved"),
        ({"annotations": '{"karpenter.sh/do-not-disrupt": "true"}'}, "an annotation protects it"),
        ({"annotations": '{"fallow.local-volumes": ["scratch"]}'}, "it keeps data on its node"),
        ({"owner_kind": "DaemonSet"}, "it belongs to its node"),
        ({"kind": "Tractor"}, "Tractor"),
        ({"constraints": '{"ports": ["80/TCP"]}'}, "it takes a port of its node"),
        ({"constraints": '{"spread": [{}]}'}, "it is spread over parts of the cluster"),
        ({"constraints": '{"beside": [{}]}'}, "it must stand beside other pods"),
        (
            {"constraints": '{"apart": [{"selector": {"matchLabels": {"no": "such"}}}]}'},
            "it must stand apart from other pods",
        ),
    ],
)
def test_pods_that_may_not_move_stay_and_the_finding_says_why(
    fleet: Fleet, window: Window, pods: dict[str, Any], why: str
) -> None:
    two_half_full_nodes(fleet, **pods)
    (found,) = FragmentationAnalyzer(OWN_MIX).find(fleet.views, window)
    plan = found.details["plan"]
    assert (plan["moves"], plan["pods_that_stay"]) == ([], {why: 8})


WEB = '{"app": "web"}'


def budgeted(fleet: Fleet, window: Window, **budgets: int) -> None:
    rows = [
        {
            "cluster": "c", "namespace": "ns", "name": name, "max_unavailable": "1",
            "disruptions_allowed": allowed, "last_seen": window.end.replace(tzinfo=None),
            "selector": f'{{"matchLabels": {WEB}}}',
        }
        for name, allowed in budgets.items()
    ]  # fmt: skip
    fleet.views.rows("disruption_budget", rows)


@pytest.mark.parametrize(
    ("budgets", "moves", "stays"),
    [
        ({"b": 4}, 4, {}),
        ({"b": 3}, 0, {}),
        ({"b": 0}, 0, {"its disruption budget allows no eviction now": 8}),
        ({"a": 9, "b": 9}, 0, {"several disruption budgets cover it": 8}),
    ],
)
def test_a_plan_keeps_the_disruption_budgets(
    fleet: Fleet, window: Window, budgets: dict[str, int], moves: int, stays: dict[str, int]
) -> None:
    two_half_full_nodes(fleet, labels=WEB)
    budgeted(fleet, window, **budgets)
    (found,) = FragmentationAnalyzer(OWN_MIX).find(fleet.views, window)
    plan = found.details["plan"]
    assert (len(plan["moves"]), plan["pods_that_stay"]) == (moves, stays)
    assert plan["disruption_budgets"] == "kept"


@pytest.mark.parametrize(
    ("term", "stay"),
    [
        ({}, True),
        ({"namespaces": ["ns"]}, True),
        ({"namespaces": ["*"]}, True),
        ({"namespaces": ["other"]}, False),
    ],
)
def test_a_pod_that_another_keeps_its_distance_from_stays(
    fleet: Fleet, window: Window, term: dict[str, Any], stay: bool
) -> None:
    two_half_full_nodes(fleet, labels=WEB)
    apart = {"selector": {"matchLabels": {"app": "web"}}, "topology": "zone", **term}
    rules = json.dumps({"apart": [apart]})
    fleet.pod("shy", "n0", constraints=rules, cpu_request_milli=0, memory_request_bytes=0)
    (found,) = FragmentationAnalyzer(OWN_MIX).find(fleet.views, window)
    plan = found.details["plan"]
    assert plan["pods_that_stay"] == ({"other pods must stand apart from it": 8} if stay else {})
    assert len(plan["moves"]) == (0 if stay else 4)


@pytest.mark.parametrize(
    ("node", "pods"),
    [
        ({"taints": '[{"key": "team", "value": "a", "effect": "NoSchedule"}]'}, {}),
        ({"pool": "other"}, {}),
        ({"labels": '{"tier": "b"}'}, {"annotations": '{"fallow.selector": {"tier": ["a"]}}'}),
        ({"zone": "z2"}, {"annotations": '{"fallow.pvcs": ["home"]}', "zone": "z1"}),
        ({"unschedulable": True}, {}),
        ({"cpu_milli": 9_000}, {}),
    ],
    ids=["taint", "pool", "selector", "zone of a volume", "cordoned", "CPU"],
)
def test_no_pod_is_sent_where_it_may_not_run(
    fleet: Fleet, window: Window, node: dict[str, Any], pods: dict[str, Any]
) -> None:
    zone = pods.pop("zone", "")
    fleet.node("n0", zone=zone, labels='{"tier": "a"}')
    fleet.node("n1", **node)
    fleet.pod("p", "n0", [0], **pods)
    for k in range(8):
        fleet.pod(f"big-{k}", None, list(range(8)))
    slots = FragmentationSettings(least_pods=1, min_gpus=0, slots=2)
    found = FragmentationAnalyzer(slots).find(fleet.views, window)
    assert found
    assert not any(f.details["plan"]["moves"] for f in found)


def test_hours_and_dollars_are_the_lost_part_of_the_free_ones(fleet: Fleet, window: Window) -> None:
    fleet.node("n0")
    fleet.pod("p", "n0", [0, 1, 2, 3], hours=(0, 12))
    fleet.pod("big", None, list(range(8)))
    fleet.post()
    (found,) = FragmentationAnalyzer(OWN_MIX).find(fleet.views, window)
    # A job of 8 GPUs waits all day: 4 free ones are lost to it for 12 hours, 8 to nobody for 12.
    assert found.details["fragmented_gpus"] == 0
    assert "could not use 2.0 idle GPUs; at its end there are none" in found.details["why"]
    assert found.gpu_hours == pytest.approx(4 * 12)
    assert found.usd == pytest.approx(Decimal(96))


def test_without_a_price_there_are_hours_and_no_dollars(fleet: Fleet, window: Window) -> None:
    two_half_full_nodes(fleet)
    fleet.post(None)
    (found,) = FragmentationAnalyzer(OWN_MIX).find(fleet.views, window)
    assert found.gpu_hours > 0
    assert found.usd is None


def test_gpus_that_nobody_looks_at_are_unknown_and_never_idle(fleet: Fleet, window: Window) -> None:
    fleet.node("n0")
    fleet.node("n1", looked_at=False)
    analyzer = FragmentationAnalyzer()
    assert analyzer.summary(fleet.views, window)["idle_gpus"] == 8
    reasons = [r for u in analyzer.unjudged(fleet.views, window) for r in u.reasons]
    assert reasons == [
        "8 GPUs of the inventory have no telemetry: whether they are free is unknown",
        "only 0 pods were seen: another fleet's mix is assumed",
    ]


def test_an_empty_warehouse_has_no_findings(views: Any, window: Window) -> None:
    analyzer = FragmentationAnalyzer()
    assert analyzer.find(views, window) == []
    assert analyzer.summary(views, window)["fragmented_gpus"] == 0
    assert analyzer.unjudged(views, window) == []


def _cut_badly(fleet: Fleet) -> list[str]:
    """Cut two boards of a node into what nobody asks for; return the instances."""
    fleet.node("n0", looked_at=False)
    for b in range(2):
        for k, profile in enumerate(["4g.40gb", "1g.10gb"]):
            name = f"GPU-{b}/gi{k}"
            fleet.device(name, "n0", parent=f"GPU-{b}", profile=profile, weight=0.5)
    fleet.pod("asks", None, [0], gpu_resource="nvidia.com/mig-3g.40gb")
    return [f"GPU-{b}/gi{k}" for b in range(2) for k in range(2)]


def _held(fleet: Fleet, device: str) -> None:
    row = {"cluster": "c", "device": device, "pod_uid": "small", "namespace": "ns"}
    times = {"start": END - timedelta(hours=24), "end": END, "share": 1.0}
    fleet.views.rows("allocation", [{**row, **times}])


def test_a_board_cut_badly_strands_slices_and_the_layout_that_would_not_is_named(
    fleet: Fleet, window: Window
) -> None:
    _cut_badly(fleet)
    found = FragmentationAnalyzer(OWN_MIX).find(fleet.views, window)
    (one,) = [f for f in found if f.kind == "mig_slices"]
    assert one.details["fragmented_gpus"] == 2
    assert one.details["fragmented_gpus_cut_again"] == 0
    assert one.details["layouts"][0]["cut_again"] == ["3g.40gb", "3g.40gb"]
    assert one.recommendations[0].verb == "cut-again"
    (node,) = one.recommendations[0].parameters["nodes"]
    assert node == {"node": "n0", "mig_config": "all-3g.40gb", "processes": None}


@pytest.mark.parametrize(
    ("counts", "told"),
    [([0, 0, 0, 0], 0), ([0, 2, 0, 1], 3), ([0, 0, 0, None], None), ([0, 0, 0], None)],
    ids=["none", "some", "one does not say", "one is not seen"],
)
def test_processes_of_a_node_are_known_only_where_every_device_says(
    fleet: Fleet, window: Window, counts: list[int | None], told: int | None
) -> None:
    devices = _cut_badly(fleet)
    empty = {"cluster": "c", "bucket": LAST, "namespace": "", "pod": ""}
    rows = [
        {**empty, "device": d, "proc_count_max": n} for d, n in zip(devices, counts, strict=False)
    ]
    fleet.views.rows("rollup_5m", rows)
    found = FragmentationAnalyzer(OWN_MIX).find(fleet.views, window)
    (one,) = [f for f in found if f.kind == "mig_slices"]
    (node,) = one.recommendations[0].parameters["nodes"]
    assert node["processes"] == told


def test_a_node_with_a_board_in_use_is_not_cut_as_a_whole(fleet: Fleet, window: Window) -> None:
    devices = _cut_badly(fleet)
    _held(fleet, devices[1])
    found = FragmentationAnalyzer(OWN_MIX).find(fleet.views, window)
    (one,) = [f for f in found if f.kind == "mig_slices"]
    assert one.recommendations[0].verb == "cut-again"
    assert one.recommendations[0].parameters == {}


pods = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sets(st.integers(0, 7), min_size=1, max_size=8),
        st.sampled_from([1.0, 0.5]),
        st.integers(0, 23),
        st.integers(1, 24),
    ),
    max_size=8,
)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pods)
def test_what_is_found_and_claimed_never_exceeds_what_was_free(
    make_fleet: Callable[[], Fleet], window: Window, held: list[Any]
) -> None:
    fleet = make_fleet()
    for n in range(3):
        fleet.node(f"n{n}")
    busy: set[tuple[int, int]] = set()
    for i, (n, devices, share, start, length) in enumerate(held):
        if any((n, d) in busy for d in devices):
            continue
        busy |= {(n, d) for d in devices}
        hours = start, min(24, start + length)
        fleet.pod(f"p{i}", f"n{n}", sorted(devices), share=share, hours=hours)
    fleet.post()
    analyzer = FragmentationAnalyzer(FragmentationSettings(least_pods=1, min_gpus=0))
    found = analyzer.find(fleet.views, window)
    assert found == analyzer.find(fleet.views, window)
    free = fleet.views.query("SELECT sum(gpu_seconds) / 3600 AS h, sum(usd) AS usd FROM ledger")
    assert sum(f.gpu_hours for f in found) <= (free["h"][0].as_py() or 0) + 1e-6
    assert sum(f.usd or 0 for f in found) <= (free["usd"][0].as_py() or 0)
    for one in found:
        answer = one.details
        assert sum(answer["by_cause"].values()) == pytest.approx(
            answer["fragmented_gpus"], abs=1e-5
        )
        assert answer["unusable_gpus"] <= answer["idle_gpus"] + 1e-6
    steps = build_waterfall(fleet.views, window, found)
    assert sum(s.marginal.gpu_hours for s in steps.steps) <= steps.bill.gpu_hours + 1e-6


def four_nodes_half_full(fleet: Fleet, waiting: int = 4, **pods: Any) -> None:
    """Each of four nodes holds one pod of four GPUs; jobs of eight wait for 20 hours."""
    for n in range(4):
        fleet.node(f"n{n}")
        fleet.pod(f"p{n}", f"n{n}", [0, 1, 2, 3])
    for k in range(waiting):
        fleet.pod(f"big-{k}", None, list(range(8)), hours=(4, 24), kind="Job", **pods)


def test_what_waits_decides_what_is_stranded_from_the_first_pod_on(
    fleet: Fleet, window: Window
) -> None:
    four_nodes_half_full(fleet)
    fleet.post()
    (found,) = FragmentationAnalyzer().find(fleet.views, window)
    assert found.details["unusable_gpus"] == found.details["idle_gpus"] == 16
    assert found.details["pending"] == {"pods": 4, "gpus": 32, "pods_by_gpus": {"8": 4}}
    assert found.evidence == "confirmed"
    plan = found.details["plan"]
    assert (plan["slots_freed"], plan["slots_wanted"], len(plan["moves"])) == (2, 4, 2)
    assert plan["usable_gpus_gained"] == 16
    assert found.gpu_hours == pytest.approx(16 * 20)  # what waits waited for 20 of 24 hours
    assert not FragmentationAnalyzer().unjudged(fleet.views, window)


def test_three_places_are_freed_where_four_are_too_many(fleet: Fleet, window: Window) -> None:
    for n in range(7):
        fleet.node(f"n{n}")
    for n in range(6):
        fleet.pod(f"p{n}", f"n{n}", [0, 1, 2, 3], kind="Deployment")
    for k in range(7):
        fleet.pod(f"big-{k}", None, list(range(8)))
    (found,) = FragmentationAnalyzer().find(fleet.views, window)
    plan = found.details["plan"]
    assert (plan["slots_now"], plan["slots_wanted"], plan["slots_freed"]) == (1, 6, 3)


@pytest.mark.parametrize(
    "pods",
    [
        {"annotations": '{"fallow.selector": {"tier": ["other"]}}'},
        {"labels": '{"gpu_spec": "A100"}'},
        {"cpu_request_milli": 97_000},
        {"memory_request_bytes": 2**41},
        {"gpu_request": 9.0},
        {"gpu_resource": "nvidia.com/mig-7g.80gb"},
        {"phase": "Failed"},
        {"last_seen": END - timedelta(hours=1)},
    ],
    ids=["selector", "model", "CPU", "memory", "GPUs", "MIG", "ended", "deleted"],
)
def test_pods_that_could_not_run_here_decide_nothing(
    fleet: Fleet, window: Window, pods: dict[str, Any]
) -> None:
    for n in range(4):
        fleet.node(f"n{n}", labels='{"tier": "a"}')
        fleet.pod(f"p{n}", f"n{n}", [0, 1, 2, 3])
    fleet.pod("seen", None, cpu_request_milli=0)
    fleet.pod("big", None, list(range(8)), **pods)
    for found in FragmentationAnalyzer(FragmentationSettings(min_gpus=0)).find(fleet.views, window):
        assert found.details["pending"]["pods"] == 0
        assert found.details["mix"]["assumed"]


@pytest.mark.parametrize(("tolerations", "pods"), [('[["team", "Equal", "a", ""]]', 1), ("[]", 0)])
def test_a_taint_keeps_pods_that_do_not_tolerate_it(
    fleet: Fleet, window: Window, tolerations: str, pods: int
) -> None:
    fleet.node("n0", taints='[{"key": "team", "value": "a", "effect": "NoSchedule"}]')
    fleet.pod("p", "n0", [0, 1, 2, 3])
    note = f'{{"fallow.tolerations": {tolerations}}}'
    fleet.pod("big", None, list(range(8)), annotations=note)
    lowest = FragmentationSettings(min_gpus=0)
    (found,) = FragmentationAnalyzer(lowest).find(fleet.views, window)
    assert found.details["pending"]["pods"] == pods


def test_pods_of_half_the_size_wait_for_places_of_half_the_size(
    fleet: Fleet, window: Window
) -> None:
    for n in range(4):
        fleet.node(f"n{n}")
        for k in range(3):
            fleet.pod(f"p{n}{k}", f"n{n}", [2 * k, 2 * k + 1])
    for k in range(2):
        fleet.pod(f"four-{k}", None, [0, 1, 2, 3])
    (found,) = FragmentationAnalyzer().find(fleet.views, window)
    plan = found.details["plan"]
    assert plan["slot"]["gpus"] == 4
    assert (plan["slots_freed"], len(plan["moves"])) == (2, 2)
    assert found.details["unusable_gpus"] == 8

"""What failures cost, which boards are sick, who is slow, and what no finding may say."""

import json
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzers.reliability.analyzer import ReliabilityAnalyzer
from analyzers.waterfall import build_waterfall
from fallow.models import Finding
from fallow.settings.reliability import ReliabilitySettings
from fallow.xids import get_xid_meaning, read_xid_meanings
from runtime.operations.analysis.findings import document
from tests.analyzers.goldens import agree

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parent / "golden"
Ward = Any
APPLICATIONS = [c for c, said in read_xid_meanings().items() if said.class_ == "application"]
FATAL = [c for c, said in read_xid_meanings().items() if said.severity == "fatal"]


def find(ward: Ward, **chosen: Any) -> Iterable[Finding]:
    return ReliabilityAnalyzer(ReliabilitySettings(**chosen)).find(ward.views, ward.window)


def found(ward: Ward, **chosen: Any) -> dict[str, Finding]:
    return {f.kind: f for f in find(ward, **chosen)}


def fill(ward: Ward, given: dict[str, Any]) -> None:
    for node in given["nodes"]:
        ward.node(node)
    for pod in given.get("pods", ()):
        ward.pod(**{**pod, "hours": tuple(pod["hours"])})
    for one in given.get("shows", ()):
        ward.shows(**{**one, "hours": tuple(one["hours"])})
    for one in given.get("events", ()):
        ward.event(*one)
    for one in given.get("ledger", ()):
        ward.ledger(**one)
    for one in given.get("memory", ()):
        ward.memory(**one)


@pytest.mark.parametrize("case", sorted(p.name for p in GOLDEN.iterdir()))
def test_a_ward_becomes_its_document(case: str, ward: Ward) -> None:
    fill(ward, json.loads((GOLDEN / case / "site.json").read_text()))
    analyzer = ReliabilityAnalyzer()
    agree(
        GOLDEN / case,
        analyzer.find(ward.views, ward.window),
        summary=analyzer.summary(ward.views, ward.window),
    )


def test_empty_tables_give_nothing(ward: Ward) -> None:
    assert found(ward) == {}
    assert ReliabilityAnalyzer().unjudged(ward.views, ward.window) == []
    assert ReliabilityAnalyzer().summary(ward.views, ward.window) == {}


def test_an_event_without_a_name_explains_nothing(ward: Ward) -> None:
    ward.node("n0")
    ward.views.rows(
        "event",
        [
            {
                "cluster": "c", "uid": f"u-{reason}", "ts": ward.at(hour), "kind": "Node",
                "name": None, "reason": reason,
            }
            for hour, reason in ((2, "NodeNotReady"), (5, "NodeReady"))
        ],
    )  # fmt: skip
    assert found(ward) == {}


def test_the_budgets_over_a_sick_nodes_pods_are_named(ward: Ward) -> None:
    fill(ward, json.loads((GOLDEN / "sick_board" / "site.json").read_text()))
    ward.views.engine.execute('UPDATE pod SET labels = \'{"app": "x"}\'')
    ward.views.engine.execute(
        "UPDATE pod SET phase = 'Running', finished_at = NULL, last_seen = $1", [ward.at(96)]
    )
    rows = [
        {
            "cluster": "c", "namespace": "ns", "name": name, "selector": selector,
            "min_available": "1", "disruptions_allowed": 0, "last_seen": ward.at(96),
        }
        for name, selector in (("mine", "{}"), ("other", '{"matchLabels": {"app": "y"}}'))
    ]  # fmt: skip
    ward.views.rows("disruption_budget", rows)
    (advice,) = found(ward)["sick_node"].recommendations
    assert advice.caution == "a drain waits: ns/mine (minAvailable 1) allows no eviction"
    result = found(ward)["sick_node"].details["disruption_budgets"]
    assert result == [{"name": "ns/mine", "wants": "minAvailable 1", "evictions_allowed": 0}]


def test_no_application_xid_condemns_a_node(ward: Ward) -> None:
    """Not even again and again, on every board, with pods that fail by it; a node for each XID."""
    for code in APPLICATIONS:
        node = f"node-of-{code}"
        ward.node(node)
        for n in range(4):
            gpu, pod, failed = f"GPU-{code}-{n}", f"p{code}-{n}", n * 20 + 10
            hours = (failed - 10, failed + 0.5)
            ward.pod(pod, node, hours, workload=f"w{code}-{n}", phase="Failed", gpus=1)
            ward.shows(gpu, node, (0, failed), pod=pod)
            for since in range(failed, failed + 12, 4):  # the exporter restarts between them
                ward.shows(gpu, node, (since, since + 2), pod=pod, xid=code)
                ward.shows(gpu, node, (since + 2, since + 4), pod=pod)
    sick = [f.subject for f in find(ward) if f.kind == "sick_node"]
    assert not sick


@pytest.mark.parametrize("code", FATAL)
def test_a_fatal_xid_alone_is_a_suspicion_and_with_a_failed_pod_certain(
    ward: Ward, code: int
) -> None:
    ward.node("n0")
    ward.shows("GPU-0", "n0", (0, 30))
    ward.shows("GPU-0", "n0", (30, 96), xid=code)
    alone = found(ward)["sick_node"]
    assert alone.evidence == "suspected"
    ward.pod("p", "n0", (0, 30.4), phase="Failed", workload="w")
    assert found(ward)["sick_node"].evidence == "confirmed"


def test_an_unlisted_xid_condemns_nobody() -> None:
    assert get_xid_meaning(4711).severity == "log"


def test_one_gpu_that_different_pods_stumble_over_is_suspect_and_one_pod_s_own_errors_are_not(
    ward: Ward,
) -> None:
    ward.node("n0")
    for n, code in enumerate((13, 31, 13)):
        ward.shows("GPU-0", "n0", (n * 3, n * 3 + 3), pod=f"p{n}", xid=code)
    for n in range(4):
        ward.shows(f"GPU-{n + 1}", "n0", (0, 5))
        ward.shows(f"GPU-{n + 1}", "n0", (5, 9), pod="mine", xid=31)
    suspect = found(ward)["suspect_gpu"]
    assert [d["device"] for d in suspect.details["devices"]] == ["GPU-0"]
    assert suspect.evidence == "suspected"
    assert suspect.gpu_hours == 0
    assert "suspect_gpu" not in found(ward, repeats=4)


def test_a_latched_xid_is_one_event_and_an_older_one_is_said_to_be(ward: Ward) -> None:
    ward.node("n0")
    ward.shows("GPU-0", "n0", (0, 96), xid=79)
    (sign,) = found(ward)["sick_node"].details["devices"][0]["signs"]
    assert sign == "XID 79 (GPU has fallen off the bus), before the window"


def test_the_third_reset_for_the_same_xid_sends_for_the_hardware(ward: Ward) -> None:
    ward.node("n0")
    for n in range(3):
        ward.shows("GPU-0", "n0", (n * 10, n * 10 + 5))
        ward.shows("GPU-0", "n0", (n * 10 + 5, n * 10 + 10), xid=119)
    assert "inspect the hardware" in found(ward)["sick_node"].recommendations[0].why


def gang(ward: Ward, interval: str | None) -> None:
    ward.node("n0")
    ward.node("n1")
    notes = {"fallow.dev/checkpoint-interval": interval} if interval else None
    ward.pod("a", "n0", (0, 48), phase="Failed", notes=notes)
    ward.pod("b", "n1", (48.5, 96), created=48.25, startup=0.25)
    ward.event("n0", 47.9, "NodeNotReady")


def test_steps_sum_to_the_time_from_the_first_sign_to_the_first_work(ward: Ward) -> None:
    gang(ward, "8h")
    lost = found(ward)["lost_work"]
    seconds = lost.details["failures"][0]["seconds"]
    assert seconds == {"detect": 360.0, "decide": 900.0, "drain": 0.0, "restart": 1800.0}
    # 0.6 h until it ran again, and the start-up of the pod that had one: 15 minutes.
    assert sum(seconds.values()) == pytest.approx(0.6 * 3600 + 900)
    assert lost.details["gpu_hours_by_step"] == {
        "held_while_dead": 0.8,  # 6 minutes of 8 GPUs
        "started_again": 2.0,
        "replayed": 8 * 4,
    }
    assert lost.details["failures"][0]["cause"] == "node"


def test_work_lost_without_a_checkpoint_is_withheld_with_its_bound(ward: Ward) -> None:
    gang(ward, None)
    assert "lost_work" not in found(ward)
    (doubt,) = ReliabilityAnalyzer().unjudged(ward.views, ward.window)
    assert doubt.gpu_hours == pytest.approx(47.9 * 8)
    assert "no checkpoint was seen" in doubt.reasons[0]


def test_checkpoints_that_are_close_enough_are_left_alone(ward: Ward) -> None:
    gang(ward, "30m")
    assert found(ward)["lost_work"].recommendations == ()


@pytest.mark.parametrize(
    ("phase", "event"), [("Succeeded", "NodeNotReady"), ("Running", "NodeReady")]
)
def test_pods_that_end_as_they_should_have_not_failed(ward: Ward, phase: str, event: str) -> None:
    ward.node("n0")
    ward.pod("a", "n0", (0, 48), phase=phase)
    ward.pod("b", "n0", (50, 96))
    ward.event("n0", 48, event)
    assert ReliabilityAnalyzer().summary(ward.views, ward.window)["failures_of_work"] == {}


def test_three_gpus_are_no_measure_and_replicas_do_not_wait_for_each_other(ward: Ward) -> None:
    ward.node("n0")
    ward.pod("w", "n0", (0, 96), kind="Deployment", gpus=4)
    for n in range(3):
        ward.shows(f"GPU-{n}", "n0", (0, 96), pod="w", sm_clock_mhz_mean=1755.0 if n else 900.0)
    assert found(ward) == {}
    ward.shows("GPU-3", "n0", (0, 96), pod="w", sm_clock_mhz_mean=1755.0)
    slow = found(ward)["slow_gpu"]
    assert slow.gpu_hours == pytest.approx(96 * (1 - 900 / 1755))
    ward.views.engine.execute("UPDATE pod SET workload_kind = 'PyTorchJob'")
    ward.views.engine.execute("UPDATE ledger SET workload_kind = 'PyTorchJob'")
    assert found(ward)["slow_gpu"].gpu_hours == pytest.approx(4 * 96 * (1 - 900 / 1755))


HAPPENINGS = st.lists(
    st.tuples(
        st.sampled_from(["pod", "xid", "down", "slow", "away"]),
        st.integers(0, 2),
        st.integers(0, 90),
        st.integers(1, 30),
        st.sampled_from([13, 31, 48, 63, 74, 79, 94, 119, 9999]),
        st.sampled_from(["Failed", "Running", "Succeeded"]),
    ),
    max_size=14,
)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(HAPPENINGS)
def test_whatever_happens_savings_stay_within_the_bill_and_are_the_same_again(  # noqa: C901
    ward: Ward, happenings: list[tuple[str, int, int, int, int, str]]
) -> None:
    for name in ("node", "pod", "ledger", "event", "rollup_1h"):
        ward.views.engine.execute(f"DELETE FROM {name}")
    for n in range(3):
        ward.node(f"n{n}")
    for number, (what, n, begin, length, code, phase) in enumerate(happenings):
        node, end = f"n{n}", min(begin + length, 96)
        notes = {"fallow.dev/checkpoint-interval": f"{code}m"}
        if what == "pod":
            ward.pod(f"p{number % 3}", node, (begin, end), phase=phase, gpus=4,
                     notes=notes if number % 2 else None)  # fmt: skip
        elif what == "xid":
            ward.shows(f"GPU-{n}", node, (begin, end), xid=code, pod="p1")
        elif what == "down":
            ward.event(node, begin, "NodeNotReady")
            ward.event(node, end, "NodeReady")
        elif what == "slow":
            for d in range(4):
                ward.shows(f"GPU-{n}-{d}", node, (begin, end), pod=f"p{number % 3}",
                           sm_clock_mhz_mean=1000.0 + 200 * d)  # fmt: skip
        else:
            ward.ledger("unavailable", float(length), node=node)
    analyzer = ReliabilityAnalyzer(ReliabilitySettings(min_gpu_hours=0))
    made = analyzer.find(ward.views, ward.window)
    assert made == analyzer.find(ward.views, ward.window)
    apportioned_usd = build_waterfall(ward.views, ward.window, made)
    for finding in made:
        assert 0 <= finding.gpu_hours <= apportioned_usd.bill.gpu_hours + 1e-6
        assert 0 <= (finding.usd or 0) <= (apportioned_usd.bill.usd or Decimal()) + Decimal("0.01")
        for advice in finding.recommendations:
            assert sum(c.gpu_hours for c in advice.claims) <= finding.gpu_hours + 1e-6
        for failure in finding.details.get("failures", ()):
            assert all(s >= 0 for s in (failure["seconds"] or {}).values())
        json.dumps(document(finding), allow_nan=False)
    assert (apportioned_usd.saved().usd or 0) <= (apportioned_usd.bill.usd or 0)
    analyzer.summary(ward.views, ward.window)
    analyzer.unjudged(ward.views, ward.window)


def boards(ward: Ward, shown: int, *, seen_until: float = 96, **node: Any) -> None:
    """Put a node with 8 boards of which the exporter shows some, beside one that shows all."""
    base = {"cluster": "c", "gpu_count": 8, "first_seen": ward.at(0), "last_seen": ward.at(96)}
    ward.views.rows("node", [base | {"node": "n0"} | node, base | {"node": "n1", "gpu_count": 1}])
    device = {"cluster": "c", "first_seen": ward.at(0), "interval_s": 60.0, "weight": 1.0}
    ward.views.rows(
        "device",
        [
            *(
                device | {"device": f"GPU-{n}", "node": "n0", "last_seen": ward.at(seen_until)}
                for n in range(shown)
            ),
            device | {"device": "GPU-x", "node": "n1", "last_seen": ward.at(96)},
        ],
    )


@pytest.mark.parametrize(
    ("shown", "node", "evidence"),
    [
        (8, {}, None),
        (7, {}, "suspected"),
        (7, {"gpu_allocatable": 8}, "suspected"),
        (7, {"gpu_allocatable": 7}, "confirmed"),
        (7, {"sharing": "time-slicing", "gpu_replicas": 4}, "suspected"),
        (7, {"sharing": "mig"}, None),
        (7, {"sharing": "hami"}, None),
    ],
)
def test_a_board_that_is_labelled_and_not_shown_is_found(
    ward: Ward, shown: int, node: dict[str, Any], evidence: str | None
) -> None:
    boards(ward, shown, **node)
    finding = found(ward).get("missing_gpu")
    assert (finding and finding.evidence) == evidence


@pytest.mark.parametrize(("minutes", "there"), [(4, True), (6, False)])
def test_a_silent_exporter_is_no_missing_gpu(ward: Ward, minutes: int, there: bool) -> None:
    boards(ward, 7, seen_until=96 - minutes / 60)
    assert ("missing_gpu" in found(ward)) == there


def test_instances_hide_boards_whatever_the_labels_say(ward: Ward) -> None:
    boards(ward, 7)
    ward.views.engine.execute("UPDATE device SET parent = 'GPU' WHERE device = 'GPU-0'")
    assert "missing_gpu" not in found(ward)


def reclaims(ward: Ward, spot: int, broken: int) -> None:
    """Let the cloud take a node back so often, and let it break so often, each time under work."""
    ward.node("n0")
    reasons = ["SpotInterruption"] * spot + ["NodeNotReady"] * broken
    for n, reason in enumerate(reasons):
        hour = 10 * n
        ward.pod(f"p{n}", "n0", (hour, hour + 8), phase="Failed",
                 notes={"fallow.dev/checkpoint-interval": "8h"})  # fmt: skip
        ward.event("n0", hour + 7.9, reason)
        ward.event("n0", hour + 7.95, "NodeNotReady")
        ward.event("n0", hour + 9, "NodeReady")


@pytest.mark.parametrize(
    ("spot", "broken", "mean"), [(3, 2, 48.0), (0, 2, 48.0), (3, 0, None), (0, 1, 96.0)]
)
def test_what_a_cloud_takes_back_is_no_failure_of_a_node(
    ward: Ward, spot: int, broken: int, mean: float | None
) -> None:
    reclaims(ward, spot, broken)
    said = ReliabilityAnalyzer().summary(ward.views, ward.window)
    assert sum(said["failures_of_work"].values()) == spot + broken
    assert said["mtbf_node_hours"] == mean
    details = found(ward)["lost_work"].details
    assert details["mtbf_hours"] == mean
    assert details["hours_between_interruptions"] == pytest.approx(96 / (spot + broken))


@pytest.mark.parametrize(("spot", "broken"), [(3, 2), (3, 0), (0, 2)])
def test_a_spot_node_that_is_taken_back_had_no_outage(ward: Ward, spot: int, broken: int) -> None:
    reclaims(ward, spot, broken)
    ward.ledger("unavailable", 5.0)
    outage = found(ward).get("outages")
    assert (outage.details["outages"] if outage else 0) == broken

"""kube-state-metrics' text is what Fallow reads the inventory from."""

from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from collectors.prometheus.kube_state import (
    KubeState,
    build_node_rows,
    build_pod_rows,
    read_inventory,
)
from simulator.exporters import kube_state
from tests.simulator.exporters import fleet

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def state(text: str) -> KubeState:
    series: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    wanted = {r["metric"]: r["only"] for r in read_inventory()}
    kept = {
        name: [(words, value) for words, value in found if not wanted[name] or value == 1]
        for name, found in series.items()
        if name in wanted
    }
    return KubeState(kept, {}, {})


TEXT = kube_state.render_text(fleet.objects()).decode()
SAID = state(TEXT)


def test_pods_have_their_owner_node_phase_requests_and_moments() -> None:
    rows = {r["pod"]: r for r in build_pod_rows(SAID, cluster="c", now=NOW, team_labels=["team"])}
    assert set(rows) == {h.pod for h in fleet.HOLDERS[: fleet.CAROL]}
    train = rows["llm-pretrain-worker-0"]
    assert (train["workload_kind"], train["workload"]) == ("PyTorchJob", "llm-pretrain")
    assert (train["node"], train["phase"], train["team"]) == (fleet.A, "Running", "genai")
    assert (train["gpu_resource"], train["gpu_request"]) == ("nvidia.com/gpu", 4)
    assert train["cpu_request_milli"] == 500
    assert train["memory_request_bytes"] == 16 * 2**30
    assert train["created_at"] == datetime(2026, 11, 19, 8, tzinfo=UTC)
    assert train["started_at"] == datetime(2026, 11, 19, 8, 0, 20, tzinfo=UTC)
    assert (rows["bert-embed-5f7-abcde"]["workload_kind"], train["uid"]) == (
        "Deployment",
        fleet.HOLDERS[fleet.TRAIN].uid,
    )
    assert rows["bert-embed-5f7-abcde"]["gpu_resource"] == "nvidia.com/mig-3g.20gb"


def test_nodes_have_their_type_zone_size_and_state() -> None:
    rows = {r["node"]: r for r in build_node_rows(SAID, cluster="c", now=NOW)}
    one = rows[fleet.A]
    assert (one["instance_type"], one["zone"]) == ("p5.48xlarge", "us-east-1a")
    assert (one["provider"], one["ready"], one["unschedulable"]) == ("aws", True, False)
    assert one["gpu_count"] == 8
    assert one["cpu_milli"] == 192_000


def test_every_metric_that_fallow_asks_for_is_told() -> None:
    result = {f.name for f in text_string_to_metric_families(TEXT)}
    assert {r["metric"] for r in read_inventory()} <= result


def test_labels_are_spelled_in_snake_case_and_numbered_where_they_meet() -> None:
    found = kube_state.convert_labels({"capacityType": "spot", "a.b/c": "1", "a-b/c": "2"})
    assert found == {
        "label_a_b_c": "2",
        "label_a_b_c_conflict1": "1",
        "label_capacity_type": "spot",
    }


def test_a_pod_that_ended_is_deleted_or_waits_says_so() -> None:
    gone, waiting = (
        dict[str, Any](metadata={"name": n, "namespace": "x", "uid": n}, spec={"containers": []})
        for n in ("gone", "waiting")
    )
    gone["metadata"]["deletionTimestamp"] = "2026-11-20T07:00:00Z"
    gone["status"] = {
        "phase": "Succeeded",
        "containerStatuses": [{"state": {"terminated": {"finishedAt": "2026-11-20T06:59:00Z"}}}],
    }
    waiting["status"] = {"phase": "Pending"}
    text = kube_state.render_text({"Pod": [gone, waiting]}).decode()
    assert 'kube_pod_deletion_timestamp{namespace="x",pod="gone",uid="gone"} 1795158000' in text
    assert 'kube_pod_completion_time{namespace="x",pod="gone",uid="gone"} 1795157940' in text
    assert 'kube_pod_status_phase{namespace="x",pod="waiting",uid="waiting",phase="Pending"} 1' in (
        text
    )
    assert 'kube_pod_start_time{namespace="x",pod="waiting"' not in text


@pytest.mark.parametrize(
    ("text", "number"),
    [("8", 8), ("500m", 0.5), ("16Gi", 16 * 2**30), ("1e3", 1000), (2, 2), ("1.5k", 1500)],
)
def test_quantities_are_numbers(text: str | int, number: float) -> None:
    assert kube_state.parse_quantity(text) == number


def test_a_quantity_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="not a Kubernetes quantity"):
        kube_state.parse_quantity("lots")

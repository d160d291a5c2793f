"""A pod that holds what no amount is, is stored, listed and protected."""

import json
from typing import Any

import pytest

from analyzers.protections import read_vetoes
from fallow.protections import UNREADABLE
from tests.kube.conftest import Cluster, Look
from tests.kube.kinds import GPU, HAMI
from tests.kube.objects import node, pod

HOSTILE = {
    "hami": {"annotations": {HAMI: "GPU-1,N,1e308,100:"}, "limits": GPU},
    "fraction": {"annotations": {"gpu-fraction": "1e999"}},
    "digits": {"annotations": {"gpu-fraction": "9" * 5000}},
    "memory": {"annotations": {"gpu-memory": "1e18"}},
    "cpu 9E": {"limits": {"cpu": "9E"}},
    "memory 8Ei": {"limits": {"memory": "8Ei"}},
    "gpus 9E": {"limits": {"nvidia.com/gpu": "9E"}},
}
"""What a real kube-apiserver 1.36 stores of anybody who may create a pod."""


@pytest.mark.parametrize("parts", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_pod_is_stored_listed_and_protected(
    cluster: Cluster, poll: Look, parts: dict[str, Any]
) -> None:
    cluster.put("Node", node(capacity={"nvidia.com/gpu": "8"}))
    for name in ("a", "z"):
        cluster.put("Pod", pod(name, limits=GPU))
    cluster.put("Pod", pod("evil", owner=("batch/v1", "Job/j"), **parts))
    rows = poll()
    pods = {row["pod"]: row for row in rows["pod"]}
    assert set(pods) == {"a", "evil", "z"}
    assert read_vetoes(pods["evil"]["annotations"], None) == (True, False)
    assert read_vetoes(pods["a"]["annotations"], None) == (False, False)
    (listed,) = rows["rejection"]
    identity = [listed[key] for key in ("kind", "namespace", "name", "node")]
    assert identity == ["pod", "ml", "evil", "n0"]
    assert "no amount" in listed["reason"]


def test_a_page_with_an_unreadable_object_is_read(cluster: Cluster, poll: Look) -> None:
    broken = pod("evil")
    broken["status"]["phase"] = 5
    cluster.put("Pod", broken)
    cluster.put("Pod", pod("a"))
    rows = poll()
    assert {row["pod"]: row["phase"] for row in rows["pod"]} == {"a": "Running", "evil": None}
    assert all(row["up"] for row in rows["scrape"])


def test_bare_keys_of_a_pod_are_not_fallows_own(cluster: Cluster, poll: Look) -> None:
    marks = {
        "fallow.selector": "x", "fallow.tolerations": "y", "fallow.holds_for": "z",
        UNREADABLE: "me", "fallow.dev/keep": "yes" + " " * 9000, "fallow.dev/slo": "9" * 9000,
        "fallow.dev/kepe": "true",
    }  # fmt: skip
    cluster.put("Pod", pod("a", limits=GPU, annotations=marks))
    (row,) = poll()["pod"]
    assert json.loads(row["annotations"]) == {
        "fallow.dev/keep": "yes",
        "fallow.dev/kepe": "",
        "fallow.dev/slo": "",
    }

"""KAI's reservation pods are nobody's workload; what they hold goes to those who share it."""

import json
from datetime import UTC, datetime
from typing import Any

from collectors.kube.owners import TopOwner
from collectors.kube.pods import PodContext, build_pod_row
from collectors.kube.reservation_pods import remap
from collectors.kube.shapes import Meta
from tests.kube.objects import Object, as_pod, pod

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def held(item: Object) -> tuple[Meta, dict[str, Any]]:
    known = as_pod(item)
    around = PodContext("c", lambda: NOW, lambda meta: TopOwner("Pod", meta.name, meta.uid))
    return known.metadata, build_pod_row(known, around)


def holder(uuid: str = "GPU-7") -> Object:
    return pod(
        "gpu-reservation-n0-abcde",
        namespace="kai-resource-reservation",
        limits={"nvidia.com/gpu": "1"},
        labels={"runai-gpu-group": "g1"},
        annotations={"run.ai/reserve_for_gpu_index": uuid},
    )


def user(name: str, fraction: str = "0.5") -> Object:
    return pod(name, labels={"runai-gpu-group": "g1"}, annotations={"gpu-fraction": fraction})


def rows(*items: Object) -> dict[str, dict[str, Any]]:
    return {row["pod"]: row for row in remap(map(held, items))}


def test_users_get_the_holders_device_and_their_share() -> None:
    found = rows(holder(), user("a", "0.5"), user("b", "0.25"))
    assert json.loads(found["a"]["devices"]) == [{"device": "GPU-7", "share": 0.5, "source": "kai"}]
    assert json.loads(found["b"]["devices"])[0]["share"] == 0.25
    assert json.loads(found["a"]["annotations"])["fallow.held_by"] == (
        "kai-resource-reservation/gpu-reservation-n0-abcde"
    )


def test_a_holder_is_no_workload_and_asks_for_nothing() -> None:
    found = rows(holder(), user("a"), user("b"))["gpu-reservation-n0-abcde"]
    assert (found["workload_kind"], found["workload"]) == (None, None)
    assert found["gpu_request"] == 0
    assert json.loads(found["annotations"])["fallow.holds_for"] == ["ml/a", "ml/b"]


def test_a_holder_with_one_user_is_that_users() -> None:
    found = rows(holder(), user("a"))["gpu-reservation-n0-abcde"]
    assert (found["workload_kind"], found["workload"]) == ("Pod", "a")


def test_a_holder_that_has_not_found_its_gpu_gives_none() -> None:
    assert rows(holder("-1"), user("a"))["a"]["devices"] == "[]"


def test_looking_again_gives_the_same_rows() -> None:
    pairs = [held(holder()), held(user("a"))]
    once = json.dumps(remap(pairs), default=str)
    assert json.dumps(remap(pairs), default=str) == once

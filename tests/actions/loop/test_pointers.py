"""How an object stands to a change of it: what is not there, what the server wrote anew."""

from typing import Any

import pytest

from actions.loop.change_state import compare_object, find_differences
from fallow.action_models import Change, Target

TARGET = Target("c", "ray.io/v1", "RayCluster", "ml", "ray", "uid", "7")


@pytest.mark.parametrize(
    ("method", "was", "becomes", "expected"),
    [
        ("PATCH", {"/spec/suspend": None}, {"/spec/suspend": True}, "gone"),
        ("PATCH", {"/spec/replicas": 2}, {"/spec/replicas": 0}, "gone"),
        ("POST", {"/metadata/name": None}, {"/metadata/name": "ray"}, "was"),
        ("POST", {"/metadata/uid": "uid"}, {"/metadata/uid": None}, "becomes"),
    ],
    ids=["a field that was absent", "a field that was there", "not made yet", "evicted"],
)
def test_what_is_not_there_is_gone_not_made_or_as_was_asked(
    method: Any, was: dict[str, Any], becomes: dict[str, Any], expected: str
) -> None:
    change = Change(target=TARGET, method=method, path="/x", body={}, was=was, becomes=becomes)
    assert compare_object(change, None) == expected


MEMORY = "/spec/containers/0/resources/requests/memory"


def pod(memory: str) -> dict[str, Any]:
    amounts = {"resources": {"requests": {"memory": memory}}}
    return {
        "kind": "Pod",
        "metadata": {"name": "p", "uid": "uid"},
        "spec": {"containers": [amounts]},
    }


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ("8Gi", "becomes"),
        ("8192Mi", "becomes"),
        ("8589934592", "becomes"),
        ("16Gi", "was"),
        ("16384Mi", "was"),
        ("8193Mi", "neither"),
        ("8G", "neither"),
    ],
)
def test_quantities_are_compared_by_value(memory: str, expected: str) -> None:
    target = Target("c", "v1", "Pod", "ml", "p", "uid")
    change = Change(target, "PATCH", "/p", {}, was={MEMORY: "16384Mi"}, becomes={MEMORY: "8192Mi"})
    assert compare_object(change, pod(memory)) == expected
    assert find_differences(change.becomes, pod(memory)) == (
        [] if expected == "becomes" else [MEMORY]
    )


def test_annotations_are_texts_and_not_quantities() -> None:
    pointer = "/metadata/annotations/ratio"
    found = {"metadata": {"annotations": {"ratio": "1000m"}}}
    assert find_differences({pointer: "1"}, found) == [pointer]
    assert find_differences({pointer: "1000m"}, found) == []

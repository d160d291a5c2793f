"""How an object that is not there stands to a change of it."""

from typing import Any

import pytest

from actions.loop.pointers import state
from fallow.acting import Change, Target

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
    assert state(change, None) == expected

"""Pointers: what a write touches is put back just as it was, whatever the object looks like."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actions.cluster.pointers import (
    MISSING,
    build_merge_patch,
    find_highest_absent,
    get_value,
    join_pointer,
    resolve_pointer,
    split_pointer,
)
from actions.reclaim.writes import set_field
from fallow.action_models import Target
from simulator.kube.patches import apply_patch

TARGET = Target("c", "v1", "Thing", "ns", "x", "uid")
keys = st.sampled_from(["spec", "metadata", "a", "b", "x/y", "x~y", "runPolicy"])
leaves = st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
objects = st.recursive(
    st.dictionaries(keys, leaves, max_size=3),
    lambda inner: st.dictionaries(keys, leaves | inner, max_size=3),
    max_leaves=12,
)


def walkable(obj: Any, where: str) -> bool:
    """Say whether all that lies on the way is a map or absent, as in a schema."""
    path = split_pointer(where)
    above = (resolve_pointer(obj, join_pointer(*path[:n])) for n in range(1, len(path)))
    return all(a is MISSING or isinstance(a, dict) for a in above)


@given(obj=objects, path=st.lists(keys, min_size=1, max_size=4), value=leaves)
def test_a_field_and_its_undo_leave_every_object_as_it_was(
    obj: dict[str, Any], path: list[str], value: Any
) -> None:
    where = join_pointer(*path)
    if not walkable(obj, where) or (path[0] == "metadata" and "metadata" not in obj):
        return
    writes = set_field(obj, TARGET, "/path", where, value)
    after = apply_patch(obj, writes.change.body, "merge")
    assert resolve_pointer(after, where) == value
    assert all(get_value(obj, p) == v for p, v in writes.change.was.items())
    assert all(get_value(after, p) == v for p, v in writes.change.becomes.items())
    back = apply_patch(after, writes.undo.body, "merge")
    if path[0] != "metadata":  # its empty maps are the server's to leave out
        assert back == obj
    assert all(get_value(back, p) == v for p, v in writes.change.was.items())


@pytest.mark.parametrize(
    ("obj", "where", "place"),
    [
        ({"spec": {}}, "/spec/suspend", "/spec/suspend"),
        ({"spec": {}}, "/spec/runPolicy/suspend", "/spec/runPolicy"),
        ({"spec": {"runPolicy": None}}, "/spec/runPolicy/suspend", "/spec/runPolicy"),
        ({"spec": {"runPolicy": {}}}, "/spec/runPolicy/suspend", "/spec/runPolicy/suspend"),
        ({"metadata": {}}, "/metadata/annotations/a", "/metadata/annotations/a"),
        ({}, "/spec/a/b", "/spec"),
    ],
)
def test_the_highest_part_that_a_write_brings_along(obj: Any, where: str, place: str) -> None:
    assert find_highest_absent(obj, where) == place


def test_keys_with_slashes_and_tildes_are_one_key() -> None:
    where = join_pointer("metadata", "annotations", "a/b~c")
    assert where == "/metadata/annotations/a~1b~0c"
    assert build_merge_patch(where, "v") == {"metadata": {"annotations": {"a/b~c": "v"}}}
    assert resolve_pointer({"l": [{"x": 1}]}, "/l/0/x") == 1
    assert resolve_pointer({"l": [1]}, "/l/3") is MISSING

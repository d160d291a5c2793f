"""Only quantities are rewritten; every other value is stored as it was written."""

from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.kube import canonical
from simulator.kube.patches import apply_patch
from simulator.kube.store import ObjectStore

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=12,
)


@given(values)
def test_what_is_no_quantity_stays(value: Any) -> None:
    pod = ObjectStore(lambda: 0.0, 1).kind("Pod")
    spec = {"x": value, "limits": {"cpu": "2000m", "on": True, "n": 1500, "text": "many"}}
    stored = canonical.canonicalize(pod, {"spec": spec}, {})["spec"]
    assert stored["x"] == value
    assert stored["limits"] == {"cpu": "2", "on": True, "n": "1500", "text": "many"}


def test_a_mapping_of_another_type_is_read_like_a_dict() -> None:
    pod = ObjectStore(lambda: 0.0, 1).kind("Pod")
    inner = MappingProxyType({"limits": MappingProxyType({"memory": "8192Mi"})})
    stored = canonical.canonicalize(pod, {"spec": {"x": inner}}, {})
    assert stored["spec"] == {"x": {"limits": {"memory": "8Gi"}}}


@pytest.mark.parametrize("old", [None, 1, "text", [1], {"a": 1, "b": {"c": 2}}])
@given(patch=st.dictionaries(st.sampled_from("abc"), values))
def test_a_merge_follows_the_rule_of_merge_patches(old: Any, patch: dict[str, Any]) -> None:
    assert apply_patch({"x": old}, {"x": patch}, "merge")["x"] == merge(old, patch)


def merge(old: Any, patch: Any) -> Any:
    """Return what RFC 7396 says."""
    if not isinstance(patch, dict):
        return patch
    before = old if isinstance(old, dict) else {}
    kept = {k: v for k, v in before.items() if k not in patch}
    return kept | {k: merge(before.get(k), v) for k, v in patch.items() if v is not None}

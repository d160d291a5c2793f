"""Random trees of queues: every write of a step is let in by the scheduler's own webhook."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from actions.quota.accounts import StepRules, TargetQuota
from actions.quota.solver import solve
from actions.quota.systems import SYSTEMS, CountedResource
from actions.quota.systems.elastic_quota import LABELS
from actions.quota.systems.system import FieldChange, format_amount
from actions.quota.writes import build_patches
from fallow.action_models import Target
from simulator.kube.store import ObjectStore
from tests.servers.quota_webhooks import QUOTA_WEBHOOKS

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
GPU = "nvidia.com/gpu"
VOLCANO, KOORDINATOR = "Queue.scheduling.volcano.sh", "ElasticQuota.scheduling.sigs.k8s.io"
Leaf = tuple[int, int, int, int]
"""What it is due, uses, was promised, and its cap above what it is due."""
leaf = st.tuples(*(st.integers(0, 12) for _ in range(4)))
houses = st.lists(
    st.tuples(st.lists(leaf, min_size=1, max_size=4), st.integers(0, 4)), min_size=1, max_size=3
)
asks = st.lists(st.integers(0, 24), min_size=12, max_size=12)


def volcano(store: ObjectStore, drawn: list[tuple[list[Leaf], int]]) -> list[str]:
    """Make a tree under the root whose sums hold; return the leaves."""
    leaves = []
    store.create(VOLCANO, {"metadata": {"name": "root"}, "spec": {}})
    for h, (house, slack) in enumerate(drawn):
        total = sum(due for due, *_ in house) + slack
        _queue(store, f"h{h}", {"deserved": {GPU: str(total)}, "capability": {GPU: "99"}}, 0)
        for n, (due, used, firm, more) in enumerate(house):
            spec = {
                "parent": f"h{h}",
                "deserved": {GPU: str(due)},
                "guarantee": {"resource": {GPU: str(min(firm, due))}},
                "capability": {GPU: str(due + more)},
            }
            _queue(store, f"h{h}-{n}", spec, used)
            leaves.append(f"h{h}-{n}")
    return leaves


def _queue(store: ObjectStore, name: str, spec: Any, used: int) -> None:
    store.create(VOLCANO, {"metadata": {"name": name}, "spec": spec})
    body = {"status": {"state": "Open", "allocated": {GPU: str(used)}}}
    store.patch(VOLCANO, name, "", body, subresource="status")


def koordinator(store: ObjectStore, drawn: list[tuple[list[Leaf], int]]) -> list[str]:
    """Make one tree per house; return the leaves."""
    leaves = []
    for h, (house, slack) in enumerate(drawn):
        total = sum(due for due, *_ in house) + slack
        mark = {f"{LABELS}/tree-id": f"t{h}"}
        _elastic(store, f"h{h}", (total, 99, 0), {**mark, f"{LABELS}/is-parent": "true"})
        for n, (due, used, _, more) in enumerate(house):
            below = {**mark, f"{LABELS}/parent": f"h{h}"}
            _elastic(store, f"h{h}-{n}", (due, due + more, used), below)
            leaves.append(f"default/h{h}-{n}")
    return leaves


def _elastic(store: ObjectStore, name: str, amounts: tuple[int, int, int], labels: Any) -> None:
    low, high, used = amounts
    spec = {"min": {GPU: str(low)}, "max": {GPU: str(high)}}
    meta = {"name": name, "namespace": "default", "labels": labels}
    store.create(KOORDINATOR, {"metadata": meta, "spec": spec})
    body = {"status": {"used": {GPU: str(used)}}}
    store.patch(KOORDINATOR, name, "default", body, subresource="status")


@given(st.sampled_from(["Queue.volcano", "ElasticQuota.koordinator"]), houses, asks)
def test_every_write_of_a_step_and_of_its_undo_is_let_in(
    kind: str, drawn: list[tuple[list[Leaf], int]], wanted: list[int]
) -> None:
    store = ObjectStore(NOW.timestamp)
    store.webhooks = QUOTA_WEBHOOKS
    stored, make = (VOLCANO, volcano) if kind == "Queue.volcano" else (KOORDINATOR, koordinator)
    leaves = make(store, drawn)
    system, part = SYSTEMS[kind], CountedResource(GPU)
    objects = {_key(o): o for o in store.list(stored)}
    accounts = system.accounts(list(objects.values()), part)
    wishes = [TargetQuota(key, to) for key, to in zip(leaves, wanted, strict=False)]
    step = solve(accounts, wishes, StepRules(max_step=1), NOW)
    event(f"{kind}: {len(step.shifts)} writes")
    pairs = []
    for shift in step.shifts:
        item = objects[shift.key]
        meta = item["metadata"]
        target = Target("c", "v", "Q", meta.get("namespace", ""), meta["name"], meta["uid"])
        pairs.append(build_patches(target, "/", system.fields(item, part, shift.change)))
    before = {key: item["spec"] for key, item in objects.items()}
    for change in (*(c for c, _ in pairs), *(u for _, u in reversed(pairs))):
        where = change.target.name, change.target.namespace
        store.patch(stored, *where, change.body, how="json")  # a refusal is an error here
    assert {_key(o): o["spec"] for o in store.list(stored)} == before


def _key(item: Any) -> str:
    meta = item["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def test_a_field_that_was_absent_is_added_and_removed_by_the_undo() -> None:
    target = Target("c", "v1", "ResourceQuota", "ns", "q", uid="u")
    change, undo = build_patches(target, "/q", [FieldChange("/spec/hard/gpu", None, "4")])
    assert change.body[1:] == [{"op": "add", "path": "/spec/hard/gpu", "value": "4"}]
    assert undo.body[-1] == {"op": "remove", "path": "/spec/hard/gpu"}
    assert (change.depends, undo.depends) == (False, True)
    change, undo = build_patches(target, "/q", [FieldChange("/spec/hard/gpu", "2", "4")])
    assert change.body[-1] == {"op": "replace", "path": "/spec/hard/gpu", "value": "4"}
    assert undo.body[-1] == {"op": "replace", "path": "/spec/hard/gpu", "value": "2"}


def test_an_amount_is_written_in_the_type_that_the_field_has() -> None:
    cases = [(4.0, "2", "4"), (2.5, "2", "2500m"), (4.0, 2, 4), (2.5, 2, 2.5), (4.0, 2.0, 4.0)]
    amounts = [format_amount(value, like) for value, like, _ in cases]
    assert [(a, type(a)) for a in amounts] == [(text, type(text)) for *_, text in cases]

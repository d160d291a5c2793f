"""What an object no longer has is gone; what a source does not know stays."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from collectors.inventory import build_batches
from collectors.kube.budgets import build_budget_row
from collectors.kube.devices import Dra
from collectors.kube.nodes import build_node_row
from collectors.kube.owners import TopOwner
from collectors.kube.pods import PodContext, build_pod_row
from collectors.kube.shapes import CustomObject
from collectors.prometheus.kube_state import KubeState, build_node_rows, build_pod_rows
from fallow.settings import Settings
from fallow.tables import get_schema, list_columns
from tests.kube.objects import as_node, as_pod, node, pod
from warehouse.ingest import LABEL_COLUMNS
from warehouse.lake import Warehouse
from warehouse.storage import list_tables

FULL_POD = pod(
    labels={"team": "a", "app": "web"},
    annotations={"fallow.dev/protected": "true"},
    affinity={
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]
        }
    },
)
TAINT = {"key": "maintenance", "effect": "NoSchedule"}
FULL_NODE = node(labels={"topology.kubernetes.io/zone": "z", "pool": "p"}, taints=[TAINT])


@pytest.fixture
def wh(settings: Settings, now: datetime) -> Iterator[Warehouse]:
    with Warehouse.open_in_memory(settings, clock=lambda: now) as warehouse:
        yield warehouse


def store(wh: Warehouse, table: str, row: dict[str, Any]) -> dict[str, Any]:
    wh.ingest(list(build_batches(table, [row])))
    stored: list[dict[str, Any]] = wh.query(f'SELECT * FROM "{table}"').to_pylist()
    assert len(stored) == 1
    return stored[0]


def test_every_document_column_can_be_emptied(wh: Warehouse, now: datetime) -> None:
    for table in list_tables("upsert"):
        columns = [c.name for c in list_columns(table) if c.unit == "json"]
        keys = {c.name: now if c.type == "timestamp" else "x" for c in list_columns(table) if c.key}
        times = [n for n in get_schema(table).names if n.endswith(("last_seen", "_at"))]
        written = [('{"a":1}', '{"a":1}'), (None, '{"a":1}'), ("{}", "{}"), (None, "{}")]
        for n, (sent, kept) in enumerate(written if columns else []):
            row = keys | dict.fromkeys(times, now - timedelta(minutes=9 - n))
            stored = store(wh, table, row | dict.fromkeys(columns, sent))
            assert [stored[column] for column in columns] == [kept] * len(columns), table


LABELLED = [
    *((table, column, True) for table in ("pod", "node") for column in LABEL_COLUMNS[table]),
    ("pod", "workload", False),
    ("node", "provider", False),
]


@pytest.mark.parametrize(("table", "column", "is_labelled"), LABELLED)
def test_what_a_label_named_is_gone_with_the_label_where_labels_are_known(
    wh: Warehouse, now: datetime, table: str, column: str, is_labelled: bool
) -> None:
    keys: dict[str, Any] = {c.name: "x" for c in list_columns(table) if c.key}
    gone = None if is_labelled else "v"
    steps = [
        ('{"a":"v"}', "v", "v"),
        (None, None, "v"),
        ('{"fallow.dev/unreadable":"a fault"}', None, "v"),
        ('{"a":"v"}', None, "v"),
        ('{"b":"v"}', None, "v"),
        ('{"a":"w"}', None, gone),
    ]
    for n, (labels, sent, kept) in enumerate(steps):
        row = keys | {"labels": labels, column: sent, "last_seen": now - timedelta(minutes=9 - n)}
        assert store(wh, table, row)[column] == kept, n
    row = keys | {"labels": '{"a":"w"}', column: "other", "last_seen": now}
    assert store(wh, table, row)[column] == "other"
    late = keys | {"labels": "{}", column: None, "last_seen": now - timedelta(hours=1)}
    assert store(wh, table, late)[column] == "other"


def build_rows(now: datetime, item_pod: Any, item_node: Any) -> list[tuple[str, dict[str, Any]]]:
    context = PodContext(
        "c", lambda: now, lambda _: TopOwner("Pod", "p", None), ("team",), namespaces={"ml": {}}
    )
    budget: dict[str, Any] = {"metadata": {"name": "b", "namespace": "ml"}, "spec": {}}
    if item_pod is FULL_POD:
        budget["spec"] = {"selector": {"matchLabels": {"app": "web"}}}
    return [
        ("pod", build_pod_row(as_pod(item_pod), context)),
        ("node", build_node_row(as_node(item_node), cluster="c", now=now, dra=Dra())),
        (
            "disruption_budget",
            build_budget_row(as_custom(budget), cluster="c", now=now),
        ),
    ]


RICH_POD = pod(
    labels={"team": "a", "kueue.x-k8s.io/queue-name": "q"},
    annotations={"gpu-memory": "4096"},
    owner=("apps/v1", "ReplicaSet/web-1"),
    limits={"cpu": "4", "memory": "8Gi"},
    schedulerName="kai-scheduler",
    priorityClassName="high",
)
LABELS_OF_NODE = {
    "topology.kubernetes.io/region": "r",
    "topology.kubernetes.io/zone": "z",
    "node.kubernetes.io/instance-type": "big",
    "karpenter.sh/capacity-type": "spot",
    "karpenter.sh/nodepool": "p",
    "nvidia.com/gpu.product": "NVIDIA-A10-SHARED",
    "nvidia.com/gpu.replicas": "4",
}
RICH_NODE = node(capacity={"nvidia.com/gpu": "8"}, labels=LABELS_OF_NODE, taints=[TAINT])
MIG_NODE = node(
    capacity={"nvidia.com/mig-1g.5gb": "14"}, labels={"nvidia.com/gpu.count": "2"}, providerID=""
)
KEPT = {"first_seen", "created_at", "labels_from", "annotations_from"}
"""The earliest of all rows."""


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize(("rich", "bare"), [(RICH_NODE, node()), (RICH_NODE, MIG_NODE)])
def test_a_whole_object_leaves_nothing_of_what_it_was_before(
    settings: Settings, now: datetime, rich: Any, bare: Any, at_once: bool
) -> None:
    """Every column of every table: after an update as if the object had always been so."""
    early = now - timedelta(hours=1)
    before, after = (
        build_rows(at, *of) for at, of in ((early, (RICH_POD, rich)), (now, (pod(), bare)))
    )
    stored = []
    for name, rows in (("updated", [*before, *after]), ("fresh", after)):
        home = settings.model_copy(update={"home": settings.home / name})
        with Warehouse.open_in_memory(home, clock=lambda: now) as warehouse:
            batches = [
                batch
                for table in dict(after)
                for batch in build_batches(table, [row for t, row in rows if t == table])
            ]
            for part in [batches] if at_once else [[batch] for batch in batches]:
                warehouse.ingest(part)
            stored.append(
                {
                    (table, column): value
                    for table in dict(after)
                    for row in warehouse.query(f'SELECT * FROM "{table}"').to_pylist()
                    for column, value in row.items()
                    if column not in KEPT
                }
            )
    assert stored[0] == stored[1]


def as_custom(item: dict[str, Any]) -> CustomObject:
    decoded: CustomObject = msgspec.json.decode(json.dumps(item), type=CustomObject)
    return decoded


def test_what_is_removed_from_an_object_is_gone_from_its_row(wh: Warehouse, now: datetime) -> None:
    early = now - timedelta(hours=1)
    full = {table: store(wh, table, row) for table, row in build_rows(early, FULL_POD, FULL_NODE)}
    assert "fallow.dev/protected" in json.loads(full["pod"]["annotations"])
    assert full["pod"]["team"] == "a"
    assert (full["node"]["zone"], json.loads(full["node"]["taints"])[0]["key"]) == (
        "z",
        "maintenance",
    )
    for table, row in build_rows(now, pod(), node()):
        bare = store(wh, table, row)
        for column in list_columns(table):
            if column.unit == "json" and column.name != "containers":
                assert bare[column.name] in {"{}", "[]", "null"}, column.name
        assert bare.get("team") is None
        assert bare.get("zone") is None


def test_kube_state_metrics_without_labels_and_taints_changes_none(
    wh: Warehouse, now: datetime
) -> None:
    early = now - timedelta(hours=1)
    full = {table: store(wh, table, row) for table, row in build_rows(early, FULL_POD, FULL_NODE)}
    life = (early, now)
    series = {
        "kube_node_info": [({"node": "n0"}, 1.0)],
        "kube_pod_info": [({"namespace": "ml", "pod": "p0", "uid": "pod-p0", "node": "n0"}, 1.0)],
    }
    state = KubeState(series, {("ml", "p0", "pod-p0"): life}, {"n0": life})
    holders = frozenset({("ml", "p0")})
    (node_row,) = build_node_rows(state, cluster="c", now=now)
    (pod_row,) = build_pod_rows(
        state, cluster="c", now=now, team_labels=["team"], holder_pods=holders
    )
    for table, row in (("node", node_row), ("pod", pod_row)):
        stored = store(wh, table, row)
        for column in list_columns(table):
            if column.unit == "json" and column.name != "containers":
                assert stored[column.name] == full[table][column.name], column.name
    # A kube-state-metrics that shows the taints of nodes shows that this one has none.
    series["kube_node_spec_unschedulable"] = [({"node": "n0"}, 0.0)]
    (node_row,) = build_node_rows(state, cluster="c", now=now)
    assert store(wh, "node", node_row)["taints"] == "[]"

"""What forbids a stop is stored by the collectors, said by the plan, and read before a write."""

import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from actions.cluster.protections import find_protections
from actions.decide import decide
from actions.facts import gather_facts
from analyzers.protections import read_vetoes
from collectors.prometheus.kube_state import KubeState, build_pod_rows
from fallow.protections import (
    NAMESPACE,
    OWNERS,
    UNREADABLE,
    Protection,
    read_annotations,
    select_protections,
)
from tests.actions.cases import POLICY, SPENT, finding
from tests.actions.places import door
from tests.analyzers.conftest import Memory
from tests.kube.conftest import Cluster, Look
from tests.kube.objects import node, pod

GPU = {"nvidia.com/gpu": "1"}
DEPLOYMENT = ("apps/v1", "Deployment/web")
SAID = {"set": "true", "until": "2999-01-01T00:00:00Z"}
KEYS = [key for key in read_annotations() if key != UNREADABLE]
PLACES = ("pod", "owner", "namespace")


def said(key: str) -> str:
    """Return a value of an annotation that protects."""
    value = read_annotations()[key].value
    return SAID.get(value, value)


@pytest.fixture
def views() -> Iterator[Memory]:
    memory = Memory()
    yield memory
    memory.engine.close()


def site(cluster: Cluster, place: str, words: dict[str, str], kind: str = "annotations") -> None:
    """Put a Deployment's pod on a node, and annotate one of the objects."""
    head = {p: {kind: words} if p == place else {} for p in PLACES}
    cluster.put("Namespace", {"metadata": {"name": "ml", **head["namespace"]}})
    cluster.put("Node", node(capacity=GPU))
    owner = {"name": "web", "namespace": "ml", **head["owner"]}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {}, "spec": {}}}
    cluster.put("Deployment", {"apiVersion": "apps/v1", "metadata": owner, "spec": spec})
    made = pod("web-1", limits=GPU, owner=DEPLOYMENT)
    made["metadata"] |= head["pod"]
    cluster.put("Pod", made)


def planned(
    views: Memory,
    rows: list[dict[str, Any]],
    now: datetime,
    place: tuple[str, str, str] = ("ml", "Deployment", "web"),
) -> str:
    """Return what the plan says of the case whose pods these rows are."""
    zone = [
        {k: v.replace(tzinfo=None) if isinstance(v, datetime) else v for k, v in row.items()}
        for row in rows
    ]
    views.rows("pod", zone)
    subject = finding("Deployment", "ml").subject
    case = finding("Deployment", "ml", subject=type(subject)("c", *place))
    (facts,) = gather_facts(views, [case], now + timedelta(minutes=1))
    decision = decide(POLICY, facts, SPENT, now + timedelta(minutes=1))
    return "; ".join(f"{r.gate}: {r.text}" for r in decision.reasons)


def guard(cluster: Cluster, now: datetime) -> str:
    """Return what the guard before a write says of the objects as they are."""
    reader = door(cluster.url)
    chain = [reader.get("/api/v1/namespaces/ml/pods/web-1")]
    chain.append(reader.get("/apis/apps/v1/namespaces/ml/deployments/web"))
    found = [{"kind": k, **obj} for k, obj in zip(("Pod", "Deployment"), chain, strict=True) if obj]
    space = {"kind": "Namespace", **(reader.get("/api/v1/namespaces/ml") or {})}
    return "; ".join(r.text for r in find_protections(found, space, now))


@pytest.mark.parametrize("place", PLACES)
def test_annotations_that_forbid_a_stop_are_in_the_plan_and_in_the_guard(
    cluster: Cluster, look: Look, views: Memory, now: datetime, place: str
) -> None:
    site(cluster, place, {key: said(key) for key in KEYS})
    (row,) = look()["pod"]
    assert (row["workload_kind"], row["workload"]) == ("Deployment", "web")
    plan, now_so = planned(views, [row], now), guard(cluster, now)
    whose = "its namespace's " if place == "namespace" else ""
    for key in KEYS:
        why = read_annotations()[key].why
        assert f"keep: {why}: {whose}{key}={said(key)}" in plan
        assert f"{why}: {key}={said(key)}" in now_so


@pytest.mark.parametrize("mark", ["", OWNERS, NAMESPACE])
@pytest.mark.parametrize("key", KEYS)
def test_an_annotation_withholds_the_verdict_or_only_acting(key: str, mark: str) -> None:
    words: dict[str, Any] = {key: said(key)}
    stored = json.dumps({mark: words} if mark else words)
    veto = read_annotations()[key].veto
    assert read_vetoes(stored, None) == (veto == "verdict", veto == "act")


@pytest.mark.parametrize("place", PLACES)
def test_a_label_forbids_as_an_annotation_does(
    cluster: Cluster, look: Look, views: Memory, now: datetime, place: str
) -> None:
    site(cluster, place, {"fallow.dev/keep": "true"}, "labels")
    (row,) = look()["pod"]
    assert "keep: " in planned(views, [row], now)
    assert "fallow.dev/keep=true" in guard(cluster, now)
    assert read_vetoes(row["annotations"], row["labels"]) == (True, False)


def test_what_no_longer_forbids_is_no_reason(
    cluster: Cluster, look: Look, views: Memory, now: datetime
) -> None:
    over = {"until": "2000-01-01T00:00:00Z"}
    site(
        cluster,
        "owner",
        {key: over.get(row.value, "no") for key, row in read_annotations().items()},
    )
    (row,) = look()["pod"]
    assert "keep: " not in planned(views, [row], now)
    assert guard(cluster, now) == ""
    assert read_vetoes(row["annotations"], row["labels"]) == (False, False)


@pytest.mark.parametrize(
    "case",
    [
        (("ml", "Deployment", "web"), DEPLOYMENT, "web-2"),
        (("ml", "Deployment", "web"), ("apps/v1", "Lost/web"), "web-x"),
        (("", "Node", "n0"), ("apps/v1", "Lost/other"), "other"),
    ],
    ids=["of its workload", "of the workload that its name begins with", "on its node"],
)
def test_a_pod_that_cannot_be_read_vetoes_acts(
    cluster: Cluster, poll: Look, views: Memory, now: datetime, case: tuple[Any, Any, str]
) -> None:
    place, owner, name = case
    site(cluster, "pod", {})
    evil = pod(name, owner=owner, annotations={"gpu-fraction": "1e999"})
    cluster.put("Pod", evil)
    rows = poll()
    views.rows(
        "node",
        [
            {k: v.replace(tzinfo=None) if isinstance(v, datetime) else v for k, v in row.items()}
            for row in rows["node"]
        ],
    )
    why = "keep: Fallow cannot read it whole"
    assert why in planned(views, rows["pod"], now, place)
    views.engine.execute("DELETE FROM pod")
    others = [row for row in rows["pod"] if row["pod"] != name]
    assert why not in planned(views, others, now, place)


def test_of_several_pods_the_one_that_is_protected_speaks_for_all(
    cluster: Cluster, look: Look, views: Memory, now: datetime
) -> None:
    site(cluster, "pod", {"karpenter.sh/do-not-disrupt": "true"})
    other = pod("web-2", limits=GPU, owner=DEPLOYMENT)
    other["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "false"}
    cluster.put("Pod", other)
    rows = look()["pod"]
    assert len(rows) == 2
    assert "karpenter.sh/do-not-disrupt=true" in planned(views, rows, now)


SERIES = {
    "pod": ("pod", {"namespace": "ml", "pod": "web-1", "uid": "u"}),
    "owner": ("deployment", {"namespace": "ml", "deployment": "web"}),
    "namespace": ("namespace", {"namespace": "ml"}),
}


@pytest.mark.parametrize("form", ["annotation", "label"])
@pytest.mark.parametrize("place", PLACES)
def test_kube_state_metrics_tells_it_too(
    views: Memory, now: datetime, place: str, form: str
) -> None:
    noun, words = SERIES[place]
    spelled = {f"{form}_{re.sub('[^a-z0-9]', '_', key)}": said(key) for key in KEYS}
    about = SERIES["pod"][1]
    replica = {"owner_kind": "ReplicaSet", "owner_name": "web-5", "owner_is_controller": "true"}
    above = {"owner_kind": "Deployment", "owner_name": "web", "owner_is_controller": "true"}
    resource = {"container": "main", "resource": "nvidia_com_gpu", "unit": "integer"}
    series = {
        "kube_pod_info": [({**about, "node": "n0"}, 1.0)],
        "kube_pod_owner": [({**about, **replica}, 1.0)],
        "kube_replicaset_owner": [({"namespace": "ml", "replicaset": "web-5", **above}, 1.0)],
        "kube_pod_container_resource_requests": [({**about, **resource}, 1.0)],
        f"kube_{noun}_{form}s": [({**words, **spelled}, 1.0)],
    }
    state = KubeState(series, {("ml", "web-1", "u"): (now - timedelta(hours=1), now)}, {})
    (row,) = build_pod_rows(state, cluster="c", now=now, team_labels=())
    plan = planned(views, [row], now)
    assert [key for key in KEYS if f"{key}={said(key)}" not in plan] == []


def test_of_two_values_the_one_that_protects_longer_counts() -> None:
    key, until = "karpenter.sh/do-not-disrupt", "fallow.dev/keep-until"
    assert select_protections({key: "false"}, {key: "true"}, {key: "no"}) == {key: "true"}
    assert select_protections({until: "2026-11-20"}, {until: "2027-01-01"}) == {until: "2027-01-01"}
    assert select_protections({until: "some day"}, {until: "2027-01-01"}) == {until: "some day"}
    assert select_protections({"a": "b"}, None) == {}


def test_the_collectors_own_names_are_no_annotations_of_anybody() -> None:
    assert not {OWNERS, NAMESPACE} & set(read_annotations())
    assert all(isinstance(row, Protection) for row in read_annotations().values())

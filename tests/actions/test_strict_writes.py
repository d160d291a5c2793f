"""What Fallow writes or prints for a server is taken strictly: by the stub, and by a real server.

Kinds of others have the fields of `tests/servers/foreign_kinds.csv`: an unknown field or a wrong
type is refused. Restarts, reclaims, quotas, pools and admission are tried beside their executors.
"""

import json
from typing import Any

import numpy as np
import pytest

from actions.canary.deployment import build_manifest
from actions.scaling import manifests
from actions.scaling.executor import PAUSED, WarmPoolExecutor
from actions.scaling.manifests import WarmPool
from actions.snapshots.volumes import request_snapshot
from analyzers.quota.groups import QuotaGroup
from analyzers.quota.patches import describe_proposal
from analyzers.quota.proposal import QuotaProposal
from fallow.action_models import Target
from fallow.settings.actions import CanarySettings
from tests.actions.places import CLUSTER, MERGE, Object, Place
from tests.actions.reclaim.examples import decided

DAY = (*[2.0] * 8, *[6.0] * 10, *[2.0] * 6)
METRIC: dict[str, Any] = {
    "metric": "fallow_headroom_gpus",
    "prometheus": "http://prometheus.monitoring:9090",
}


def pool(place: Place, by_hour: tuple[float, ...] = DAY, **more: Any) -> WarmPool:
    return WarmPool("warm", place.name, "registry.site/pause:1", by_hour, **more)


def collection(place: Place, document: Object) -> str:
    group, _, _ = document["apiVersion"].rpartition("/")
    space = document["metadata"].get("namespace", "")
    path = place.door.collection(document["kind"], group, space)
    assert path is not None, document["kind"]
    return path


def apply(place: Place, document: Object) -> Any:
    path = collection(place, document)
    return place.kube.ask("POST", path, document, fieldValidation="Strict", dryRun="All")


def list_manifests(place: Place) -> list[Object]:
    """Return every manifest of a warm pool and of the canary."""
    followed = pool(place, **METRIC)
    selected = pool(place, node_selector={"pool": "h100"}, gpus_per_pod=8, most_gpus=16.0)
    canary = CanarySettings(image="registry.site/pause:1", namespace=place.name)
    return [
        {**manifests.build_priority_class(), "metadata": {"name": place.name}},
        manifests.build_placeholders(pool(place), 2),
        manifests.build_placeholders(selected, 0),
        manifests.build_by_schedule(pool(place)),
        manifests.build_by_schedule(pool(place, (4.0,) * 24)),
        manifests.build_by_metric(followed),
        manifests.build_hpa(followed),
        dict(build_manifest(canary)),
    ]


def test_every_manifest_of_a_pool_is_taken_strictly(place: Place) -> None:
    for document in list_manifests(place):
        answer = apply(place, document)
        assert answer.code == 201, (document["kind"], answer.body)
        written, stored = document.get("spec") or {}, answer.body.get("spec") or {}
        assert set(written) <= set(stored)


def test_a_field_that_no_schema_has_is_refused_for_each_manifest(place: Place) -> None:
    for document in list_manifests(place):
        if document["kind"] == "PriorityClass":
            continue
        broken = json.loads(json.dumps(document))
        broken["spec"]["fieldOfNobody"] = 1
        answer = apply(place, broken)
        assert answer.code == 400, (document["kind"], answer.body)
        assert "fieldOfNobody" in answer.body["message"]


@pytest.mark.parametrize("stage", [{}, METRIC])
def test_a_warm_pool_is_made_changed_and_paused(place: Place, stage: dict[str, Any]) -> None:
    def intend(by_hour: tuple[float, ...]) -> Any:
        hours = {"headroom_by_hour_utc": list(by_hour), "namespace": place.name}
        parameters = {"image": "registry.site/pause:1", **hours, **stage}
        about = decided("Fleet", "", CLUSTER, "shrink-headroom", parameters=parameters)
        return WarmPoolExecutor().writes(about, place.door)

    intent = intend(DAY)
    place.send(*intent.changes)
    place.send(*intent.undo)
    scaler = place.get("ScaledObject", "fallow-warm-pool")
    assert scaler is not None
    assert scaler["metadata"]["annotations"][PAUSED] == "0"
    changed = intend((*[1.0] * 12, *[8.0] * 12))
    place.send(*changed.changes)
    assert all(place.holds(change) for change in changed.changes)
    place.send(*changed.undo)
    assert place.get("ScaledObject", "fallow-warm-pool")["spec"] == scaler["spec"]  # type: ignore[index]


def test_a_volume_snapshot_is_taken_strictly(place: Place) -> None:
    driver = {"metadata": {"name": place.name}, "provisioner": f"{place.name}.csi.example.com"}
    place.make("StorageClass", driver)
    place.make(
        "VolumeSnapshotClass",
        {
            "metadata": {"name": place.name},
            "driver": driver["provisioner"],
            "deletionPolicy": "Retain",
        },
    )
    claim = {
        "storageClassName": place.name,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    place.make("PersistentVolumeClaim", {"metadata": {"name": "home"}, "spec": claim})
    target = Target(CLUSTER, "v1", "Notebook", place.name, "nb", "")
    path = request_snapshot(place.door, place.name, "home", "d" * 12, target)
    stored = place.door.get(path)
    assert stored is not None
    assert stored["spec"] == {
        "volumeSnapshotClassName": place.name,
        "source": {"persistentVolumeClaimName": "home"},
    }


GPU = "nvidia.com/gpu"
QUOTAS: list[tuple[str, str, Object, Object]] = [
    ("ResourceQuota", "ResourceQuota", {"hard": {f"requests.{GPU}": "8"}},
     {"hard": {f"requests.{GPU}": "12"}}),
    ("Queue.kai", "Queue.scheduling.run.ai",
     {"resources": {"gpu": {"quota": 8, "limit": 8, "overQuotaWeight": 2}}},
     {"resources": {"gpu": {"quota": 12, "limit": 12, "overQuotaWeight": 2}}}),
    ("Queue.volcano", "Queue.scheduling.volcano.sh",
     {"deserved": {GPU: "8"}, "capability": {GPU: "8"}},
     {"deserved": {GPU: "12"}, "capability": {GPU: "12"}}),
    ("ElasticQuota", "ElasticQuota.scheduling.x-k8s.io",
     {"min": {GPU: "8"}, "max": {GPU: "8"}}, {"min": {GPU: "12"}, "max": {GPU: "12"}}),
    ("ElasticQuota.koordinator", "ElasticQuota.scheduling.sigs.k8s.io",
     {"min": {GPU: "8"}, "max": {GPU: "8"}}, {"min": {GPU: "12"}, "max": {GPU: "12"}}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "key", "before", "after"), QUOTAS)
def test_a_printed_patch_of_a_quota_does_what_it_says(
    place: Place, kind: str, key: str, before: Object, after: Object
) -> None:
    name = f"q-{place.name}"
    place.make(key, {"metadata": {"name": name}, "spec": before})
    limit = np.array([[8.0]])
    group = QuotaGroup(
        CLUSTER, kind, "", GPU, False, ((place.name, name),), np.array([0]), np.array([True]),
        limit, limit, *(np.zeros((1, 1)),) * 8, None,  # type: ignore[arg-type]
    )  # fmt: skip
    described = describe_proposal(group, QuotaProposal((), ((0, 8.0, 12.0),), ()))
    (move,) = described["moves"]
    answer = place.kube.ask(
        "PATCH", place.path(key, name), move["patch"], media=MERGE, fieldValidation="Strict"
    )
    assert answer.code == 200, answer.body
    assert {k: answer.body["spec"][k] for k in after} == after

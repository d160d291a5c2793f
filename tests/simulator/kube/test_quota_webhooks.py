"""The quota webhooks refuse what the schedulers' own refuse."""

from typing import Any

import pytest

from simulator.kube.status import StatusError
from simulator.kube.store import ObjectStore
from tests.servers.quota_webhooks import QUOTA_WEBHOOKS

GPU = "nvidia.com/gpu"
TREE = "quota.scheduling.koordinator.sh"
VOLCANO = "Queue.scheduling.volcano.sh"
KOORDINATOR = "ElasticQuota.scheduling.sigs.k8s.io"


@pytest.fixture
def store() -> ObjectStore:
    made = ObjectStore(lambda: 1_790_000_000.0)
    made.webhooks = QUOTA_WEBHOOKS
    made.create(VOLCANO, {"metadata": {"name": "root"}, "spec": {"deserved": {GPU: "16"}}})
    queue = {"capability": {GPU: "12"}, "deserved": {GPU: "8"}}
    made.create(VOLCANO, {"metadata": {"name": "team"}, "spec": queue})
    top = quota("top", 8, 8, is_parent="true")
    made.create(KOORDINATOR, top)
    made.create(KOORDINATOR, quota("a", 5, 8, parent="top"))
    made.create("ClusterQueue", cluster_queue(cohortName="all", lendingLimit="4"))
    return made


def cluster_queue(name: str = "q", *, cohortName: str = "", **limits: str) -> dict[str, Any]:  # noqa: N803
    resource = {"name": GPU, "nominalQuota": "8", **limits}
    flavors = [{"name": "h100", "resources": [resource]}]
    spec: dict[str, Any] = {"resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}]}
    return {"metadata": {"name": name}, "spec": {**spec, "cohortName": cohortName}}


def quota(name: str, low: int, high: int, **labels: str) -> dict[str, Any]:
    words = {f"{TREE}/{k.replace('_', '-')}": v for k, v in labels.items()}
    spec = {"min": {GPU: str(low)}, "max": {GPU: str(high)}}
    return {"metadata": {"name": name, "namespace": "default", "labels": words}, "spec": spec}


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (cluster_queue("b", borrowingLimit="4"), "borrowingLimit: must be nil when cohort is"),
        (cluster_queue("b", cohortName="all", lendingLimit="9"), "lendingLimit: must be less"),
        (cluster_queue("b", cohortName="all", borrowingLimit="-1"), "greater than or equal to 0"),
    ],
)
def test_kueue_refuses(store: ObjectStore, item: dict[str, Any], why: str) -> None:
    with pytest.raises(StatusError, match=why) as refused:
        store.create("ClusterQueue", item)
    assert refused.value.code == 403


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"deserved": {GPU: "9"}, "capability": {GPU: "8"}}, "deserved of nvidia.com/gpu should"),
        (
            {"guarantee": {"resource": {GPU: "3"}}, "deserved": {GPU: "2"}},
            "guarantee of nvidia.com/gpu should",
        ),
        ({"deserved": {GPU: "9"}}, "sum of children's deserved of nvidia.com/gpu exceeds"),
        ({"capability": {GPU: "13"}, "parent": "team"}, "greater than that of its ancestor team"),
    ],
)
def test_volcano_refuses(store: ObjectStore, spec: dict[str, Any], why: str) -> None:
    with pytest.raises(StatusError, match=why) as refused:
        store.create(VOLCANO, {"metadata": {"name": "new"}, "spec": spec})
    assert refused.value.code == 400


def test_volcanos_root_is_immutable(store: ObjectStore) -> None:
    with pytest.raises(StatusError, match="root queue's deserved is immutable"):
        store.patch(VOLCANO, "root", "", {"spec": {"deserved": {GPU: "20"}}})


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (quota("b", 4, 8, parent="top"), "brother quotas' min sum > parent's min"),
        (quota("b", 3, 2, parent="top"), "above max"),
        (quota("b", 1, 2, parent="top", tree_id="other"), "its tree is not its parent's"),
    ],
)
def test_koordinator_refuses(store: ObjectStore, item: dict[str, Any], why: str) -> None:
    with pytest.raises(StatusError, match=why) as refused:
        store.create(KOORDINATOR, item)
    assert refused.value.code == 400


def test_a_status_is_nobodys_to_judge_and_a_dry_run_is_judged(store: ObjectStore) -> None:
    store.patch(KOORDINATOR, "a", "default", {"status": {"used": {GPU: "9"}}}, subresource="status")
    body = {"spec": {"min": {GPU: "9"}}}
    with pytest.raises(StatusError, match="denied the request"):
        store.patch(KOORDINATOR, "a", "default", body, dry_run=True)

"""Owners: the topmost one, or nobody; never a lower one."""

from collections.abc import Mapping
from typing import Any

import pytest

from actions.cluster.client import KubeClient
from actions.cluster.owner_chains import OwnerChainReader
from actions.cluster.workload_pods import count_requested_gpus, list_workload_pods
from fallow.action_models import Target
from fallow.kube.objects import to_target
from fallow.kube.owner_chains import UnknownOwner
from tests.actions.places import Object, Place, door
from tests.actions.reclaim.examples import GROUPS_OF_TWO, POD, job, replicated


class Asked(KubeClient):
    """A door that remembers which objects were read singly."""

    def __init__(self, other: KubeClient) -> None:
        super().__init__(other._api, other.name)
        self.got: list[str] = []

    def get(self, path: str) -> Any:
        self.got.append(path)
        return super().get(path)


def under(owner: Object) -> dict[str, Any]:
    """Return metadata of something that an object controls."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    return {"ownerReferences": [reference]}


def make(
    place: Place, key: str, name: str, spec: Any, owner: Object | None = None, **meta: Any
) -> Object:
    above = under(owner) if owner else {}
    whole = {} if spec is None else {"spec": spec}
    return place.make(key, {"metadata": {"name": name, **above, **meta}, **whole})


def pod(place: Place, name: str = "p", owner: Object | None = None, **meta: Any) -> Object:
    return make(place, "Pod", name, POD, owner, **meta)


Chain = tuple[Mapping[str, Any], ...] | UnknownOwner


def read_chain(made: Object, place_door: KubeClient) -> Chain:
    return OwnerChainReader(place_door).chain({"apiVersion": "v1", "kind": "Pod", **made})


def reason(chain: Chain) -> str:
    assert isinstance(chain, UnknownOwner), chain
    return chain.reason


def top(chain: Chain) -> Target:
    assert not isinstance(chain, UnknownOwner), chain
    return to_target(chain[-1], "sim")


def named(chain: Chain) -> str:
    return f"{top(chain).kind}/{top(chain).name}"


def test_a_chain_is_climbed_to_its_top(place: Place) -> None:
    book = make(place, "Notebook", "n", {"template": {}})
    own = make(place, "StatefulSet", "n", {"serviceName": "n", **replicated(1)}, book)
    found = read_chain(pod(place, "n-0", own), place.door)
    assert named(found) == "Notebook/n"
    assert top(found).uid == book["metadata"]["uid"]


def test_an_owner_that_is_gone_means_no_action(place: Place) -> None:
    own = make(place, "Job", "j", job())
    made = pod(place, "p", own)
    # As it is, a deleted Job waits for the collector with the finalizer `orphan`.
    path = place.path("Job", "j")
    assert place.kube.ask("DELETE", path, propagationPolicy="Background").code == 200
    assert "Job j is not there" in reason(read_chain(made, place.door))
    make(place, "Job", "j", job())
    assert "another object has its name" in reason(read_chain(made, place.door))


def test_an_owner_of_a_kind_that_is_not_served_means_no_action(place: Place) -> None:
    strange = {
        "apiVersion": "no.where/v1",
        "kind": "Strange",
        "metadata": {"name": "s", "uid": "1"},
    }
    assert "Strange s is not there" in reason(read_chain(pod(place, "p", strange), place.door))


def test_an_owner_that_may_not_be_read_means_no_action(place: Place) -> None:
    if place.server is None:
        pytest.skip("the stand-in forbids one resource at a time")
    own = make(place, "Job", "j", job())
    made = pod(place, "p", own)
    place.server.access.users["half"] = "half"
    place.server.access.deny("get", "jobs", user="half")
    found = read_chain(made, door(place.kube.url, token="half"))
    assert "may not be read" in reason(found)


def test_a_chain_without_end_means_no_action(place: Place) -> None:
    owner = make(place, "ConfigMap", "c0", None)
    for number in range(1, 12):
        owner = make(place, "ConfigMap", f"c{number}", None, owner)
    assert "more than 10 owners" in reason(read_chain(pod(place, "p", owner), place.door))


def test_a_static_pod_belongs_to_nobody_we_stop(place: Place) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "none", "uid": "1"}}
    assert isinstance(read_chain(pod(place, "p", node), place.door), UnknownOwner)


def test_a_bare_pod_is_its_own_target(place: Place) -> None:
    assert named(read_chain(pod(place), place.door)) == "Pod/p"


def test_a_volcano_job_is_told_from_a_built_in_one(place: Place) -> None:
    own = make(place, "Job.batch.volcano.sh", "v", {"tasks": []})
    found = read_chain(pod(place, "p", own), place.door)
    assert top(found).api_version == "batch.volcano.sh/v1alpha1"


def test_every_worker_of_a_leader_worker_set_leads_to_the_set_once(place: Place) -> None:
    """Regression 15: the action is on the LeaderWorkerSet, once, and never on its pods."""
    whole = make(place, "LeaderWorkerSet", "l", GROUPS_OF_TWO)
    leaders = make(place, "StatefulSet", "l", {"serviceName": "l", **replicated(1)}, whole)
    label = {"labels": {"leaderworkerset.sigs.k8s.io/name": "l"}}
    leader = pod(place, "l-0", leaders, **label)
    workers = make(place, "StatefulSet", "l-0", {"serviceName": "l", **replicated(2)}, leader)
    pods = [leader, pod(place, "l-0-1", workers, **label), pod(place, "l-0-2", workers, **label)]
    found = {named(read_chain(p, place.door)) for p in pods}
    assert found == {"LeaderWorkerSet/l"}
    target = top(read_chain(leader, place.door))
    names = sorted(p["metadata"]["name"] for p in place.door.pods(target))
    assert names == ["l-0", "l-0-1", "l-0-2"]


def test_a_label_leads_on_where_references_end(place: Place) -> None:
    make(place, "RayCluster", "r", {"headGroupSpec": {}})
    made = pod(place, labels={"ray.io/cluster": "r"})
    assert named(read_chain(made, place.door)) == "RayCluster/r"
    alone = pod(place, "q", labels={"ray.io/cluster": "elsewhere"})
    assert named(read_chain(alone, place.door)) == "Pod/q"


def test_all_pods_of_an_object_are_found_and_no_other(place: Place) -> None:
    sets = {}
    for name in ("d", "e"):
        own = make(place, "Deployment", name, replicated())
        sets[name] = make(place, "ReplicaSet", f"{name}-1", replicated(), own)
    for number in range(3):
        pod(place, f"d-{number}", sets["d"])
        pod(place, f"e-{number}", sets["e"])
    pod(place, "alone")
    target = top(read_chain(place.get("Pod", "d-0") or {}, place.door))
    found = place.door.pods(target)
    assert sorted(p["metadata"]["name"] for p in found) == ["d-0", "d-1", "d-2"]
    assert [count_requested_gpus(p) for p in found] == [2, 2, 2]


def test_many_owners_of_a_kind_are_listed_and_not_read_one_by_one(place: Place) -> None:
    jobs = [make(place, "Job", f"j{n}", job()) for n in range(8)]
    for n, own in enumerate(jobs):
        pod(place, f"p{n}", own)
    wanted = Asked(place.door)
    own = make(place, "CronJob", "c", {"schedule": "* * * * *", "jobTemplate": {"spec": job()}})
    target = Target("sim", "batch/v1", "CronJob", place.name, "c", own["metadata"]["uid"])
    assert list(list_workload_pods(target, wanted)) == []
    assert len(wanted.got) == 3


def test_a_chain_names_every_owner(place: Place) -> None:
    own = make(place, "Deployment", "d", replicated())
    found = read_chain(
        pod(place, "p", make(place, "ReplicaSet", "d-1", replicated(), own)), place.door
    )
    assert not isinstance(found, UnknownOwner)
    assert [o["kind"] for o in found] == ["Pod", "ReplicaSet", "Deployment"]


@pytest.mark.parametrize(
    ("limits", "count", "reserved"),
    [
        ({"nvidia.com/gpu": "2"}, 2.0, 8),  # of one resource the greater of what runs at once
        ({"nvidia.com/mig-3g.40gb": "2"}, 6 / 7, 6 / 7 + 8),
        ({"nvidia.com/gpumem": "8000", "nvidia.com/gpu": "1"}, 1.0, 8),
        ({"cpu": "4"}, 0.0, 8),
    ],
)
def test_gpus_of_a_pod(limits: dict[str, str], count: float, reserved: float) -> None:
    main = {"name": "m", "resources": {"limits": limits}}
    start = {"name": "i", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    side = {**start, "restartPolicy": "Always"}
    alone = {"spec": {"containers": [main], "initContainers": [start]}}
    assert count_requested_gpus(alone) == pytest.approx(reserved)
    both = {"spec": {"containers": [main], "initContainers": [side]}}
    assert count_requested_gpus(both) == pytest.approx(count + 8)

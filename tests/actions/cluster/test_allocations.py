"""The GPUs that pods hold: extended resources of every kind, shares of one, DRA claims."""

from typing import Any

import pytest

from actions.cluster.allocations import count_allocated_gpus
from actions.reclaim.scaling import ScaleExecutor
from fallow.errors import RefusedError
from tests.actions.places import Object, Place
from tests.actions.reclaim.examples import decided, replicated

DRIVER = "gpu.nvidia.com"
NODE = "n-1"
EXTENDED = {"annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}}


def pod(place: Place, name: str, amounts: Any = None, **more: Any) -> Object:
    """Make a pod that runs on a node; `more` is of its spec."""
    head = {"metadata": {"name": name, **more.pop("meta", {})}}
    status = {"phase": "Running", **more.pop("status", {})}
    resources = {"limits": amounts} if amounts else {}
    main = {"name": "main", "image": "b", "resources": resources}
    spec = {"nodeName": NODE, "containers": [main], **more}
    return place.make("Pod", {**head, "spec": {k: v for k, v in spec.items() if v}}, status=status)


def claim(place: Place, name: str, *users: Object, head: Any = None, **result: Any) -> None:
    """Make a claim with one device, reserved for pods."""
    results = [
        {
            "request": "gpu",
            "driver": DRIVER,
            "pool": place.name,
            "device": "gpu-0",
            **one,
        }
        for one in result.pop("results", [result])
    ]
    reserved = [
        {"resource": "pods", "name": u["metadata"]["name"], "uid": u["metadata"]["uid"]}
        for u in users
    ]
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    place.make(
        "ResourceClaim",
        {"metadata": {"name": name, **(head or {})}, "spec": {"devices": {"requests": [request]}}},
        status={"allocation": {"devices": {"results": results}}, "reservedFor": reserved},
    )


def served_by(name: str, resource: str) -> Object:
    """Return the status of a pod whose extended resource a claim serves."""
    mapping = {"containerName": "main", "resourceName": resource, "requestName": "gpu"}
    return {
        "extendedResourceClaimStatus": {"resourceClaimName": name, "requestMappings": [mapping]}
    }


def offer(place: Place, *devices: Object, generation: int = 1) -> None:
    """Offer devices in a pool of this test's own."""
    pool = {"name": place.name, "generation": generation, "resourceSliceCount": 1}
    place.make(
        "ResourceSlice",
        {
            "metadata": {"name": f"{place.name}-{generation}"},
            "spec": {"driver": DRIVER, "nodeName": NODE, "pool": pool, "devices": list(devices)},
        },
    )


def whole(name: str, **capacity: str) -> Object:
    return {
        "name": name,
        "attributes": {"uuid": {"string": f"GPU-{name}"}},
        "capacity": {key: {"value": value} for key, value in capacity.items()},
    }


def instance(name: str, profile: str) -> Object:
    attributes = {"uuid": {"string": f"MIG-{name}"}, "profile": {"string": profile}}
    return {"name": name, "attributes": attributes}


def held(place: Place, *pods: Object) -> list[float]:
    found = count_allocated_gpus(pods, place.door)
    return [round(found[p["metadata"]["uid"]], 6) for p in pods]


@pytest.mark.parametrize(
    ("amounts", "gpus"),
    [
        ({"nvidia.com/gpu": "2"}, 2),
        ({"amd.com/gpu": "4"}, 4),
        ({"nvidia.com/gpu.shared": "1"}, 1),
        ({"nvidia.com/mig-1g.10gb": "1"}, 1 / 7),
        ({"nvidia.com/mig-3g.40gb": "2"}, 6 / 7),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"}, 0.5),
        ({"nvidia.com/gpu": "2", "nvidia.com/gpucores": "30"}, 0.6),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8000"}, 1),
        ({"gpu.intel.com/i915": "1"}, 1),
        ({"cpu": "4", "memory": "1Gi"}, 0),
    ],
    ids=lambda said: next(iter(said)) if isinstance(said, dict) else None,
)
def test_each_kind_of_extended_resource_counts_as_physical_gpus(
    place: Place, amounts: dict[str, str], gpus: float
) -> None:
    assert held(place, pod(place, "p", amounts)) == [round(gpus, 6)]


def test_pending_and_ended_pods_hold_nothing(place: Place) -> None:
    waiting = pod(place, "w", {"nvidia.com/gpu": "2"}, nodeName="", status={"phase": "Pending"})
    starting = pod(place, "s", {"nvidia.com/gpu": "2"}, status={"phase": "Pending"})
    done = pod(place, "d", {"nvidia.com/gpu": "2"}, status={"phase": "Succeeded"})
    assert held(place, waiting, starting, done) == [0, 2, 0]


def test_of_init_containers_the_largest_counts_and_sidecars_add(place: Place) -> None:
    def init(gpus: int, **more: str) -> Object:
        limits = {"nvidia.com/gpu": str(gpus)}
        return {"name": f"i{gpus}", "image": "b", "resources": {"limits": limits}, **more}

    more = {"initContainers": [init(4), init(1, restartPolicy="Always"), init(2)]}
    assert held(place, pod(place, "p", {"nvidia.com/gpu": "2"}, **more)) == [4]
    more = {"initContainers": [init(1, restartPolicy="Always"), init(3)]}
    assert held(place, pod(place, "q", {"nvidia.com/gpu": "2"}, **more)) == [4]


def test_a_time_sliced_replica_is_a_part_of_a_gpu(place: Place) -> None:
    labels = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}
    node = f"{place.name}-sliced"
    place.make("Node", {"metadata": {"name": node, "labels": labels}})
    shared = pod(place, "p", {"nvidia.com/gpu.shared": "2"}, nodeName=node)
    plain = pod(place, "q", {"nvidia.com/gpu": "1"}, nodeName=node)
    assert held(place, shared, plain) == [0.5, 0.25]


def test_kai_shares_count_as_asked(place: Place) -> None:
    half = pod(place, "p", meta={"annotations": {"gpu-fraction": "0.5"}})
    two = {"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}
    assert held(place, half, pod(place, "q", meta={"annotations": two})) == [0.5, 0.5]


CLAIMS = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}


def test_devices_of_claims_are_counted(place: Place) -> None:
    offer(place, whole("gpu-0"), whole("gpu-1"), instance("cut", "3g.40gb"))
    one, two, part = (pod(place, n, **CLAIMS) for n in ("one", "two", "part"))
    claim(place, "c1", one, device="gpu-0")
    claim(place, "c2", two, results=[{"device": "gpu-0"}, {"device": "gpu-1"}])
    claim(place, "c3", part, device="cut")
    assert held(place, one, two, part) == [1, 2, round(3 / 7, 6)]


def test_a_pending_pod_with_a_claim_holds_nothing(place: Place) -> None:
    offer(place, whole("gpu-0"))
    waiting = pod(place, "w", nodeName="", status={"phase": "Pending"}, **CLAIMS)
    claim(place, "c", waiting)
    assert held(place, waiting) == [0]


def test_monitoring_network_cards_and_strangers_claims_hold_no_gpu(place: Place) -> None:
    offer(place, whole("gpu-0"))
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    answer = place.kube.ask(
        "PATCH", f"/api/v1/namespaces/{place.name}", label, media="application/merge-patch+json"
    )
    assert answer.code == 200
    eyes, card, other = (pod(place, n, **CLAIMS) for n in ("eyes", "card", "other"))
    claim(place, "c1", eyes, adminAccess=True)
    claim(place, "c2", card, driver="dra.net", device="eth1")
    claim(place, "c3", eyes, driver="compute-domain.nvidia.com", device="channel-0")
    assert held(place, eyes, card, other) == [0, 0, 0]


def test_a_claim_of_several_pods_counts_in_equal_parts(place: Place) -> None:
    offer(place, whole("gpu-0"))
    pods = [pod(place, f"p{n}", **CLAIMS) for n in range(4)]
    claim(place, "c", *pods)
    assert held(place, *pods) == [0.25] * 4


def test_consumed_capacity_is_a_part_of_the_device(place: Place) -> None:
    offer(place, whole("gpu-0", memory="80Gi"))
    one = pod(place, "p", **CLAIMS)
    claim(
        place,
        "c",
        one,
        consumedCapacity={"memory": "20Gi"},
        shareID="00000000-0000-4000-8000-000000000001",
    )
    assert held(place, one) == [0.25]


def test_without_slices_the_driver_and_the_devices_name_say_what_it_is(place: Place) -> None:
    one, part = (pod(place, n, **CLAIMS) for n in ("one", "part"))
    claim(place, "c1", one, device="gpu-3")
    claim(place, "c2", part, device="gpu-0-mig-1g10gb-19-0")
    assert held(place, one, part) == [1, round(1 / 7, 6)]


def test_the_newest_generation_of_a_pool_says_what_a_device_is(place: Place) -> None:
    offer(place, instance("gpu-0", "1g.10gb"), generation=1)
    offer(place, whole("gpu-0"), generation=2)
    one = pod(place, "p", **CLAIMS)
    claim(place, "c", one)
    assert held(place, one) == [1]


def test_a_plain_gpu_that_dra_serves_counts_once(place: Place) -> None:
    offer(place, whole("gpu-0"))
    plain = pod(place, "p", {"nvidia.com/gpu": "1"}, status=served_by("p-x", "nvidia.com/gpu"))
    claim(place, "p-x", plain, head=EXTENDED)
    assert held(place, plain) == [1]


def test_a_device_class_asked_for_by_name_counts_by_its_claim(place: Place) -> None:
    offer(place, whole("gpu-0"))
    resource = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
    named = pod(place, "p", {resource: "1"}, status=served_by("p-x", resource))
    claim(place, "p-x", named, head=EXTENDED)
    assert held(place, named) == [1]


def test_claims_that_may_not_be_listed_are_refused_and_asked_for_only_where_needed(
    place: Place,
) -> None:
    if place.server is None:
        pytest.skip("the real server's rights are the subject of tests/kube/test_rights.py")
    plain, claiming = pod(place, "p", {"nvidia.com/gpu": "1"}), pod(place, "q", **CLAIMS)
    place.server.access.deny("list", "resourceclaims", namespace=place.name)
    assert held(place, plain) == [1]
    with pytest.raises(RefusedError, match="resourceclaims"):
        held(place, claiming)


def test_what_a_stop_of_dra_pods_frees_is_counted(place: Place) -> None:
    offer(place, whole("gpu-0"), whole("gpu-1"))
    owner = place.make("StatefulSet", {"metadata": {"name": "x"}, "spec": replicated(3)})
    ref = {"apiVersion": "apps/v1", "kind": "StatefulSet", "controller": True}
    named = {**ref, "name": "x", "uid": owner["metadata"]["uid"]}
    meta = {"ownerReferences": [named]}
    pods = [pod(place, f"x-{n}", meta=meta, **CLAIMS) for n in range(2)]
    for n, one in enumerate(pods):
        claim(place, f"c{n}", one, device=f"gpu-{n}")
    pod(place, "x-2", meta=meta, nodeName="", status={"phase": "Pending"}, **CLAIMS)
    decision = decided("StatefulSet", place.name, "x", "scale to zero")
    intent = ScaleExecutor().writes(decision, place.door)
    assert sorted((h.pod, h.gpus) for h in intent.frees) == [("x-0", 1), ("x-1", 1), ("x-2", 0)]

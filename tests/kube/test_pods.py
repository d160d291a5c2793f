"""Pods: what they ask for under every way of sharing, whose they are, what they were given."""

import json
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from collectors.kube.devices import Dra
from collectors.kube.owners import TopOwner
from collectors.kube.pods import PodContext, build_pod_row
from collectors.kube.queues import Queues
from collectors.kube.shapes import CustomObject
from collectors.prometheus.kube_state import KubeState, build_pod_rows
from fallow.rejections import Rejection
from tests.kube.objects import Object, as_pod, pod

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def row(item: Object, **around: Any) -> dict[str, Any]:
    known = {"cluster": "c", "now": lambda: NOW, "resolve": lambda _: TopOwner("Pod", "p", None)}
    return build_pod_row(as_pod(item), PodContext(**{**known, **around}))


def custom(**what: Any) -> CustomObject:
    return msgspec.json.decode(json.dumps({"metadata": {"name": "x"}, **what}), type=CustomObject)


@pytest.mark.parametrize(
    ("limits", "resource", "gpus"),
    [
        ({}, None, 0),
        ({"cpu": "4"}, None, 0),
        ({"nvidia.com/gpu": "2"}, "nvidia.com/gpu", 2),
        ({"nvidia.com/mig-1g.10gb": "1"}, "nvidia.com/mig-1g.10gb", 1 / 7),
        ({"nvidia.com/mig-3g.40gb": "2"}, "nvidia.com/mig-3g.40gb", 6 / 7),
        ({"amd.com/gpu": "1"}, "amd.com/gpu", 1),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "30"}, "nvidia.com/gpu", 0.3),
        ({"nvidia.com/gpu": "2", "nvidia.com/gpumem-percentage": "50"}, "nvidia.com/gpu", 1),
    ],
)
def test_gpu_requests_count_physical_gpus(limits: Any, resource: str | None, gpus: float) -> None:
    found = row(pod(limits=limits))
    assert found.get("gpu_resource") == resource
    assert found["gpu_request"] == pytest.approx(gpus)


def test_a_replica_is_its_share_of_a_gpu() -> None:
    found = row(pod(limits={"nvidia.com/gpu": "1"}, node="n0"), parts={"n0": Fraction(1, 4)})
    assert found["gpu_request"] == 0.25


def test_rules_of_placement_towards_other_pods_are_kept() -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    skew = {"maxSkew": 2, "topologyKey": "zone", "labelSelector": {}}
    item = pod(
        affinity={
            "podAntiAffinity": {required: [{**term, "namespaceSelector": {}}]},
            "podAffinity": {preferred: [{"weight": 1, "podAffinityTerm": term}]},
        },
        topologySpreadConstraints=[
            {**skew, "whenUnsatisfiable": "DoNotSchedule"},
            {**skew, "whenUnsatisfiable": "ScheduleAnyway"},
        ],
        containers=[{"name": "main", "ports": [{"hostPort": 80}, {"containerPort": 8080}]}],
    )
    selector = {"matchLabels": {"app": "web"}}
    assert json.loads(row(item)["constraints"]) == {
        "apart": [{"topology": "zone", "selector": selector, "namespaces": ["*"]}],
        "spread": [{"topology": "zone", "skew": 2, "selector": {}}],
        "ports": ["80/TCP"],
    }
    assert row(pod())["constraints"] == "{}"


def test_hami_memory_and_cores_are_kept() -> None:
    limits = {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "4000", "nvidia.com/gpucores": "25"}
    found = row(pod(limits=limits))
    assert found["gpu_mem_request_bytes"] == 2 * 4000 * 2**20
    assert found["gpu_core_request_pct"] == 25


@pytest.mark.parametrize(
    ("annotations", "gpus", "memory"),
    [
        ({"gpu-fraction": "0.5"}, 0.5, None),
        ({"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}, 0.5, None),
        ({"gpu-memory": "2000"}, None, 2000 * 2**20),
    ],
)
def test_kai_fractions_ask_without_a_resource(
    annotations: Any, gpus: float | None, memory: int | None
) -> None:
    found = row(pod(annotations=annotations))
    assert found["gpu_resource"] == "nvidia.com/gpu"
    assert found["gpu_request"] == gpus
    assert found["gpu_mem_request_bytes"] == memory


def test_hami_devices_carry_the_greater_share() -> None:
    words = {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,4096,10:GPU-2,NVIDIA,1024,50:;;"}
    register = {"n0": {"GPU-1": 16384, "GPU-2": 16384}}
    found = row(pod(annotations=words, limits={"nvidia.com/gpu": "2"}), registers=register)
    devices = json.loads(found["devices"])
    assert [(d["device"], d["share"]) for d in devices] == [("GPU-1", 0.25), ("GPU-2", 0.5)]
    assert devices[0]["memory_bytes"] == 4096 * 2**20


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        # no cores and unknown memory: the device is known, the share is not
        ({"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,4096,0:;"}, [("GPU-1", None)]),
        # two containers on one device add up, at most to the whole of it
        (
            {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,1,60:;GPU-1,NVIDIA,1,60:;"},
            [("GPU-1", 1.0)],
        ),
        # an instance that HAMi cut
        ({"hami.io/vgpu-devices-allocated": "GPU-1[0-1],NVIDIA,1,40:;"}, [("GPU-1", 0.4)]),
        (
            {
                "hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,1,60:;",
                "hami.io/bind-phase": "failed",
            },
            [],
        ),
        ({"hami.io/vgpu-devices-allocated": "nonsense"}, []),
        ({"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,nan,-inf:;"}, [("GPU-1", None)]),
        ({"hami.io/vgpu-devices-to-allocate": "GPU-1,NVIDIA,1,60:;"}, []),
    ],
)
def test_hami_annotations_in_all_their_forms(words: Any, expected: Any) -> None:
    found = row(pod(annotations=words, limits={"nvidia.com/gpu": "1"}))["devices"]
    devices = json.loads(found or "[]")
    assert [(d["device"], d.get("share")) for d in devices] == expected


def dra(*, users: list[str], admin: bool = False, generation: int = 2, basic: bool = False) -> Dra:
    def device(name: str, **words: str) -> Object:
        attributes = {"attributes": {k: {"string": v} for k, v in words.items()}}
        return {"name": name, **({"basic": attributes} if basic else attributes)}

    def offer(uuid: str, generation: int) -> CustomObject:
        devices = [
            device("gpu-0", uuid=uuid),
            device("mig-0", uuid="MIG-9", parentUUID="GPU-9", profile="2g.20gb"),
        ]
        pool = {"name": "n0", "generation": generation}
        return custom(
            spec={"driver": "gpu.nvidia.com", "nodeName": "n0", "pool": pool, "devices": devices}
        )

    result = {"driver": "gpu.nvidia.com", "pool": "n0"}
    results = [{**result, "device": "gpu-0", "adminAccess": admin}, {**result, "device": "mig-0"}]
    claim = custom(
        status={
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": u, "uid": u} for u in users],
        }
    )
    return Dra([offer("GPU-new", generation), offer("GPU-old", 1)], [claim])


@pytest.mark.parametrize("basic", [False, True])
def test_claims_name_devices_by_uuid(basic: bool) -> None:
    found = row(pod("p0"), dra=dra(users=["pod-p0"], basic=basic))
    assert json.loads(found["devices"]) == [
        {"device": "GPU-new", "share": 1.0, "source": "dra"},
        {
            "device": "MIG-9",
            "share": 1.0,
            "source": "dra",
            "parent": "GPU-9",
            "profile": "2g.20gb",
        },
    ]
    assert found["gpu_request"] == pytest.approx(1 + 2 / 7)
    assert found["gpu_resource"] == "claim/dra"


@pytest.mark.parametrize(
    ("registers", "limits", "expected", "reason"),
    [
        ({}, {}, None, "requests no GPU"),
        ({"n0": {"GPU-2": 81920}}, {"nvidia.com/gpu": "1"}, None, "no device of its node n0"),
        ({"n1": {"GPU-1": 81920}}, {"nvidia.com/gpu": "1"}, None, "no device of its node n0"),
        ({"n0": {"GPU-1": 81920}}, {"nvidia.com/gpu": "1"}, (1.0, None), ""),
        ({}, {"nvidia.com/gpu": "1"}, (1.0, True), ""),
        # what the annotation gives beyond the request
        ({}, {"nvidia.com/gpu": "1", "nvidia.com/gpucores": "25"}, (0.25, True), ""),
        (
            {"n0": {"GPU-1": 81920}},
            {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "20480"},
            (0.25, None),
            "",
        ),
    ],
)
def test_hamis_annotation_needs_a_request_and_a_device_of_its_node(
    registers: Any, limits: Any, expected: Any, reason: str
) -> None:
    refused: list[Rejection] = []
    words = {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,81920,100:;"}
    item = pod(annotations=words, limits=limits)
    devices = json.loads(row(item, registers=registers, refused=refused)["devices"] or "[]")
    found = [(d["share"], d.get("estimated")) for d in devices]
    assert found == ([] if expected is None else [expected])
    assert [reason in one.reason for one in refused] == [True] * bool(reason)


def test_a_claim_of_several_pods_says_no_share() -> None:
    found = row(pod("p0"), dra=dra(users=["pod-p0", "pod-p1"]))
    assert "share" not in json.loads(found["devices"])[0]


def test_monitoring_access_holds_nothing() -> None:
    devices = json.loads(row(pod("p0"), dra=dra(users=["pod-p0"], admin=True))["devices"])
    assert [d["device"] for d in devices] == ["MIG-9"]


def test_claims_of_others_are_not_ours() -> None:
    assert row(pod("p0"), dra=dra(users=["pod-p1"]))["devices"] == "[]"


def test_the_team_is_the_first_label_of_pod_then_namespace() -> None:
    around = {"team_labels": ["team", "owner"], "namespaces": {"ml": {"team": "platform"}}}
    assert row(pod(), **around)["team"] == "platform"
    assert row(pod(labels={"owner": "ada"}), **around)["team"] == "ada"
    assert row(pod(labels={"owner": "ada", "team": "vision"}), **around)["team"] == "vision"
    assert row(pod(namespace="other"), **around)["team"] is None


@pytest.mark.parametrize(
    ("words", "queue"),
    [
        ({"labels": {"kueue.x-k8s.io/queue-name": "q"}}, "q"),
        ({"labels": {"kai.scheduler/queue": "q"}}, "q"),
        ({"annotations": {"scheduling.volcano.sh/queue-name": "q"}}, "q"),
        ({"annotations": {"scheduling.k8s.io/group-name": "pg"}}, "from-group"),
        ({"annotations": {"pod-group-name": "pg"}}, "from-group"),
        ({}, "from-workload"),
    ],
)
def test_the_queue_comes_from_labels_groups_or_workloads(words: Any, queue: str) -> None:
    queues = Queues()
    queues.add_groups(
        [custom(metadata={"name": "pg", "namespace": "ml"}, spec={"queue": "from-group"})]
    )
    labels = {"kueue.x-k8s.io/job-uid": "job-1"}
    queues.add_workloads(
        [custom(metadata={"name": "w", "labels": labels}, spec={"queueName": "from-workload"})]
    )
    found = row(pod(**words), queues=queues, resolve=lambda _: TopOwner("Job", "j", "job-1"))
    assert found["queue"] == queue


@pytest.mark.parametrize(
    ("status", "queued"),
    [
        ({}, "2026-11-20T07:30:00+00:00"),
        (
            {"conditions": [{"type": "Requeued", "status": "True",
                             "lastTransitionTime": "2026-11-20T07:45:00Z"}]},
            "2026-11-20T07:45:00+00:00",
        ),
    ],
)  # fmt: skip
def test_a_pod_of_kueue_was_queued_when_its_workload_was(status: Any, queued: str) -> None:
    queues = Queues()
    meta = {"name": "w", "labels": {"kueue.x-k8s.io/job-uid": "job-1"},
            "creationTimestamp": "2026-11-20T07:30:00Z"}  # fmt: skip
    queues.add_workloads([custom(metadata=meta, spec={"queueName": "q"}, status=status)])
    found = row(pod(), queues=queues, resolve=lambda _: TopOwner("Job", "j", "job-1"))
    assert json.loads(found["annotations"])["fallow.queued-at"] == queued
    assert "fallow.queued-at" not in (row(pod())["annotations"] or "")


def test_an_owner_that_cannot_be_known_is_null_but_the_direct_one_is_kept() -> None:
    found = row(pod(owner=("apps/v1", "ReplicaSet/web-abc")), resolve=lambda _: None)
    assert (found["workload_kind"], found["workload"]) == (None, None)
    assert (found["owner_kind"], found["owner_name"]) == ("ReplicaSet", "web-abc")


def test_times_are_those_of_the_pods_life() -> None:
    item = pod(phase="Succeeded")
    item["status"]["containerStatuses"] = [
        {"state": {"terminated": {"finishedAt": "2026-11-20T09:00:00Z"}}},
        {"state": {"terminated": {"finishedAt": "2026-11-20T09:30:00Z"}}},
    ]
    item["metadata"]["deletionTimestamp"] = "2026-11-20T10:00:00Z"
    found = row(item)
    times = ("created_at", "scheduled_at", "started_at", "finished_at", "deleted_at")
    assert [f"{found[t]:%H:%M:%S}" for t in times] == [
        "08:00:00",
        "08:00:02",
        "08:00:05",
        "09:30:00",
        "10:00:00",
    ]
    assert row(pod())["finished_at"] is None


UNKNOWN_END = {"state": {"terminated": {"reason": "ContainerStatusUnknown", "finishedAt": None}}}
ENDINGS: dict[str, tuple[dict[str, Any], str]] = {
    "refused by its node": ({"reason": "UnexpectedAdmissionError"}, "08:00:05"),
    "containers that nobody found again": ({"containerStatuses": [UNKNOWN_END]}, "08:00:05"),
    "evicted": (
        {
            "reason": "Evicted",
            "conditions": [
                {"type": name, "status": "True", "lastTransitionTime": f"2026-11-20T{at}Z"}
                for name, at in (("PodScheduled", "08:00:02"), ("DisruptionTarget", "09:10:00"))
            ],
        },
        "09:10:00",
    ),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_an_ended_pod_holds_nothing_after_the_last_sign_that_it_did(name: str) -> None:
    status, end = ENDINGS[name]
    item = pod(phase="Failed")
    item["status"].update(status)
    assert f"{row(item)['finished_at']:%H:%M:%S}" == end
    item["status"]["phase"] = "Running"
    assert row(item)["finished_at"] is None


@pytest.mark.parametrize("uid", ["u", ""])
@pytest.mark.parametrize("has_run", [True, False])
def test_the_series_of_an_evicted_pod_go_on_and_its_life_does_not(uid: str, has_run: bool) -> None:
    about = {"namespace": "ml", "pod": "p", "uid": "u"}
    resource = {"container": "main", "resource": "nvidia_com_gpu", "unit": "integer"}
    created = NOW - timedelta(hours=9)
    series = {
        "kube_pod_info": [({**about, "node": "n0"}, 1.0)],
        "kube_pod_created": [(about, created.timestamp())],
        "kube_pod_status_phase": [({**about, "phase": "Failed"}, 1.0)],
        "kube_pod_container_resource_requests": [({**about, **resource}, 1.0)],
    }
    lives = {("ml", "p", "u"): (NOW - timedelta(hours=3), NOW)}
    evicted = NOW - timedelta(hours=1)
    running: dict[tuple[str, ...], tuple[datetime, datetime]] = {}
    if has_run:
        running["ml", "p", uid] = created, evicted
    (found,) = build_pod_rows(
        KubeState(series, lives, {}, running), cluster="c", now=NOW, team_labels=()
    )
    assert found["finished_at"] is None
    assert found["last_seen"] == (evicted if has_run else created)
    assert found["first_seen"] <= found["last_seen"]


def test_only_annotations_that_matter_are_kept_and_claims_are_named() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "home-ada"}}, {"name": "tmp"}]
    words = {"kubectl.kubernetes.io/last-applied": "long", "karpenter.sh/do-not-disrupt": "true"}
    kept = json.loads(row(pod(annotations=words, volumes=volumes))["annotations"])
    assert kept == {"karpenter.sh/do-not-disrupt": "true", "fallow.pvcs": ["home-ada"]}


def test_volumes_whose_data_stay_on_the_node_are_named() -> None:
    volumes = [
        {"name": "scratch", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        {"name": "disk", "hostPath": {"path": "/mnt/nvme"}},
        {"name": "config", "configMap": {"name": "c"}},
    ]
    kept = json.loads(row(pod(volumes=volumes))["annotations"])
    assert kept == {"fallow.local-volumes": ["disk", "scratch"]}


ZONE, PRODUCT = "topology.kubernetes.io/zone", "nvidia.com/gpu.product"


@pytest.mark.parametrize(
    ("selector", "terms", "kept"),
    [
        ({PRODUCT: "NVIDIA-L4"}, [], {PRODUCT: ["NVIDIA-L4"]}),
        ({}, [[(PRODUCT, "In", ["b", "a"])]], {PRODUCT: ["a", "b"]}),
        ({PRODUCT: "a"}, [[(PRODUCT, "In", ["a", "b"])]], {PRODUCT: ["a"]}),
        ({}, [[(PRODUCT, "In", ["a"]), (ZONE, "In", ["z"])], [(PRODUCT, "In", ["b"])]],
         {PRODUCT: ["a", "b"]}),
        ({}, [[(PRODUCT, "NotIn", ["a"])], []], None),
        ({}, [], None),
    ],
)  # fmt: skip
def test_what_a_pods_node_must_be_is_kept(selector: Any, terms: Any, kept: Any) -> None:
    alternatives = [
        {"matchExpressions": [{"key": k, "operator": o, "values": v} for k, o, v in term]}
        for term in terms
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": alternatives}}  # fmt: skip
    found = row(pod(nodeSelector=selector, affinity={"nodeAffinity": required}))["annotations"]
    assert (json.loads(found).get("fallow.selector") if found else None) == kept


IN_A = {"key": PRODUCT, "operator": "In", "values": ["a"]}
IN_B = {"key": PRODUCT, "operator": "In", "values": ["b"]}
IN_ZONE = {"key": ZONE, "operator": "In", "values": ["z"]}
NOT_A = {"key": PRODUCT, "operator": "NotIn", "values": ["a"]}
EXISTS = {"key": PRODUCT, "operator": "Exists"}
THIS_NODE = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}


@pytest.mark.parametrize(
    ("terms", "kept"),
    [
        ([{"matchExpressions": [IN_A, IN_ZONE]}], None),  # the selector says the same
        ([{"matchExpressions": [IN_A]}, {"matchExpressions": [IN_B]}], None),
        ([{"matchExpressions": [NOT_A]}], [[[PRODUCT, "NotIn", ["a"]]]]),
        ([{"matchExpressions": [EXISTS]}], [[[PRODUCT, "Exists", []]]]),
        ([{"matchExpressions": [NOT_A]}, {}], [[[PRODUCT, "NotIn", ["a"]]]]),  # {}: no node
        (
            [{"matchExpressions": [IN_A]}, {"matchExpressions": [IN_ZONE]}],
            [[[PRODUCT, "In", ["a"]]], [[ZONE, "In", ["z"]]]],
        ),
        (
            [{"matchExpressions": [IN_A, IN_B]}],
            [[[PRODUCT, "In", ["a"]], [PRODUCT, "In", ["b"]]]],
        ),
        ([THIS_NODE, {"matchExpressions": [NOT_A]}], None),
    ],
)
def test_what_a_selector_cannot_express_is_kept_as_an_affinity(terms: Any, kept: Any) -> None:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    found = row(pod(affinity={"nodeAffinity": required}))["annotations"]
    assert (json.loads(found).get("fallow.node-affinity") if found else None) == kept


def test_taints_that_a_pod_bears_are_kept_but_for_those_that_every_pod_bears() -> None:
    wanted = [
        {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "team", "value": "a"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
    ]
    found = row(pod(tolerations=wanted))["annotations"]
    assert json.loads(found)["fallow.tolerations"] == [
        ["gpu", "Exists", "", "NoSchedule"],
        ["team", "Equal", "a", ""],
    ]
    assert row(pod(tolerations=wanted[2:]))["annotations"] == "{}"


def test_each_container_says_what_it_asks_for_and_who_was_killed_for_memory() -> None:
    main = {"requests": {"cpu": "1500m"}, "limits": {"memory": "4Gi", "nvidia.com/gpu": "1"}}
    item = pod(
        containers=[
            {"name": "main", "resources": main},
            {"name": "side", "resources": {"limits": {"cpu": "2"}}},
            {"name": "bare"},
        ]
    )
    item["status"]["containerStatuses"] = [
        {"name": "main", "lastState": {"terminated": {"reason": "OOMKilled"}}},
        {"name": "side", "state": {"terminated": {"reason": "Error"}}},
    ]
    assert json.loads(row(item)["containers"]) == [
        {
            "name": "main", "cpu_milli": 1500, "memory_bytes": 4 * 2**30,
            "memory_limit_bytes": 4 * 2**30, "gpu": True, "oom_killed": True,
        },
        {"name": "side", "cpu_milli": 2000, "cpu_limit_milli": 2000},
        {"name": "bare"},
    ]  # fmt: skip


def test_a_container_says_how_it_failed_and_a_clean_one_says_nothing() -> None:
    item = pod(containers=[{"name": "main"}, {"name": "clean"}, {"name": "image"}])
    item["status"]["containerStatuses"] = [
        {
            "name": "main",
            "restartCount": 3,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {
                "terminated": {
                    "exitCode": 137, "reason": "OOMKilled", "message": "x" * 5000,
                    "startedAt": "2026-11-20T10:00:00Z", "finishedAt": "2026-11-20T10:05:00Z",
                }
            },
        },
        {"name": "clean", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}},
        {"name": "image", "state": {"waiting": {"reason": "ImagePullBackOff"}}},
    ]  # fmt: skip
    main, clean, image = json.loads(row(item)["containers"])
    assert main == {
        "name": "main", "oom_killed": True, "restarts": 3, "waiting": "CrashLoopBackOff",
        "last_exit": {
            "code": 137, "reason": "OOMKilled", "message": "x" * 1024,
            "started_at": "2026-11-20T10:00:00Z", "finished_at": "2026-11-20T10:05:00Z",
        },
    }  # fmt: skip
    assert clean == {"name": "clean"}
    assert image == {"name": "image", "waiting": "ImagePullBackOff"}

"""An object of every kind, with every field that Fallow reads."""

from typing import Any

from tests.kube.objects import Object, meta, node, pod

GPU = {"nvidia.com/gpu": "1"}
HAMI = "hami.io/vgpu-devices-allocated"


def of(api: str, kind: str, name: str, **parts: Any) -> Object:
    item = {"apiVersion": api, "kind": kind, **meta(name), **parts}
    item["metadata"].setdefault("uid", f"{kind}-{name}")
    return item


def kinds(name: str) -> list[Object]:
    """Return an object of each kind, with every field that Fallow reads."""
    time = "2026-11-20T08:00:00Z"
    term = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
    near = [{"topologyKey": "z", "labelSelector": {"matchLabels": {"a": "b"}}, "namespaces": ["n"]}]
    there = node(
        f"n-{name}",
        capacity={"nvidia.com/gpu": "8"},
        labels={"nvidia.com/gpu.count": "8", "nvidia.com/gpu.replicas": "2"},
        annotations={"hami.io/node-nvidia-register": '[{"id":"G","count":10,"devmem":81920}]'},
        taints=[{"key": "a", "value": "b", "effect": "NoSchedule"}],
        providerID="aws:///a/i-1",
        unschedulable=False,
    )
    there["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.9"}]
    mine = pod(
        f"dcgm-exporter-{name}",
        namespace=name,
        limits={**GPU, "cpu": "1", "memory": "1Gi"},
        owner=("apps/v1", f"ReplicaSet/{name}"),
        labels={"runai-gpu-group": name, "team": "t"},
        annotations={
            HAMI: "G-1,N,100,50:;",
            "gpu-fraction": "0.5",
            "gpu-memory": "10",
            "gpu-fraction-num-devices": "1",
            "fallow.dev/keep-until": time,
            "run.ai/reserve_for_gpu_index": "-1",
            "scheduling.k8s.io/group-name": name,
        },
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
            },
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": near},
        },
        nodeSelector={"a": "b"},
        tolerations=[{"key": "a", "operator": "Exists"}],
        overhead={"cpu": "1m"},
        resources={"requests": {"cpu": "2"}},
        priority=5,
        volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"emptyDir": {}}],
        topologySpreadConstraints=[{"topologyKey": "z", "maxSkew": 1}],
        initContainers=[{"name": "i", "restartPolicy": "Always", "ports": [{"hostPort": 5}]}],
    )
    mine["status"]["podIP"] = "10.0.0.8"
    mine["status"]["containerStatuses"] = [
        {
            "name": "main",
            "restartCount": 1,
            "state": {"terminated": {"exitCode": 1, "finishedAt": time, "message": "m"}},
            "lastState": {"waiting": {"reason": "r"}},
        }
    ]
    sets = [{"name": "s", "count": 1, "template": {"spec": mine["spec"]}}]
    flavor = {"name": "f", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "8"}]}
    kueue, volcano, kai = "kueue.x-k8s.io/v1beta1", "scheduling.volcano.sh/v1", "scheduling.run.ai"
    condition = {"type": "QuotaReserved", "status": "False", "lastTransitionTime": time}
    devices = [{"name": "d", "attributes": {"uuid": {"string": f"GPU-{name}"}}}]
    result = {"driver": "g", "pool": name, "device": "d"}
    return [
        there,
        mine,
        {**of("v1", "Namespace", name), "metadata": {"name": name, "labels": {"team": "t"}}},
        of("apps/v1", "ReplicaSet", name),
        of(
            "v1",
            "ResourceQuota",
            name,
            spec={"hard": {"requests.nvidia.com/gpu": "8"}},
            status={"used": {"requests.nvidia.com/gpu": "1"}},
        ),
        of(
            "policy/v1",
            "PodDisruptionBudget",
            name,
            spec={"selector": {}, "maxUnavailable": 1},
            status={"disruptionsAllowed": 1, "currentHealthy": 3},
        ),
        of(
            "v1",
            "Event",
            name,
            involvedObject={"kind": "Pod", "name": name, "uid": name},
            reason="BackOff",
            message="m",
            count=2,
            lastTimestamp=time,
            series={"count": 4},
        ),
        of(
            "resource.k8s.io/v1",
            "ResourceSlice",
            name,
            spec={
                "driver": "g",
                "pool": {"name": name, "generation": 1},
                "nodeName": f"n-{name}",
                "devices": devices,
            },
        ),
        of(
            "resource.k8s.io/v1",
            "ResourceClaim",
            name,
            status={
                "reservedFor": [{"resource": "pods", "name": name, "uid": f"pod-{name}"}],
                "allocation": {"devices": {"results": [result]}},
            },
        ),
        of(
            kueue,
            "ClusterQueue",
            name,
            spec={"cohortName": name, "resourceGroups": [{"flavors": [flavor]}]},
            status={"pendingWorkloads": 1, "flavorsUsage": [flavor]},
        ),
        of(kueue, "Cohort", name, spec={"parentName": "p", "resourceGroups": []}),
        of(kueue, "LocalQueue", name, spec={"clusterQueue": name}, status={"pendingWorkloads": 1}),
        of(
            kueue,
            "ResourceFlavor",
            name,
            spec={"nodeLabels": {"a": "b"}, "nodeTaints": [{"key": "a", "effect": "NoSchedule"}]},
        ),
        of(
            kueue,
            "Workload",
            name,
            spec={"queueName": name, "podSets": sets, "priority": 1},
            status={"conditions": [condition]},
        ),
        of(
            volcano,
            "Queue",
            name,
            spec={"deserved": GPU, "capability": GPU},
            status={"allocated": GPU, "pending": 1},
        ),
        of(
            volcano,
            "PodGroup",
            name,
            spec={"queue": name, "minMember": 1, "minResources": GPU},
            status={"phase": "Pending"},
        ),
        of(
            f"{kai}/v2",
            "Queue",
            name,
            spec={"resources": {"gpu": {"quota": 8, "limit": -1}}},
            status={"allocated": GPU, "requested": GPU},
        ),
        of(
            "scheduling.x-k8s.io/v1alpha1",
            "ElasticQuota",
            name,
            spec={"min": GPU, "max": GPU},
            status={"used": GPU},
        ),
    ]

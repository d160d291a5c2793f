"""Two halves of one MI300X, of which a claim has one."""

from typing import Any

from tests.field.site import build_node, build_pod
from tests.field.situation import Situation


def _build_partition(k: int) -> dict[str, Any]:
    attributes = {
        "cardIndex": {"int": 32 + 8 * k},
        "driverVersion": {"version": "6.16.6"},
        "family": {"string": "AI"},
        "parentDeviceID": {"string": "7066866330502360227"},
        "parentPciAddr": {"string": "0003:00:01.0"},
        "partitionProfile": {"string": "dpx_nps1"},
        "productName": {"string": "AMD_Instinct_MI300X_OAM"},
        "renderIndex": {"int": 160 + k},
        "type": {"string": "amdgpu-partition"},
    }
    size = {"computeUnits": {"value": "152"}, "memory": {"value": "98296Mi"}}
    name = f"gpu-{32 + 8 * k}-{160 + k}"
    return {"name": name, "basic": {"attributes": attributes, "capacity": size}}


SLICE = {
    "apiVersion": "resource.k8s.io/v1beta1",
    "kind": "ResourceSlice",
    "metadata": {"name": "mi300-gpu.amd.com-x"},
    "spec": {
        "driver": "gpu.amd.com",
        "nodeName": "mi300",
        "pool": {"name": "mi300", "generation": 1, "resourceSliceCount": 1},
        "devices": [_build_partition(0), _build_partition(1)],
    },
}
RESULT = {"driver": "gpu.amd.com", "pool": "mi300", "device": "gpu-32-160", "request": "gpu"}
CLAIM = {
    "apiVersion": "resource.k8s.io/v1beta1",
    "kind": "ResourceClaim",
    "metadata": {"name": "train-gpu", "namespace": "ml", "uid": "claim-1"},
    "status": {
        "allocation": {"devices": {"results": [RESULT]}},
        "reservedFor": [{"resource": "pods", "name": "train", "uid": "uid-train"}],
    },
}

SITUATION = Situation(
    kind="F",
    dumps=[[build_node("mi300", None, provider=""), build_pod("train", "mi300"), SLICE, CLAIM]],
    nodes={"mi300": {"gpu_count": 1}},
    pods={"train": {"gpu_request": 0.5}},
)

"""One GPU in ten shares."""

from typing import Any

from tests.field.site import build_node, build_pod
from tests.field.situation import Situation

UUID = "GPU-3fe7a6f9-8bfb-3edd-daa9-610a511adf22"
REGISTER = f"{UUID},10,24564,100,NVIDIA-NVIDIA GeForce RTX 4090,0,true:"
ALLOCATED = {"hami.io/vgpu-devices-allocated": f"{UUID},NVIDIA,6141,25:;"}


def _register(node: dict[str, Any]) -> dict[str, Any]:
    node["metadata"]["annotations"] = {"hami.io/node-nvidia-register": REGISTER}
    return node


SITUATION = Situation(
    kind="E",
    dumps=[
        [
            _register(build_node("a", 10, provider="")),
            build_pod(
                "app",
                "a",
                gpus=1,
                annotations=ALLOCATED,
                resources={"nvidia.com/gpucores": "25", "nvidia.com/gpumem-percentage": "25"},
            ),
        ]
    ],
    nodes={"a": {"gpu_count": 1}},
    pods={"app": {"gpu_request": 0.25}},
)

"""Four pods of a quarter."""

from typing import Any

from tests.field.site import build_node, build_pod
from tests.field.situation import Situation

UUID = "GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448"
ALLOCATED = {"hami.io/vgpu-devices-allocated": f"{UUID},NVIDIA,4096,25:;"}


def _register(node: dict[str, Any]) -> dict[str, Any]:
    text = f"{UUID},10,16384,100,NVIDIA-Tesla T4,0,true:"
    node["metadata"]["annotations"] = {"hami.io/node-nvidia-register": text}
    return node


SITUATION = Situation(
    kind="E",
    dumps=[
        [
            _register(build_node("a", 10, provider="")),
            *(
                build_pod(
                    f"app-{k}",
                    "a",
                    gpus=1,
                    annotations=ALLOCATED,
                    resources={"nvidia.com/gpucores": "25", "nvidia.com/gpumem-percentage": "25"},
                )
                for k in range(4)
            ),
        ]
    ],
    pods={f"app-{k}": {"gpu_request": 0.25} for k in range(4)},
)

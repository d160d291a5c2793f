"""Two GPUs by HAMi's legacy series of devices, which name no node."""

from typing import Any

from tests.field.site import STEP, ago, build_node, build_pod
from tests.field.situation import Situation

TIMES = [int((ago(6) + STEP * k).timestamp() * 1000) for k in range(72)]
ALLOCATED = {"hami.io/vgpu-devices-allocated": "GPU-0,NVIDIA,97871,100:GPU-1,NVIDIA,97871,100:;"}


def _register(node: dict[str, Any]) -> dict[str, Any]:
    text = "".join(f"GPU-{k},10,97871,100,NVIDIA-NVIDIA H20,0,true:" for k in (0, 1))
    node["metadata"]["annotations"] = {"hami.io/node-nvidia-register": text}
    return node


SITUATION = Situation(
    kind="H",
    dumps=[
        [
            _register(build_node("node14", 20, provider="")),
            build_pod("serve", "node14", gpus=2, annotations=ALLOCATED),
        ]
    ],
    lines=[
        f'HostCoreUtilization{{deviceidx="{k}",deviceuuid="GPU-{k}",zone="vGPU"}} 7{at % 3} {at}'
        for k in (0, 1)
        for at in TIMES
    ],
    hours={"node,state": {"node14,productive": 12.0}},
)

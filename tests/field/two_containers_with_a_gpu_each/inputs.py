"""Halves of two GPUs for two containers of one pod."""

from typing import Any

from tests.field.site import build_node, build_pod
from tests.field.situation import Situation

LIMITS = {"nvidia.com/gpu": "1", "nvidia.com/gpucores": "50", "nvidia.com/gpumem": "8192"}
CONTAINERS = [{"name": name, "image": "x", "resources": {"limits": LIMITS}} for name in ("a", "b")]
ALLOCATED = {"hami.io/vgpu-devices-allocated": "GPU-0,NVIDIA,8192,50:;GPU-1,NVIDIA,8192,50:;"}


def _register(node: dict[str, Any]) -> dict[str, Any]:
    text = "".join(f"GPU-{k},10,16384,100,NVIDIA-Tesla T4,0,true:" for k in (0, 1))
    node["metadata"]["annotations"] = {"hami.io/node-nvidia-register": text}
    return node


SITUATION = Situation(
    kind="E",
    dumps=[
        [
            _register(build_node("a", 20, provider="")),
            build_pod("app", "a", annotations=ALLOCATED, spec={"containers": CONTAINERS}),
        ]
    ],
    nodes={"a": {"gpu_count": 2}},
    pods={"app": {"gpu_request": 1.0}},
)

"""A sidecar and a container with a GPU each."""

from tests.field.site import build_node, build_pod
from tests.field.situation import Situation

SIDECAR = {
    "name": "agent",
    "image": "x",
    "restartPolicy": "Always",
    "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}},
}

SITUATION = Situation(
    kind="F",
    dumps=[
        [build_node("a", 4), build_pod("serve", "a", gpus=1, spec={"initContainers": [SIDECAR]})]
    ],
    pods={"serve": {"gpu_request": 2.0}},
    long=False,
)

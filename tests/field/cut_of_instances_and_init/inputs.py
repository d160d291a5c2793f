"""An init container that asks for more than the work."""

from tests.field.site import build_node, build_pod
from tests.field.situation import Situation

INIT = {
    "name": "init",
    "image": "x",
    "resources": {"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "2"}},
}

SITUATION = Situation(
    kind="E",
    dumps=[[build_node("a", 4), build_pod("train", "a", gpus=1, spec={"initContainers": [INIT]})]],
    pods={"train": {"gpu_request": 2.0}},
)

"""Eight A100s of two halves each, whose labels have another profile than the resource."""

from tests.field.site import build_node, build_pod
from tests.field.situation import Situation

LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
    "nvidia.com/mig.strategy": "mixed",
    "nvidia.com/mig-3g.21gb.count": "16",
    "nvidia.com/mig-3g.21gb.memory": "20096",
    "nvidia.com/mig-3g.21gb.slices.gi": "3",
}
HALVES = {"nvidia.com/mig-3g.20gb": "16"}

SITUATION = Situation(
    kind="A",
    dumps=[
        [
            build_node("a", 0, labels=LABELS, provider="", resources=HALVES),
            build_pod("half", "a", resources={"nvidia.com/mig-3g.20gb": "1"}),
        ]
    ],
    nodes={"a": {"gpu_count": 8}},
    pods={"half": {"gpu_request": 3 / 7}},
)

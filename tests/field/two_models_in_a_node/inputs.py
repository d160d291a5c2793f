"""One V100 and two GTX 1080 Ti."""

from tests.field.site import FREE, build_node, list_lines
from tests.field.situation import Situation

MODELS = ("Tesla V100-PCIE-16GB", "NVIDIA GeForce GTX 1080 Ti", "NVIDIA GeForce GTX 1080 Ti")

SITUATION = Situation(
    kind="A",
    dumps=[[build_node("a", 3, allocatable={"nvidia.com/gpu": "2"}, provider="")]],
    lines=[
        line
        for k, model in enumerate(MODELS)
        for line in list_lines(f"GPU-{k}", "a", gpu=k, values=FREE, modelName=model)
    ],
    hours={"node": {"a": 18.0}},
    nodes={"a": {"gpu_count": 3, "gpu_allocatable": 2}},
)

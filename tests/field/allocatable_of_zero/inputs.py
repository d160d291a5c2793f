"""Sixteen GPUs that the plugin no longer offers."""

from tests.field.site import build_node
from tests.field.situation import Situation

SITUATION = Situation(
    kind="A",
    dumps=[[build_node("gpu01", 16, allocatable={"nvidia.com/gpu": "0"})]],
    nodes={"gpu01": {"gpu_count": 16, "gpu_allocatable": 0}},
)

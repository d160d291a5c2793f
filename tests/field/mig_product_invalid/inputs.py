"""A node whose labels say that its MIG is invalid."""

from tests.field.site import build_node, label_instance
from tests.field.situation import Situation

LABELS = {
    **label_instance("p4d.24xlarge", product="NVIDIA-A100-SXM4-80GB-MIG-INVALID", count="0"),
    "nvidia.com/mig.strategy": "single",
}

SITUATION = Situation(
    kind="A",
    dumps=[[build_node("a", 0, labels=LABELS)]],
    nodes={"a": {"gpu_count": 8}},
)

"""A GPU instance without its resource."""

from tests.field.site import build_node, label_instance
from tests.field.situation import Situation

LABELS = {
    **label_instance("g5.xlarge"),
    "karpenter.sh/capacity-type": "spot",
    "karpenter.k8s.aws/instance-gpu-count": "1",
    "karpenter.k8s.aws/instance-gpu-name": "a10g",
}

SITUATION = Situation(
    kind="A",
    dumps=[[build_node("a", None, labels=LABELS)]],
    nodes={"a": {"gpu_count": 1}},
)

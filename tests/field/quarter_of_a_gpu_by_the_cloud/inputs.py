"""One virtual L4 of a g6f.2xlarge, held by one pod."""

from tests.field.site import build_node, build_pod, label_instance, list_lines
from tests.field.situation import Situation

LABELS = {
    **label_instance("g6f.2xlarge"),
    "karpenter.k8s.aws/instance-family": "g6f",
    "karpenter.k8s.aws/instance-gpu-count": "0",
    "karpenter.k8s.aws/instance-gpu-name": "l4",
    "karpenter.k8s.aws/instance-gpu-memory": "5722",
}
VALUES = {
    "DCGM_FI_DEV_GPU_UTIL": 91.0,
    "DCGM_FI_DEV_FB_USED": 4000.0,
    "DCGM_FI_DEV_FB_FREE": 1700.0,
}

SITUATION = Situation(
    kind="A",
    dumps=[
        [
            build_node("a", 1, labels=LABELS),
            build_pod("infer", "a", gpus=1),
        ]
    ],
    lines=list_lines(
        "GPU-0", "a", values=VALUES, modelName="NVIDIA L4-6Q", pod="infer", namespace="ml"
    ),
    hours={"node": {"a": 6.0}, "workload": {"ml/Pod/infer": 6.0}},
    nodes={"a": {"gpu_count": 1}},
)

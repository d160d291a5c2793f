"""A T4 in four, whose series name one pod."""

from tests.field.site import build_node, build_pod, label_instance, list_lines
from tests.field.situation import Situation

LABELS = {
    **label_instance("g4dn.xlarge", product="Tesla-T4-SHARED", count="1", replicas="4"),
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
}

SITUATION = Situation(
    kind="E",
    dumps=[
        [
            build_node("a", 4, labels=LABELS),
            *(build_pod(f"gpu-pod-{k}", "a", gpus=1, namespace=f"team{k}") for k in range(4)),
        ]
    ],
    lines=list_lines("GPU-0", "a", modelName="Tesla T4", pod="gpu-pod-0", namespace="team0"),
    hours={"team": {f"team{k}": 1.5 for k in range(4)}},
)

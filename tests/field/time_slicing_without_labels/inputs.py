"""Four pods with a share each of one GPU, whose series name none."""

from tests.field.site import build_node, build_pod, label_instance, list_lines
from tests.field.situation import Situation

LABELS = {
    **label_instance("g5.xlarge", product="NVIDIA-A10G-SHARED", count="1", replicas="4"),
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
}

SITUATION = Situation(
    kind="E",
    dumps=[
        [
            build_node("a", 4, labels=LABELS),
            *(build_pod(f"infer-{k}", "a", gpus=1, namespace=f"team{k}") for k in range(4)),
        ]
    ],
    lines=list_lines("GPU-0", "a", modelName="NVIDIA A10G"),
    hours={"team": {f"team{k}": 1.5 for k in range(4)}, "node": {"a": 6.0}},
    pods={f"infer-{k}": {"gpu_request": 0.25} for k in range(4)},
    long=False,
)

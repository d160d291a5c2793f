"""Seven instances of one A100, which the plugin counts as seven GPUs, and no GFD."""

from tests.field.site import BUSY, IDLE, build_node, build_pod, list_lines
from tests.field.situation import Situation

A100 = "NVIDIA A100-SXM4-40GB"
UTIL = "DCGM_FI_DEV_GPU_UTIL"
LABELS = {
    "node.kubernetes.io/instance-type": "a2-highgpu-1g",
    "topology.kubernetes.io/region": "us-central1",
    "topology.kubernetes.io/zone": "us-central1-c",
    "cloud.google.com/gke-accelerator": "nvidia-tesla-a100",
    "cloud.google.com/gke-gpu-partition-size": "1g.5gb",
}

SITUATION = Situation(
    kind="A",
    dumps=[
        [
            build_node("mig", 7, labels=LABELS, provider="gce://proj/us-central1-c/"),
            *(build_pod(f"bert-{k}", "mig", gpus=1, namespace="nlp") for k in range(3)),
        ]
    ],
    lines=[
        line
        for k in range(7)
        for line in list_lines(
            "GPU-a100",
            "mig",
            values={name: v for name, v in (BUSY if k < 3 else IDLE).items() if name != UTIL},
            modelName=A100,
            GPU_I_PROFILE="1g.5gb",
            GPU_I_ID=str(7 + k),
            pod=f"bert-{k}" if k < 3 else "",
            namespace="nlp" if k < 3 else "",
        )
    ],
    hours={"node": {"mig": 6.0}},
    dollars={"node": {"mig": 6 * 3.673385}},
    nodes={"mig": {"gpu_count": 1}},
    long=False,
)

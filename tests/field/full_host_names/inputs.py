"""Hosts in full, nodes in short."""

from tests.field.site import build_node, build_pod, label_instance, list_lines
from tests.field.situation import Situation

SIZES = {"gpu01": "g6e.48xlarge", "gpu02": "g6e.xlarge"}

SITUATION = Situation(
    kind="A",
    dumps=[
        [
            *(
                build_node(name, 2, labels=label_instance(size, product="NVIDIA-L40S", count="2"))
                for name, size in SIZES.items()
            ),
            *(build_pod(f"train-{name}", name, gpus=2) for name in SIZES),
        ]
    ],
    lines=[
        line
        for name in SIZES
        for k in (0, 1)
        for line in list_lines(
            f"GPU-{name}{k}",
            f"{name}.hpc.example.org",
            gpu=k,
            modelName="NVIDIA L40S",
            pod=f"train-{name}",
            namespace="ml",
        )
    ],
    hours={"node": {"gpu01": 12.0, "gpu02": 12.0}},
    doctor=["gpu01.hpc.example.org"],
)

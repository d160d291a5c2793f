"""Three pods with a share of one GPU each, whose series are copies."""

from tests.field.site import BUSY, build_node, build_pod, label_instance, list_lines
from tests.field.situation import Situation

LABELS = {
    **label_instance("g4dn.xlarge", product="Tesla-T4-SHARED", count="1", replicas="4"),
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
}
VALUES = {**BUSY, "DCGM_FI_DEV_POWER_USAGE": 60.0, "DCGM_FI_DEV_FB_USED": 9000.0}

SITUATION = Situation(
    kind="E",
    dumps=[
        [
            build_node("a", 4, labels=LABELS),
            *(build_pod(f"load-{k}", "a", gpus=1, namespace=f"team{k}") for k in range(3)),
        ]
    ],
    lines=[
        line
        for k in range(3)
        for line in list_lines(
            "GPU-0",
            "a",
            values={**VALUES, "DCGM_FI_DEV_FB_FREE": 6000.0},
            modelName="Tesla T4",
            vgpu=str(k),
            pod=f"load-{k}",
            namespace=f"team{k}",
            container="c",
        )
    ],
    hours={
        "node": {"a": 6.0},
        "namespace": {**{f"team{k}": 1.5 for k in range(3)}, "(platform)": 1.5},
    },
    answers={
        "select cluster, count(*) as n, max(power_w) as watts from sample group by all": [
            {"n": 72, "watts": 62.0}
        ]
    },
)

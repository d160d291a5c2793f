"""One H100 NVL cut into four instances of three sizes."""

from tests.field.site import BUSY, IDLE, build_node, build_pod, list_lines
from tests.field.situation import Situation

UTIL = "DCGM_FI_DEV_GPU_UTIL"
LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-H100-NVL",
    "nvidia.com/gpu.count": "1",
    "nvidia.com/mig.config": "all-balanced",
    "nvidia.com/mig.strategy": "mixed",
}
SIZES = {"1g.12gb": "2", "2g.24gb": "1", "3g.47gb": "1"}
INSTANCES = (("3g.47gb", "large"), ("2g.24gb", ""), ("1g.12gb", "small"), ("1g.12gb", ""))

REQUESTS = (
    "select cluster, pod, round(gpu_request, 3) as gpus from pod"
    " where gpu_request is not null order by pod"
)

SITUATION = Situation(
    kind="A",
    dumps=[
        [
            build_node(
                "a",
                0,
                labels=LABELS,
                provider="",
                resources={f"nvidia.com/mig-{name}": count for name, count in SIZES.items()},
            ),
            build_pod("large", "a", resources={"nvidia.com/mig-3g.47gb": "1"}),
            build_pod("small", "a", resources={"nvidia.com/mig-1g.12gb": "1"}),
        ]
    ],
    lines=[
        line
        for number, (profile, pod) in enumerate(INSTANCES)
        for line in list_lines(
            "GPU-0",
            "a",
            values={name: v for name, v in (BUSY if pod else IDLE).items() if name != UTIL},
            modelName="NVIDIA H100 NVL",
            GPU_I_PROFILE=profile,
            GPU_I_ID=str(number + 1),
            pod=pod,
            namespace="ml" if pod else "",
        )
    ],
    hours={
        "node": {"a": 6.0},
        "workload": {"ml/Pod/large": 6 * 3 / 7, "ml/Pod/small": 6 / 7, "(platform)": 6 * 3 / 7},
    },
    nodes={"a": {"gpu_count": 1}},
    answers={REQUESTS: [{"pod": "large", "gpus": 0.429}, {"pod": "small", "gpus": 0.143}]},
)

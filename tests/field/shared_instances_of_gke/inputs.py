"""One A100 of seven instances with two clients each."""

from tests.field.gke_mig_partition.inputs import A100, LABELS, UTIL
from tests.field.site import BUSY, IDLE, build_node, build_pod, list_lines
from tests.field.situation import Situation

SHARED = {
    **LABELS,
    "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing",
    "cloud.google.com/gke-max-shared-clients-per-gpu": "2",
}
PODS = {7: ["bert-0", "bert-1"], 8: ["bert-2"]}

REQUESTS = (
    "select cluster, pod, round(gpu_request, 3) as gpus from pod"
    " where gpu_request is not null order by pod"
)
MEMORY = {"DCGM_FI_DEV_FB_USED": 2000.0, "DCGM_FI_DEV_FB_FREE": 2864.0}

SITUATION = Situation(
    kind="A",
    dumps=[
        [
            build_node("mig", 14, labels=SHARED, provider="gce://proj/us-central1-c/"),
            *(build_pod(f"bert-{k}", "mig", gpus=1, namespace="nlp") for k in range(3)),
        ]
    ],
    lines=[
        line
        for instance in range(7, 14)
        for number, pod in enumerate(PODS.get(instance, [""]))
        for line in list_lines(
            "GPU-a100",
            "mig",
            values={k: v for k, v in {**(BUSY if pod else IDLE), **MEMORY}.items() if k != UTIL},
            modelName=A100,
            GPU_I_PROFILE="1g.5gb",
            GPU_I_ID=str(instance),
            vgpu=str(number) if pod else "",
            pod=pod,
            namespace="nlp" if pod else "",
        )
    ],
    hours={
        "node": {"mig": 6.0},
        "workload": {**{f"nlp/Pod/bert-{k}": 6 / 14 for k in range(3)}, "(platform)": 66 / 14},
    },
    dollars={"node": {"mig": 6 * 3.673385}},
    nodes={"mig": {"gpu_count": 1}},
    answers={REQUESTS: [{"pod": f"bert-{k}", "gpus": 0.071} for k in range(3)]},
)

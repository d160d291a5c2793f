"""Four pods share two GPUs, of which one reads 0; in the twin two pods have one each."""

from tests.field.history import scrape_gpu, scrape_host, scrape_node, scrape_pod
from tests.field.site import BUSY, IDLE
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}
WORK = {**BUSY, "DCGM_FI_DEV_POWER_USAGE": 150.0}


def name(pod: str, gpu: int, **more: str) -> dict[str, str]:
    return {
        "gpu": str(gpu),
        "UUID": f"GPU-a-{gpu}",
        "Hostname": "a",
        "modelName": "NVIDIA A30",
        "pod": pod,
        "namespace": "ml",
        "container": "c",
        **more,
    }


SHARED = {
    "nvidia.com/gpu.replicas": "2",
    "nvidia.com/gpu.sharing-strategy": "mps",
    "nvidia.com/gpu.count": "2",
}

SITUATION = Situation(
    kind="S",
    scrapes=[
        *scrape_node("a", 4, labels=SHARED),
        *(one for k in range(4) for one in scrape_pod(f"p{k}", "a", owner=("PyTorchJob", f"p{k}"))),
        *(one for k in range(4) for one in scrape_host(f"p{k}", {"c": 0.01})),
        *(
            one
            for k in range(4)
            for one in scrape_gpu(name(f"p{k}", k // 2, vgpu=str(k % 2)), WORK if k < 2 else REST)
        ),
    ],
    findings={"ml/p2": {"actionable": False}, "ml/p3": {"actionable": False}},
)
TWIN = Situation(
    kind="S",
    scrapes=[
        *scrape_node("a", 2),
        *(one for k in range(2) for one in scrape_pod(f"p{k}", "a", owner=("PyTorchJob", f"p{k}"))),
        *(one for k in range(2) for one in scrape_host(f"p{k}", {"c": 0.01})),
        *(one for k in range(2) for one in scrape_gpu(name(f"p{k}", k), WORK if k < 1 else REST)),
    ],
    findings={"ml/p1": {"evidence": "confirmed", "actionable": True}},
)

"""What metrics know of the owners of a RayService's and a LeaderWorkerSet's pods."""

from tests.field.history import scrape_job, scrape_node
from tests.field.site import IDLE
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}
RAY = {"ray_io_cluster": "chat-raycluster-x2", "ray_io_node_type": "worker"}
ORIGIN = {"ray_io_originated_from_crd": "RayService", "ray_io_originated_from_cr_name": "chat"}
GROUP = {
    "leaderworkerset_sigs_k8s_io_name": "vllm",
    "leaderworkerset_sigs_k8s_io_worker_index": "1",
}

SITUATION = Situation(
    kind="S",
    scrapes=[
        *scrape_node("a", 2),
        *scrape_job(
            "a",
            REST,
            model="NVIDIA A30",
            pod="chat-raycluster-x2-worker-1",
            owner=("RayCluster", "chat-raycluster-x2"),
            labels=RAY,
        ),
        *scrape_job(
            "a",
            REST,
            model="NVIDIA A30",
            pod="vllm-0-1",
            first=1,
            owner=("StatefulSet", "vllm-0"),
            labels=GROUP,
        ),
    ],
    pods={
        "chat-raycluster-x2-worker-1": {"workload_kind": None, "owner_name": "chat-raycluster-x2"},
        "vllm-0-1": {"workload_kind": "LeaderWorkerSet", "workload": "vllm"},
    },
)
TWIN = Situation(
    kind="S",
    scrapes=[
        *scrape_node("a", 2),
        *scrape_job(
            "a",
            REST,
            model="NVIDIA A30",
            pod="chat-raycluster-x2-worker-1",
            owner=("RayCluster", "chat-raycluster-x2"),
            labels={**RAY, **ORIGIN},
        ),
        *scrape_job(
            "a",
            REST,
            model="NVIDIA A30",
            pod="web-0",
            first=1,
            owner=("StatefulSet", "web"),
            labels={"app": "web"},
        ),
    ],
    pods={
        "chat-raycluster-x2-worker-1": {"workload_kind": "RayService", "workload": "chat"},
        "web-0": {"workload_kind": "StatefulSet", "workload": "web"},
    },
)

"""A job that prepares data on eight cores while its GPU waits."""

from tests.field.history import Scrape, scrape_gpu, scrape_node, scrape_pod
from tests.field.site import IDLE, label_instance
from tests.field.situation import Situation

GPU = {
    "gpu": "0",
    "UUID": "GPU-0",
    "Hostname": "node-1",
    "modelName": "NVIDIA A10G",
    "pod": "prep-0",
    "namespace": "ml",
}
CGROUP = {
    "job": "kubelet",
    "metrics_path": "/metrics/cadvisor",
    "node": "node-1",
    "instance": "10.0.0.1:10250",
    "namespace": "ml",
    "pod": "prep-0",
    "id": "/kubepods/burstable/pod3b0c6f6e-0000-0000-0000-000000000000",
}
CORES = "select cluster, round(max(cpu_cores)) as cores from pod_sample group by cluster"

SITUATION = Situation(
    kind="F",
    scrapes=[
        *scrape_node("node-1", 1, labels=label_instance("g5.xlarge")),
        *scrape_pod("prep-0", "node-1", team="ml", owner=("StatefulSet", "prep")),
        *scrape_gpu(GPU, IDLE),
        Scrape(
            "container_cpu_usage_seconds_total",
            {**CGROUP, "cpu": "total"},
            0,
            every_s=30,
            offset_s=5,
            slope=240,
        ),
        Scrape("container_memory_working_set_bytes", CGROUP, 3.2e10, every_s=30, offset_s=5),
    ],
    answers={CORES: [{"cores": 8.0}]},
)

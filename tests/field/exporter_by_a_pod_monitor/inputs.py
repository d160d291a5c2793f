"""Series that carry the exporter's own pod where no workload holds the device."""

from tests.field.history import scrape_gpu, scrape_node, scrape_pod
from tests.field.site import BUSY, FREE, H100
from tests.field.situation import Situation

POD = "accelerator-telemetry-0x9"
OWN = {
    "job": "monitoring/accelerators",
    "instance": "10.244.1.5:9400",
    "namespace": "monitoring",
    "pod": POD,
    "container": "agent",
    "modelName": H100,
}

SITUATION = Situation(
    kind="F",
    scrapes=[
        *scrape_node("node-1", 2),
        *scrape_pod("prep-0", "node-1", team="ml"),
        *scrape_pod(
            POD,
            "node-1",
            gpus=0,
            namespace="monitoring",
            owner=("DaemonSet", "accelerator-telemetry"),
            address="10.244.1.5",
        ),
        *scrape_gpu(
            {
                **OWN,
                "gpu": "0",
                "UUID": "GPU-0",
                "Hostname": POD,
                "exported_pod": "prep-0",
                "exported_namespace": "ml",
            },
            BUSY,
        ),
        *scrape_gpu({**OWN, "gpu": "1", "UUID": "GPU-1", "Hostname": "node-1"}, FREE),
    ],
    hours={"node": {"node-1": 12.0}, "state": {"productive": 6.0, "free": 6.0}},
    answers={"select cluster, name, field from rejection": []},
)

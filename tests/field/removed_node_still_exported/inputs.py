"""A node that ends in the middle, but for one series."""

from tests.field.history import KSM, Scrape, scrape_gpu, scrape_node
from tests.field.site import FREE, H100
from tests.field.situation import Situation

GPU = {"gpu": "0", "UUID": "GPU-0", "Hostname": "node-1", "modelName": H100}
CONDITION = {**KSM, "node": "node-1", "condition": "Ready"}

SITUATION = Situation(
    kind="D",
    scrapes=[
        *scrape_node("node-1", 1, until=3),
        *scrape_gpu(GPU, FREE, until=3),
        *(
            Scrape("kube_node_status_condition", {**CONDITION, "status": status}, 0, 3, 0, 300, 11)
            for status in ("true", "false", "unknown")
        ),
    ],
    hours={"node": {"node-1": 3.0}},
    tolerance_hours=0.1,
)

"""A node whose name is an address, and its exporter scraped by its pod's."""

from tests.field.history import scrape_gpu, scrape_node, scrape_pod
from tests.field.site import BUSY, H100
from tests.field.situation import Situation

NODE, POD = "10.140.52.142", "dcgm-exporter-k9k8p"
GPU = {
    "gpu": "0",
    "UUID": "GPU-0",
    "modelName": H100,
    "Hostname": POD,
    "instance": "10.140.17.175:9400",
    "exported_pod": "train-0",
    "exported_namespace": "ml",
    "pod": POD,
}

SITUATION = Situation(
    kind="H",
    scrapes=[
        *scrape_node(NODE, 1, address=NODE),
        *scrape_pod("train-0", NODE, team="ml"),
        *scrape_pod(
            POD, NODE, gpus=0, owner=("DaemonSet", "dcgm-exporter"), address="10.140.17.175"
        ),
        *scrape_gpu(GPU, BUSY),
    ],
    hours={"node,state": {f"{NODE},productive": 6.0}},
)

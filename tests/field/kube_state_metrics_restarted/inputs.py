"""A restart three hours ago; a taint, a team and a job that changed then or after."""

from tests.field.history import KSM, Scrape, scrape_gpu, scrape_node, scrape_pod
from tests.field.site import BUSY, FREE, label_instance
from tests.field.situation import Situation

OLD = {**KSM, "instance": "10.244.9.7:8080"}
TAINT = {"node": "node-1", "key": "maintenance", "effect": "NoSchedule", "value": "", **OLD}
GPU = {"gpu": "0", "UUID": "GPU-0", "Hostname": "node-1", "modelName": "NVIDIA A10G"}

SITUATION = Situation(
    kind="C",
    scrapes=[
        *scrape_node("node-1", 1, labels=label_instance("g5.xlarge"), until=3, target=OLD),
        *scrape_node("node-1", 1, labels=label_instance("g5.xlarge"), since=3),
        Scrape("kube_node_spec_taint", TAINT, 1, until=3, every_s=300, offset_s=11),
        *scrape_pod("job-0", "node-1", team="typo", born=50, until=3, target=OLD),
        *scrape_pod("job-0", "node-1", team="ml", born=50, since=3, until=2),
        *scrape_pod("job-0", "node-1", team="ml", born=50, since=2, phase="Succeeded", completed=2),
        *scrape_gpu(GPU, BUSY, until=2),
        *scrape_gpu(GPU, FREE, since=2),
    ],
    hours={"state": {"productive": 4.0, "free": 2.0}},
    tolerance_hours=0.3,
    nodes={"node-1": {"taints": "[]"}},
    pods={"job-0": {"phase": "Succeeded", "team": "ml"}},
)

"""A pool label that changed two hours ago, in the middle of what one query reads."""

from tests.field.history import scrape_gpu, scrape_node
from tests.field.site import FREE, label_instance
from tests.field.situation import Situation

GPU = {"gpu": "0", "UUID": "GPU-moved", "Hostname": "moved", "modelName": "NVIDIA A10G"}
LABELS = {
    pool: {**label_instance("g5.xlarge"), "eks.amazonaws.com/nodegroup": pool}
    for pool in ("blue", "red")
}

SITUATION = Situation(
    kind="C",
    scrapes=[
        *scrape_node("moved", 1, labels=LABELS["blue"], until=2),
        *scrape_node("moved", 1, labels=LABELS["red"], since=2),
        *scrape_gpu(GPU, FREE),
    ],
    answers={
        "select cluster, pool, round(sum(gpu_seconds) / 3600) as hours from ledger"
        " group by all order by all": (
            {"pool": "blue", "hours": 4.0},
            {"pool": "red", "hours": 2.0},
        )
    },
)

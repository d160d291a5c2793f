"""Each series twice, under `receive_replica`."""

from tests.field.history import KSM, scrape_gpu, scrape_node
from tests.field.site import FREE, label_instance
from tests.field.situation import Situation

GPU = {"gpu": "0", "UUID": "GPU-0", "Hostname": "node-1", "modelName": "NVIDIA A10G"}
COUNTS = "select cluster, count(distinct device) as n from sample group by cluster"

SITUATION = Situation(
    kind="H",
    scrapes=[
        *(
            one
            for replica in ("thanos-receive-0", "thanos-receive-1")
            for one in (
                *scrape_node(
                    "node-1",
                    1,
                    labels=label_instance("g5.xlarge"),
                    target={**KSM, "receive_replica": replica},
                ),
                *scrape_gpu({**GPU, "receive_replica": replica}, FREE),
            )
        )
    ],
    hours={"state": {"free": 6.0}},
    tolerance_hours=0.2,
    answers={COUNTS: [{"n": 1}]},
)

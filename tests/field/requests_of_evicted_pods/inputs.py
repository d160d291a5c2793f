"""Three evicted pods and one that runs."""

from tests.field.history import scrape_gpu, scrape_node, scrape_pod
from tests.field.site import BUSY, FREE, label_instance
from tests.field.situation import Situation

SITUATION = Situation(
    kind="D",
    scrapes=[
        *scrape_node("node-1", 4, labels=label_instance("g5.12xlarge")),
        *(
            one
            for k in range(3)
            for one in scrape_pod(
                f"app-{k}", "node-1", namespace="web", team="ghosts", born=96, phase="Failed"
            )
        ),
        *scrape_pod("train-0", "node-1", team="ml"),
        *(
            one
            for k in range(4)
            for one in scrape_gpu(
                {
                    "gpu": str(k),
                    "UUID": f"GPU-{k}",
                    "Hostname": "node-1",
                    "modelName": "NVIDIA A10G",
                },
                FREE if k else BUSY,
            )
        ),
    ],
    hours={"team": {"ml": 6.0, "(platform)": 18.0}},
    tolerance_hours=0.2,
)

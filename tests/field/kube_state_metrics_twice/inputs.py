"""Two instances of kube-state-metrics with one answer."""

from tests.field.history import KSM, scrape_gpu, scrape_node, scrape_pod
from tests.field.site import BUSY, FREE, label_instance
from tests.field.situation import Situation

SECOND = {**KSM, "instance": "10.244.1.3:8080"}


def _name(k: int) -> dict[str, str]:
    held = {} if k else {"pod": "train-0", "namespace": "ml"}
    model = "NVIDIA A10G"
    return {"gpu": str(k), "UUID": f"GPU-{k}", "Hostname": "node-1", "modelName": model, **held}


SITUATION = Situation(
    kind="H",
    scrapes=[
        *(
            one
            for target in (KSM, SECOND)
            for one in (
                *scrape_node("node-1", 2, labels=label_instance("g5.12xlarge"), target=target),
                *scrape_pod("train-0", "node-1", team="ml", target=target),
            )
        ),
        *(one for k in (0, 1) for one in scrape_gpu(_name(k), FREE if k else BUSY)),
    ],
    hours={"team": {"ml": 6.0, "(platform)": 6.0}},
    tolerance_hours=0.2,
    nodes={"node-1": {"gpu_count": 2}},
    pods={"train-0": {"gpu_request": 1.0}},
)

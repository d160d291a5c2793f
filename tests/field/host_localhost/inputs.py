"""Two nodes whose exporters call themselves localhost."""

from tests.field.history import scrape_gpu, scrape_node, scrape_pod
from tests.field.site import BUSY, label_instance
from tests.field.situation import Situation

NODES = {"node-1": "10.0.1.11", "node-2": "10.0.1.12"}

SITUATION = Situation(
    kind="H",
    scrapes=[
        *(
            one
            for name, address in NODES.items()
            for one in (
                *scrape_node(name, 2, labels=label_instance("g6e.xlarge"), address=address),
                *scrape_pod(f"train-{name}", name, gpus=2),
                *(
                    one
                    for k in (0, 1)
                    for one in scrape_gpu(
                        {
                            "gpu": str(k),
                            "UUID": f"GPU-{name}{k}",
                            "Hostname": "localhost",
                            "modelName": "NVIDIA L40S",
                            "pod": f"train-{name}",
                            "namespace": "ml",
                            "instance": f"{address}:9400",
                        },
                        BUSY,
                    )
                ),
            )
        )
    ],
    hours={"node": {"node-1": 12.0, "node-2": 12.0}},
    tolerance_hours=0.2,
)

"""One node, two jobs, two GPUs."""

from tests.field.history import scrape_gpu, scrape_node, scrape_pod
from tests.field.site import BUSY, FREE, label_instance
from tests.field.situation import Situation

OWN = {"pod": "dcgm-exporter-78z52", "namespace": "monitoring", "container": "exporter"}
HELD = {"exported_pod": "train-0", "exported_namespace": "ml", "exported_container": "c"}


def _name(k: int) -> dict[str, str]:
    model = "NVIDIA A10G"
    return {"gpu": str(k), "UUID": f"GPU-{k}", "Hostname": "node-1", "modelName": model}


SITUATION = Situation(
    kind="H",
    scrapes=[
        *scrape_node("node-1", 2, labels=label_instance("g5.12xlarge")),
        *scrape_pod("train-0", "node-1", team="ml"),
        *(
            one
            for k, values in enumerate((BUSY, FREE))
            for one in (
                *scrape_gpu(
                    {**_name(k), **OWN, **({} if k else HELD)}, values, every_s=30, offset_s=3
                ),
                *scrape_gpu(
                    {**_name(k), "job": "gpu-metrics", "instance": "node-1:9401"},
                    values,
                    every_s=30,
                    offset_s=18,
                ),
            )
        ),
    ],
    hours={"team,state": {"ml,productive": 6.0, "(platform),free": 6.0}},
    tolerance_hours=0.2,
    long=False,
)

"""A node of the same name in two clusters."""

from tests.field.history import KSM, scrape_gpu, scrape_node
from tests.field.site import FREE
from tests.field.situation import Situation

GPU = {"gpu": "0", "Hostname": "node-1", "modelName": "NVIDIA A10G"}

SITUATION = Situation(
    kind="H",
    scrapes=[
        *(
            one
            for cluster in ("site-x", "site-y")
            for one in (
                *scrape_node("node-1", 1, target={**KSM, "cluster": cluster}),
                *scrape_gpu({**GPU, "UUID": f"GPU-{cluster}", "cluster": cluster}, FREE),
            )
        )
    ],
    refused="PROMETHEUS__SELECTOR",
)

"""Six jobs of eight minutes in a day, read over a week."""

from tests.field.history import Scrape, scrape_gpu, scrape_node, scrape_pod
from tests.field.site import BUSY, FREE, label_instance
from tests.field.situation import Situation

STARTS = [23.9 - 4 * k for k in range(6)]
LENGTH = 8 / 60


def _list_free() -> list[Scrape]:
    edges = [24.0, *(edge for start in STARTS for edge in (start, start - LENGTH)), 0.0]
    return [
        one
        for since, until in zip(edges[::2], edges[1::2], strict=True)
        for one in scrape_gpu(GPU, FREE, since=since, until=until)
    ]


GPU = {"gpu": "0", "UUID": "GPU-0", "Hostname": "node-1", "modelName": "NVIDIA A10G"}

SITUATION = Situation(
    kind="D",
    since="7d",
    window_hours=24,
    scrapes=[
        *scrape_node("node-1", 1, labels=label_instance("g5.xlarge"), since=24),
        *_list_free(),
        *(
            one
            for k, start in enumerate(STARTS)
            for one in (
                *scrape_pod(
                    f"runner-{k}-x",
                    "node-1",
                    namespace="ci",
                    team="ci",
                    owner=("Pod", f"runner-{k}-x"),
                    born=start,
                    since=start,
                    until=start - LENGTH,
                    every_s=30,
                ),
                *scrape_gpu(
                    {**GPU, "pod": f"runner-{k}-x", "namespace": "ci"},
                    BUSY,
                    since=start,
                    until=start - LENGTH,
                ),
            )
        ),
    ],
    hours={"team": {"ci": 0.8, "(platform)": 23.2}},
    tolerance_hours=0.3,
)

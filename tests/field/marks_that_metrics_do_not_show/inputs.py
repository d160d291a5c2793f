"""A dump has all marks of three pods; kube-state-metrics shows some, of the hours before."""

from typing import Any

from tests.field.history import scrape_job, scrape_node
from tests.field.site import IDLE, build_node, build_pod
from tests.field.situation import Situation

NAME = "marks_that_metrics_do_not_show"
REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}
ZONE = {"topology.kubernetes.io/zone": "us-east-1a", "node.kubernetes.io/instance-type": "g5"}


def list_pod(name: str, **marks: Any) -> dict[str, Any]:
    pod = build_pod(name, "a", gpus=1, owner=("Job", name), **marks)
    pod["metadata"]["uid"] = f"uid-ml-{name}-{NAME}"
    return pod


SITUATION = Situation(
    kind="B",
    dumps=[
        [
            build_node("a", 3, labels=ZONE),
            list_pod(
                "kept",
                labels={"team": "red", "app.kubernetes.io/name": "x"},
                annotations={"fallow.dev/keep": "true"},
            ),
            list_pod(
                "other",
                labels={"team": "red"},
                annotations={"fallow.dev/keep": "true", "karpenter.sh/do-not-disrupt": "true"},
            ),
            list_pod(
                "third",
                labels={"team": "red"},
                annotations={"karpenter.sh/do-not-disrupt": "true"},
            ),
        ]
    ],
    scrapes=[
        *scrape_node("a", 3, labels={"node.kubernetes.io/instance-type": "g5"}),
        *scrape_job("a", REST, model="NVIDIA A30", pod="kept", owner=("Job", "kept"),
                    labels={"team": "red", "app_kubernetes_io_name": "x"},
                    annotations={"other_com_note": "true"}),
        *scrape_job("a", REST, model="NVIDIA A30", pod="other", owner=("Job", "other"), first=1,
                    labels={"team": "red"}, annotations={"other_com_note": "true"}),
        *scrape_job("a", REST, model="NVIDIA A30", pod="third", owner=("Job", "third"), first=2,
                    labels={"team": "red"},
                    annotations={"karpenter_sh_do_not_disrupt": "true"}),
    ],
    answers={
        "SELECT cluster, split_part(id, '-', 3) AS pod, value FROM attribute_era"
        " ORDER BY id, valid_from": [
            {"pod": "other", "value": '{"fallow.dev/keep":"true"}'},
            {
                "pod": "other",
                "value": '{"fallow.dev/keep":"true","karpenter.sh/do-not-disrupt":"true"}',
            },
        ],
        "SELECT cluster, zone FROM era": [{"zone": "us-east-1a"}],
    },
    long=False,
)  # fmt: skip

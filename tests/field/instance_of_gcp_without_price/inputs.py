"""One A100 of 80 GB in us-central1."""

from tests.field.site import FREE, build_node, label_instance, list_lines
from tests.field.situation import Situation

LABELS = {
    **label_instance("a2-ultragpu-1g", "us-central1"),
    "cloud.google.com/gke-accelerator": "nvidia-a100-80gb",
    "cloud.google.com/gke-provisioning": "standard",
}

SITUATION = Situation(
    kind="C",
    dumps=[[build_node("a", 1, labels=LABELS, provider="gce://proj/us-central1-a/")]],
    lines=list_lines("GPU-0", "a", values=FREE, modelName="NVIDIA A100-SXM4-80GB"),
    hours={"node,state": {"a,free": 6.0}},
    dollars={"node": {"a": 30.42}},
)

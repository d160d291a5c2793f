"""One T4 in eastus."""

from tests.field.site import FREE, build_node, label_instance, list_lines
from tests.field.situation import Situation

LABELS = label_instance("Standard_NC4as_T4_v3", "eastus", product="Tesla-T4", count="1")

SITUATION = Situation(
    kind="C",
    dumps=[[build_node("a", 1, labels=LABELS, provider="azure:///subscriptions/x/")]],
    lines=list_lines(
        "GPU-0", "a", values={**FREE, "DCGM_FI_DEV_POWER_USAGE": 10.0}, modelName="Tesla T4"
    ),
    hours={"node,state": {"a,free": 6.0}},
    dollars={"node": {"a": 3.156}},
)

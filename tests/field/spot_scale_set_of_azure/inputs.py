"""A spot node of AKS."""

from tests.field.site import build_node, label_instance
from tests.field.situation import Situation

LABELS = {
    **label_instance("Standard_NC4as_T4_v3", "eastus"),
    "kubernetes.azure.com/scalesetpriority": "spot",
    "kubernetes.azure.com/agentpool": "gpu",
}

SITUATION = Situation(
    kind="C",
    dumps=[
        [
            build_node(
                "a", 1, labels=LABELS, provider="azure:///subscriptions/x/virtualMachineScaleSets/"
            )
        ]
    ],
    nodes={"a": {"capacity_type": "spot", "pool": "gpu", "provider": "azure"}},
)

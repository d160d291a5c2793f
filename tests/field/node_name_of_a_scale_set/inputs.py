"""One node name, two machines."""

from tests.field.history import scrape_gpu, scrape_node
from tests.field.site import FREE, label_instance
from tests.field.situation import Situation

T4 = {**FREE, "DCGM_FI_DEV_POWER_USAGE": 10.0}
NAME = "aks-gpu-vmss000000"
AZURE = "azure:///subscriptions/x/virtualMachineScaleSets/aks-gpu/virtualMachines/0/"


def _name(uuid: str, k: int) -> dict[str, str]:
    return {"gpu": str(k), "UUID": uuid, "Hostname": NAME, "modelName": "Tesla T4"}


SITUATION = Situation(
    kind="C",
    scrapes=[
        *scrape_node(
            NAME,
            4,
            labels=label_instance("Standard_NC64as_T4_v3", "eastus"),
            address="10.0.0.4",
            born=40,
            until=3,
            uuid="old",
            provider=AZURE,
            every_s=60,
        ),
        *scrape_node(
            NAME,
            1,
            labels=label_instance("Standard_NC4as_T4_v3", "eastus"),
            address="10.0.0.5",
            born=3,
            since=3,
            uuid="new",
            provider=AZURE,
            every_s=60,
        ),
        *(one for k in range(4) for one in scrape_gpu(_name(f"GPU-{k}", k), T4, until=3)),
        *scrape_gpu(_name("GPU-new", 0), T4, since=3),
    ],
    hours={"state": {"free": 15.0}},
    dollars={"cluster": {"node_name_of_a_scale_set": 14.634}},
    tolerance_hours=0.3,
)

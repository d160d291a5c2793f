"""A node of 2017."""

from tests.field.site import build_node
from tests.field.situation import Situation

SITUATION = Situation(
    kind="F",
    dumps=[
        [build_node("slave2", None, provider="", resources={"alpha.kubernetes.io/nvidia-gpu": "4"})]
    ],
    doctor=["alpha.kubernetes.io/nvidia-gpu"],
)

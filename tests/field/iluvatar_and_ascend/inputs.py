"""A node with a resource that looks like a GPU."""

from tests.field.site import build_node, build_pod
from tests.field.situation import Situation

SITUATION = Situation(
    kind="F",
    dumps=[
        [
            build_node("a", None, provider="", resources={"iluvatar.ai/gpu": "4"}),
            build_pod("train", "a", resources={"iluvatar.ai/gpu": "2"}),
        ]
    ],
    doctor=["iluvatar.ai/gpu"],
)

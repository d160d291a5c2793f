"""A pool label in the first dump only."""

from tests.field.site import build_node, label_instance
from tests.field.situation import Situation

SITUATION = Situation(
    kind="B",
    dumps=[
        [
            build_node(
                "a", labels={**label_instance("g5.xlarge"), "eks.amazonaws.com/nodegroup": "blue"}
            )
        ],
        [build_node("a", labels=label_instance("g5.xlarge"))],
    ],
    nodes={"a": {"pool": None}},
    long=False,
)

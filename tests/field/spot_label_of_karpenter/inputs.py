"""A spot node that only Karpenter labels."""

from tests.field.site import build_node, label_instance
from tests.field.situation import Situation

SITUATION = Situation(
    kind="C",
    dumps=[
        [
            build_node(
                "a", 1, labels={**label_instance("g5.xlarge"), "karpenter.sh/capacity-type": "spot"}
            )
        ]
    ],
    nodes={"a": {"capacity_type": "spot"}},
    long=False,
)

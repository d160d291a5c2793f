"""One H100 cut in four, without labels of GFD."""

from tests.field.site import build_node
from tests.field.situation import Situation

SITUATION = Situation(
    kind="A",
    dumps=[
        [
            build_node(
                "a",
                0,
                provider="",
                resources={
                    "nvidia.com/mig-1g.12gb": "2",
                    "nvidia.com/mig-2g.24gb": "1",
                    "nvidia.com/mig-3g.47gb": "1",
                },
            )
        ]
    ],
    nodes={"a": {"gpu_count": 1}},
)

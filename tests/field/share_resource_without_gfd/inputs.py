"""Eight shares on an instance of one GPU."""

from tests.field.site import build_node, build_pod, label_instance
from tests.field.situation import Situation

SITUATION = Situation(
    kind="A",
    dumps=[
        [
            build_node(
                "pek01",
                0,
                labels=label_instance("g4dn.xlarge"),
                resources={"nvidia.com/gpu.shared": "8"},
            ),
            build_pod("test", "pek01", resources={"nvidia.com/gpu.shared": "1"}),
        ]
    ],
    nodes={"pek01": {"gpu_count": 1}},
    pods={"test": {"gpu_request": 0.125}},
)

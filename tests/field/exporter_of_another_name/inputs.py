"""Series whose host is a pod of a DaemonSet that the site named itself."""

from tests.field.site import FREE, build_node, build_pod, list_lines
from tests.field.situation import Situation

SPEC = {"containers": [{"name": "agent", "ports": [{"containerPort": 9400, "name": "metrics"}]}]}
AGENT = "accelerator-telemetry"
OWNER = ("DaemonSet", AGENT)

SITUATION = Situation(
    kind="F",
    dumps=[
        [
            *(build_node(node, 1) for node in "ab"),
            *(
                build_pod(
                    f"accelerator-telemetry-{k}x9",
                    node,
                    namespace="monitoring",
                    owner=OWNER,
                    spec=SPEC,
                )
                for k, node in enumerate("ab")
            ),
            build_pod("train", "a", gpus=1),
        ]
    ],
    lines=[
        *list_lines("GPU-0", "accelerator-telemetry-0x9", pod="train", namespace="ml"),
        *list_lines(
            "GPU-1",
            "accelerator-telemetry-1x9",
            values=FREE,
            pod="accelerator-telemetry-1x9",
            namespace="monitoring",
        ),
    ],
    hours={"node": {"a": 6.0, "b": 6.0}, "state": {"productive": 6.0, "free": 6.0}},
)

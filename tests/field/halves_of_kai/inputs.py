"""Two reservations and three pods of a half."""

from tests.field.site import build_node, build_pod
from tests.field.situation import Situation

SITUATION = Situation(
    kind="E",
    dumps=[
        [
            build_node("a", 2),
            *(
                build_pod(
                    f"reservation-{k}",
                    "a",
                    gpus=1,
                    namespace="kai-resource-reservation",
                    labels={"app": "kai-resource-reservation", "runai-gpu-group": f"group-{k}"},
                    annotations={"run.ai/reserve_for_gpu_index": str(k)},
                )
                for k in (0, 1)
            ),
            *(
                build_pod(
                    f"llm-{k}",
                    "a",
                    annotations={"gpu-fraction": "0.5"},
                    labels={"runai-gpu-group": f"group-{k // 2}"},
                )
                for k in range(3)
            ),
        ]
    ],
    pods={f"llm-{k}": {"gpu_request": 0.5} for k in range(3)},
)

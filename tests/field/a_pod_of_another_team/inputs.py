"""Three pods of a Job are red, one is blue."""

from tests.field.site import build_node, build_pod, list_lines
from tests.field.situation import Situation

TEAMS = ("red", "red", "red", "blue")

SITUATION = Situation(
    kind="C",
    dumps=[
        [
            build_node("a", 4),
            *(
                build_pod(f"sweep-{k}", "a", gpus=1, labels={"team": team}, owner=("Job", "sweep"))
                for k, team in enumerate(TEAMS)
            ),
        ]
    ],
    lines=[
        line
        for k in range(4)
        for line in list_lines(
            f"GPU-{k}", "a", gpu=k, pod=f"sweep-{k}", namespace="ml", container="c"
        )
    ],
    hours={"team": {"red": 18.0, "blue": 6.0}},
    tolerance_hours=0.1,
    long=False,
)

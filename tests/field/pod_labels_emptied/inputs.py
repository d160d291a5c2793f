"""A team in the first dump only."""

from tests.field.site import build_node, build_pod
from tests.field.situation import Situation

SITUATION = Situation(
    kind="B",
    dumps=[
        [build_node("a"), build_pod("web", "a", gpus=1, labels={"team": "blue"})],
        [build_node("a"), build_pod("web", "a", gpus=1)],
    ],
    pods={"web": {"team": None}},
)

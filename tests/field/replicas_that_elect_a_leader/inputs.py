"""Replicas that elect a leader."""

from tests.field.resting import build_situation, rest

CONTAINERS = [
    {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
    {"name": "leader-elector", "image": "y"},
]
PARTS = [
    rest("elects", kind="Notebook", spec={"containers": CONTAINERS}),
    rest("follows", kind="Notebook", labels={"role": "follower"}),
    rest("rest", kind="Notebook"),
]

SITUATION = build_situation(
    "L", PARTS, {"elects": "held by leader-elector", "follows": "held by role=follower", "rest": ""}
)

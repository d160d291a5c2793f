"""The leader of a group is no election."""

from tests.field.resting import VLLM, build_situation, load, rest

PARTS = [
    rest("leads", kind="StatefulSet", labels={"role": "leader"}, serving=load("leads", VLLM)),
    rest("waits", kind="StatefulSet", labels={"role": "passive"}, serving=load("waits", VLLM)),
]

SITUATION = build_situation("L", PARTS, {"leads": "", "waits": "held by role=passive"})

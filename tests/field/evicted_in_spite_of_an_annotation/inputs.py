"""Evicted in spite of an annotation."""

from tests.field.resting import build_situation, rest

PARTS = [
    rest("keeps", kind="Job", annotations={"karpenter.sh/do-not-disrupt": "true"}),
    rest("rest", kind="Job"),
]

SITUATION = build_situation("L", PARTS, {"keeps": "not disrupted", "rest": ""})

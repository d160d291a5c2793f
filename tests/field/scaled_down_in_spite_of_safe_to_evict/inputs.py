"""Scaled down in spite of safe-to-evict."""

from tests.field.resting import budget, build_situation, rest

FIXED = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
PARTS = [
    rest("keeps", kind="Job", labels={"app": "bare"}, annotations=FIXED),
    rest("rest", kind="Job"),
]

SITUATION = build_situation(
    "L",
    PARTS,
    {"keeps": "held by PDB ml/bare", "rest": ""},
    objects=[budget("bare", {"app": "bare"}, 0)],
)

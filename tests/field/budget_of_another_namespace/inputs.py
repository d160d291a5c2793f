"""A budget of another namespace."""

from tests.field.resting import budget, build_situation, rest

PARTS = [
    rest("elsewhere", kind="Notebook", labels={"app": "a"}),
    rest("mine", kind="Notebook", labels={"app": "b"}),
]

SITUATION = build_situation(
    "L",
    PARTS,
    {"elsewhere": "", "mine": "held by PDB ml/own"},
    objects=[budget("copy", {"app": "a"}, 0, namespace="other"), budget("own", {"app": "b"}, 0)],
)

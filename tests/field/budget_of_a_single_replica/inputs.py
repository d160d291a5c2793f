"""The budget of a single replica."""

from tests.field.resting import budget, build_situation, rest

PARTS = [
    rest("single", kind="Notebook", labels={"app": "single"}),
    rest("free", kind="Notebook", labels={"app": "free"}),
]

SITUATION = build_situation(
    "L",
    PARTS,
    {"single": "held by PDB ml/single", "free": ""},
    objects=[budget("single", {"app": "single"}, 0), budget("free", {"app": "free"}, 1)],
    lifted=("[ml/single]", "single"),
)

"""A budget that covers a whole namespace."""

from tests.field.resting import budget, build_situation, rest

PARTS = [
    rest("first", kind="Notebook", labels={"app": "a"}),
    rest("second", kind="Notebook"),
]

SITUATION = build_situation(
    "L",
    PARTS,
    {"first": "held by PDB ml/all", "second": "held by PDB ml/all"},
    objects=[budget("all", {}, 0)],
    lifted=("['ml/*']", "first second"),
)

"""A budget that cannot count a job's pods."""

from tests.field.resting import budget, build_situation, rest

PARTS = [
    rest("job", kind="Job", labels={"app": "worker"}),
    rest("uncounted", kind="Job", labels={"app": "new"}),
    rest("rest", kind="Job", labels={"app": "rest"}),
]

SITUATION = build_situation(
    "L",
    PARTS,
    {"job": "PDB ml/worker: how many", "uncounted": "PDB ml/new: how many", "rest": ""},
    objects=[
        budget("worker", {"app": "worker"}, 0, expected=0),
        budget("new", {"app": "new"}, None),
    ],
    lifted=("[ml/worker, ml/new]", ""),
)

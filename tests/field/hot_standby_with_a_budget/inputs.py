"""A hot standby whose budget allows nothing."""

from tests.field.resting import VLLM, budget, build_situation, load, rest

PARTS = [
    rest("standby", serving=load("standby", VLLM), labels={"role": "standby"}),
    rest("rest", serving=load("rest", VLLM), labels={"role": "server"}),
]

SITUATION = build_situation(
    "J",
    PARTS,
    {"standby": "held by PDB ml/keep", "rest": ""},
    objects=[budget("keep", {"role": "standby"}, 0)],
    lifted=("[ml/keep, role=standby]", "standby"),
    long=False,
)

"""Little CPU taken for an idle GPU."""

from tests.field.resting import build_situation, rest
from tests.field.site import BUSY

PARTS = [
    rest("works", kind="Notebook", metrics=BUSY),
    rest("rest", kind="Notebook"),
]

SITUATION = build_situation("K", PARTS, {"works": "no finding", "rest": ""})

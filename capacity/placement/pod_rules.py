"""The rules between pods for which no placement checks nodes (`pod.constraints`)."""

import json
from collections.abc import Iterable

RULES = {
    "ports": "it takes a port of its node",
    "apart": "it must stand apart from other pods",
    "beside": "it must stand beside other pods",
    "spread": "it is spread over parts of the cluster",
}
"""By name, as the collector stores them, in words."""


def explain_rule(constraints: Iterable[str | None]) -> str:
    """Return the first rule of pods that no placement checks; empty = there is none.

    `constraints`: of each pod, the JSON object by name; None = it is not known to have one.
    """
    names = {name for text in constraints if text for name in json.loads(text)}
    words = next((words for name, words in RULES.items() if name in names), "")
    return words and f"{words}, which is not checked"

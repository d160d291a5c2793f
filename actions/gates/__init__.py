"""The gates between a case and an act: each checks one condition and explains its refusal.

`gates.csv` lists the gates in their order. It gives what each guards (a notice and all after it, or
only the act), whether its refusal is a `deny` or a `hold`, and its source. Unknown data never pass
a gate.
"""

from datetime import datetime
from functools import cache
from typing import Literal

import msgspec

from actions.gates import environment, evidence, history, policy
from actions.gates.registry import CHECKS, GateInput, get_notice_time
from fallow.action_models import Reason, Ruling
from fallow.resources import read_table

__all__ = [
    "CHECKS",
    "ClosedGate",
    "Gate",
    "GateInput",
    "find_closed_gates",
    "get_notice_time",
    "list_gates",
    "render_table",
]
_GATE_MODULES = (policy, evidence, environment, history)
"""Modules whose gates register themselves on import."""


class Gate(msgspec.Struct, frozen=True):
    """A gate's row of `gates.csv`."""

    gate: str
    guards: Literal["notify", "act"]
    ruling: Ruling
    question: str
    source: str


class ClosedGate(msgspec.Struct, frozen=True):
    """A gate that refuses a case."""

    gate: Gate
    reason: Reason
    until: datetime | None


@cache
def list_gates() -> tuple[Gate, ...]:
    """Return the gates in their order."""
    return tuple(msgspec.convert(row, Gate) for row in read_table("actions", "gates.csv"))


def find_closed_gates(case: GateInput) -> tuple[ClosedGate, ...]:
    """Return every gate that refuses, in their order."""
    return tuple(
        ClosedGate(gate, Reason(gate.gate, refusal.text), refusal.until)
        for gate in list_gates()
        for refusal in CHECKS[gate.gate](case)
    )


def render_table() -> str:
    """Return the gates as a table in Markdown."""
    lines = ["| gate | guards | its no | asks | from |", "|---|---|---|---|---|"]
    lines += [
        f"| {g.gate} | {g.guards} | {g.ruling} | {g.question}? | {g.source} |" for g in list_gates()
    ]
    return "\n".join(lines) + "\n"

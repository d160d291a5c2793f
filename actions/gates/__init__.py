"""The gates between a case and an act: each asks one question and says why it says no.

`gates.csv` lists them in their order, with what each guards (a notice and all after it, or only
the act), whether its no is a `deny` or a `hold`, and where it comes from. What is not known never
passes a gate.
"""

import csv
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

from actions.gates import evidence, past, rule, world
from actions.gates.case import ASK, Case, notice_at
from fallow.acting import Reason, Ruling

__all__ = ["ASK", "Case", "Closed", "Gate", "closed", "gates", "notice_at", "table"]
_BOOKS = (rule, evidence, world, past)
"""Whose gates register themselves."""


class Gate(msgspec.Struct, frozen=True):
    """A gate's row of `gates.csv`."""

    gate: str
    guards: Literal["notify", "act"]
    ruling: Ruling
    asks: str
    source: str


class Closed(msgspec.Struct, frozen=True):
    """A gate that says no to a case."""

    gate: Gate
    reason: Reason
    until: datetime | None


@cache
def gates() -> tuple[Gate, ...]:
    """Return the gates in their order."""
    text = files("actions").joinpath("gates.csv").read_text(encoding="utf-8")
    return tuple(msgspec.convert(row, Gate) for row in csv.DictReader(text.splitlines()))


def closed(case: Case) -> tuple[Closed, ...]:
    """Return every gate that says no, in their order."""
    return tuple(
        Closed(gate, Reason(gate.gate, no.text), no.until)
        for gate in gates()
        for no in ASK[gate.gate](case)
    )


def table() -> str:
    """Return the gates as a table in Markdown."""
    lines = ["| gate | guards | its no | asks | from |", "|---|---|---|---|---|"]
    lines += [f"| {g.gate} | {g.guards} | {g.ruling} | {g.asks}? | {g.source} |" for g in gates()]
    return "\n".join(lines) + "\n"

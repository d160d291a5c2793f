"""What a workload's figures are a sign of, and which share of its hours that wastes.

The first sign that is seen counts, from what is broken (`broken.py`: a hang, a straggler, a host at
its limit, an input pipeline, links) to what is merely small (`small.py`).
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from analyzers.queries import load_rows
from analyzers.work import WORKED
from fallow.models import Evidence, State

Row = Mapping[str, Any]


class Symptom(msgspec.Struct, frozen=True):
    """A kind of under-use, the share of the hours in `states` that it wastes, and who says so."""

    kind: str
    share: float
    evidence: Evidence
    signals: dict[str, str]
    states: tuple[State, ...] = WORKED
    advice: tuple[tuple[str, float, dict[str, Any]], ...] = ()
    """Kinds of advice, the share each would save, and the words that fill its gaps."""
    ceiling: bool = False
    """`share` is the most that may be wasted, not what is: a suspicion, whoever signals it."""


def is_gang(workload_kind: str) -> bool:
    """Say whether a kind's pods are ranks of one job: replicas of a service do not wait."""
    return _read_kinds().get(workload_kind) == "idle_job"


def is_interactive(workload_kind: str) -> bool:
    """Say whether a person works at it, who reads and types between two kernels."""
    return _read_kinds().get(workload_kind) == "idle_notebook"


@cache
def _read_kinds() -> dict[str, str]:
    return {r["workload_kind"]: r["kind"] for r in load_rows("workload_kinds")}


def describe_power(row: Row) -> str:
    """Say where its power lies."""
    share = row["power_share"]
    return "unknown" if share is None else f"{share:.0%} of the power between idle and design"

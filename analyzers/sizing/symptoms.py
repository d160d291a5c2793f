"""Derive a symptom from a workload's figures, and the share of its hours that it wastes.

The first symptom found counts, from faults (`fault_symptoms.py`: a hang, a straggler, a host at its
limit, an input pipeline, links) to plain under-use (`underuse.py`).
"""

from typing import Any

import msgspec

from analyzers.sizing.rows import WorkloadUse
from analyzers.work import WORKED
from fallow.models import Evidence, State


class Symptom(msgspec.Struct, frozen=True):
    """A kind of under-use, the share of the hours in `states` that it wastes, and its signals."""

    kind: str
    share: float
    evidence: Evidence
    signals: dict[str, str]
    states: tuple[State, ...] = WORKED
    advice: tuple[tuple[str, float, dict[str, Any]], ...] = ()
    """Kinds of advice, the share each would save, and the words that fill its gaps."""
    ceiling: bool = False
    """True: `share` is an upper limit of the waste, so the finding is only suspected."""


def describe_power(row: WorkloadUse) -> str:
    """Describe its power between idle and design."""
    share = row.power_share
    return "unknown" if share is None else f"{share:.0%} of the power between idle and design"

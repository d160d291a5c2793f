"""Say which rules of waiting pods no placement checks: a way in that holds else is unknown then."""

from collections.abc import Iterable

import msgspec

from capacity.placement.fleet_state import PodRecord
from capacity.placement.pod_rules import explain_rule
from capacity.queue.records import Reason, WaitReason, WayIn

UNCHECKED_REASONS: frozenset[Reason] = frozenset({"topology", "volume"})
"""Of the scheduler's own words: what they name keeps a pod out whatever GPUs are free."""


def explain_unchecked(pods: Iterable[PodRecord], reasons: Iterable[WaitReason]) -> str:
    """Return what of the pods' rules no placement checks; empty = nothing."""
    if rule := explain_rule(pod.constraints for pod in pods):
        return rule
    for reason in reasons:
        if reason.reason in UNCHECKED_REASONS and reason.source in {"event", "condition"}:
            return f"its {reason.reason} keeps it out too, which is not checked: {reason.text}"
    return ""


def mark_unknown(ways: Iterable[WayIn], why: str) -> tuple[WayIn, ...]:
    """Return ways of which none holds: those that would are unknown."""
    return tuple(
        msgspec.structs.replace(way, state="unknown", why=why, nodes=())
        if way.state == "holds"
        else way
        for way in ways
    )

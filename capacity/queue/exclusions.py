"""Read which nodes a restart elsewhere excluded from a job, from the copy of the journal."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from capacity.queue.suspensions import Suspension
from fallow.action_models import Action
from fallow.protocols import Views
from fallow.resources import read_text

ENDED_EXCLUSION = "ended_exclusion"
"""Key of a finding's details: what an exclusion wrote, where its nodes are other ones now."""
EXCLUDED = "exclude_nodes"
"""Parameter of a restart elsewhere: the names of the nodes on which the job must not run again."""


class NodeExclusion(msgspec.Struct, frozen=True):
    """The nodes that the newest restart elsewhere of a job excluded.

    `was` and `becomes`: the fields of its pod templates before and after, by their pointers.
    """

    nodes: tuple[str, ...]
    at: datetime
    was: Mapping[str, Any]
    becomes: Mapping[str, Any]


class _ActionRow(msgspec.Struct, frozen=True):
    action: Action


def read_node_exclusion(views: Views, suspension: Suspension) -> NodeExclusion | None:
    """Return what the newest restart elsewhere of a suspended job excluded; None = there is none.

    It is of the same object, took effect, and was before the suspension.
    """
    stop = suspension.action
    rows = views.query(
        read_text("capacity.queue", "exclusions.sql"),
        {"cluster": suspension.key[0], "uid": stop.intent.target.uid, "until": stop.at},
    ).to_pylist()
    if not rows:
        return None
    action = msgspec.json.decode(rows[0]["document"], type=_ActionRow, strict=False).action
    nodes = action.decision.parameters.get(EXCLUDED)
    start = action.intent.changes[-1]
    # The other field of the start is the switch.
    pointers = [p for p, value in start.becomes.items() if isinstance(value, (dict, list))]
    if not nodes or not pointers:
        return None
    return NodeExclusion(
        tuple(nodes),
        action.at,
        {pointer: start.was.get(pointer) for pointer in pointers},
        {pointer: start.becomes[pointer] for pointer in pointers},
    )

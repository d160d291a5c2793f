"""Build the parameters of the quota executor from a proposal, from stored rows alone."""

from datetime import UTC, datetime
from typing import Any

import numpy as np

from analyzers.quota.groups import QuotaGroup
from analyzers.quota.proposal import QuotaProposal
from fallow.settings.capacity import QuotaSettings


def build_parameters(
    group: QuotaGroup, proposal: QuotaProposal, settings: QuotaSettings
) -> dict[str, Any]:
    """Return which objects would have which nominal quota, and when each was last changed."""
    resource, _, flavor = group.resource.partition("@")
    moves = [(g.column, g.before, g.after) for g in proposal.gifts]
    return {
        "proposal": {
            "kind": group.kind,
            "parent": group.parent,
            "resource": resource,
            "flavor": flavor,
            "floor_gpus": settings.floor_gpus,
            "max_step": settings.max_step,
            "moves": [_describe_move(group, *move) for move in (*moves, *proposal.receipts)],
        }
    }


def _describe_move(group: QuotaGroup, n: int, before: float, after: float) -> dict[str, Any]:
    namespace, name = group.members[n]
    return {
        "namespace": namespace,
        "object": name,
        "from_gpus": before,
        "to_gpus": after,
        "waiting_gpus": round(float(group.waiting[-1, n]), 3),
        **_find_last_change(group, n),
    }


def _find_last_change(group: QuotaGroup, n: int) -> dict[str, Any]:
    """Return the size and the hour of the last change of a nominal quota, whoever made it."""
    nominal = group.nominal[:, n]
    others = np.flatnonzero(np.abs(nominal - nominal[-1]) > 1e-9)  # noqa: PLR2004
    if not others.size:
        return {}
    # The hour of a change has a mean of before and after: the hour before it shows the direction.
    last = int(others[-1])
    earlier = nominal[max(0, last - 1)]
    change = float(nominal[-1] - (nominal[last] if earlier == nominal[-1] else earlier))
    at = datetime.fromtimestamp(int(group.hours[last]) * 3600, UTC)
    return {"changed_gpus": round(change, 6), "changed_at": at}

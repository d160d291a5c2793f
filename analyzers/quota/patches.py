"""Describe a proposal as a document: what each member gives and takes, and the patches."""

from typing import Any

import numpy as np

from analyzers.quota.groups import QuotaGroup
from analyzers.quota.proposal import QuotaProposal


def describe_proposal(group: QuotaGroup, proposal: QuotaProposal | None) -> dict[str, Any]:
    """Return the moves of a proposal and its refusals."""
    if proposal is None:
        return {"moves": [], "refused": []}
    return {
        "gpus": proposal.gpus,
        "moves": [
            *(
                {
                    "name": group.label(gift.column),
                    "from_gpus": gift.before,
                    "to_gpus": gift.after,
                    "keeps_quantile": gift.trial.keep_quantile,
                    "backtest_steps": gift.trial.steps,
                    "missed_gpu_hours": gift.trial.missed_gpu_hours,
                    "missed_share": gift.trial.missed_share,
                    "patch": _build_patch(group, gift.column, gift.before, gift.after),
                }
                for gift in proposal.gifts
            ),
            *(
                {
                    "name": group.label(column),
                    "from_gpus": before,
                    "to_gpus": after,
                    "patch": _build_patch(group, column, before, after),
                }
                for column, before, after in proposal.receipts
            ),
        ],
        "refused": [{"name": group.label(column), "why": why} for column, why in proposal.refused],
    }


def _build_patch(group: QuotaGroup, column: int, before: float, after: float) -> Any:
    """Return the change of a nominal quota.

    It is a merge-patch, or for Kueue's lists the values to replace.
    """
    resource, _, flavor = group.resource.partition("@")
    limit = float(group.limit[-1, column])
    higher_limit = {} if after <= limit else {resource: f"{after:g}"}
    if group.kind == "ClusterQueue":
        return {"flavor": flavor, "resource": resource, "nominalQuota": f"{after:g}",
                "test": f"{before:g}"}  # fmt: skip
    if group.kind == "ResourceQuota":
        return {"spec": {"hard": {f"requests.{resource}": f"{after:g}"}}}
    if group.kind == "Queue.kai":
        most = -1 if np.isinf(limit) else max(limit, after)
        return {"spec": {"resources": {"gpu": {"quota": after, "limit": most}}}}
    if group.kind == "Queue.volcano":
        more = {"capability": higher_limit} if higher_limit else {}
        return {"spec": {"deserved": {resource: f"{after:g}"}, **more}}
    more = {"max": higher_limit} if higher_limit else {}
    return {"spec": {"min": {resource: f"{after:g}"}, **more}}

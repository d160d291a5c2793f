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
                    "name": group.label(g.column),
                    "from_gpus": g.before,
                    "to_gpus": g.after,
                    "keeps_quantile": g.trial.keep_quantile,
                    "backtest_steps": g.trial.steps,
                    "missed_gpu_hours": g.trial.missed_gpu_hours,
                    "missed_share": g.trial.missed_share,
                    "patch": _build_patch(group, g.column, g.before, g.after),
                }
                for g in proposal.gifts
            ),
            *(
                {
                    "name": group.label(n),
                    "from_gpus": before,
                    "to_gpus": after,
                    "patch": _build_patch(group, n, before, after),
                }
                for n, before, after in proposal.receipts
            ),
        ],
        "refused": [{"name": group.label(n), "why": why} for n, why in proposal.refused],
    }


def _build_patch(group: QuotaGroup, n: int, before: float, after: float) -> Any:
    """Return the change of a nominal quota.

    It is a merge-patch, or for Kueue's lists the values to replace.
    """
    resource, _, flavor = group.resource.partition("@")
    limit = float(group.limit[-1, n])
    raised = {} if after <= limit else {resource: f"{after:g}"}
    if group.kind == "ClusterQueue":
        return {"flavor": flavor, "resource": resource, "nominalQuota": f"{after:g}",
                "test": f"{before:g}"}  # fmt: skip
    if group.kind == "ResourceQuota":
        return {"spec": {"hard": {f"requests.{resource}": f"{after:g}"}}}
    if group.kind == "Queue.kai":
        most = -1 if np.isinf(limit) else max(limit, after)
        return {"spec": {"resources": {"gpu": {"quota": after, "limit": most}}}}
    if group.kind == "Queue.volcano":
        more = {"capability": raised} if raised else {}
        return {"spec": {"deserved": {resource: f"{after:g}"}, **more}}
    return {"spec": {"min": {resource: f"{after:g}"}, **({"max": raised} if raised else {})}}

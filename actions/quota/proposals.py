"""Parse and check the analyzer's proposal in a decision's parameters."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from actions.quota.accounts import StepRules
from fallow.errors import UsageError


class QuotaMove(msgspec.Struct, frozen=True):
    """One quota's part in a proposal."""

    namespace: str
    object: str
    from_gpus: float
    to_gpus: float
    waiting_gpus: float = 0.0
    """The demand that waited for it when the proposal was built."""
    changed_gpus: float = 0.0
    """The size of the last change of its nominal quota, whoever made it."""
    changed_at: datetime | None = None

    @property
    def key(self) -> str:
        """Return the object's key."""
        return f"{self.namespace}/{self.object}" if self.namespace else self.object


class RebalanceProposal(msgspec.Struct, frozen=True):
    """A rebalance of one resource within a group of quotas."""

    kind: str
    resource: str
    moves: tuple[QuotaMove, ...]
    flavor: str = ""
    parent: str = ""
    floor_gpus: float = 1.0
    max_step: float = 0.25


class RebalanceLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of a policy's stage for a rebalance; the stricter of stage and proposal counts."""

    floor_gpus: float | None = None
    max_step: float | None = None
    period_days: float = 7
    settle_days: float = 28
    least_gpus: int = 1


def read_proposal(parameters: Mapping[str, Any]) -> tuple[RebalanceProposal, StepRules]:
    """Return the proposal and the rules of the step.

    Raises:
        UsageError: the parameters have no proposal, or it is malformed.
    """
    document = parameters.get("proposal")
    if not isinstance(document, Mapping) or not document.get("moves"):
        raise UsageError(
            "the decision has no quota proposal",
            hint="only a stranded_quota finding whose donors stood their back-test has one",
        )
    limit_fields = {k: v for k, v in parameters.items() if k in RebalanceLimits.__struct_fields__}
    try:
        proposal = msgspec.convert(document, RebalanceProposal, strict=False)
        limits = msgspec.convert(limit_fields, RebalanceLimits, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"the decision's quota proposal is not of its form: {error}") from error
    floors = [proposal.floor_gpus, *([] if limits.floor_gpus is None else [limits.floor_gpus])]
    steps = [proposal.max_step, *([] if limits.max_step is None else [limits.max_step])]
    return proposal, StepRules(
        max(floors),
        min(steps),
        timedelta(days=limits.period_days),
        timedelta(days=limits.settle_days),
        limits.least_gpus,
    )

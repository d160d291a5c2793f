"""Compute what budgets leave at one time, while cases are decided one after the other."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from actions.policy.budgets import (
    BudgetBlock,
    BudgetUsage,
    CountedAction,
    count_action,
    find_blocks,
    get_remaining,
)
from actions.policy.model import Policy
from fallow.action_models import Decision, Facts


class BudgetTracker:
    """The budgets of a policy while its cases are decided, the most expensive case first."""

    def __init__(
        self,
        policy: Policy,
        usage: BudgetUsage,
        uses: Sequence[CountedAction],
        now: datetime,
    ) -> None:
        self._policy, self._now = policy, now
        self._usage = msgspec.structs.replace(usage, uses=tuple(uses))
        self._exhausted: dict[str, tuple[BudgetBlock, ...]] = {}

    def admit(self, decision: Decision, facts: Facts) -> Decision:
        """Return an allowed act and charge it to the budgets.

        Return it as held if it does not fit.
        """
        blocks = self._exhausted.get(facts.finding.subject.cluster) or self._find_blocks(facts)
        if blocks:
            times = [hold.until for hold in blocks if hold.until is not None]
            return msgspec.structs.replace(
                decision,
                ruling="hold",
                reasons=tuple(hold.reason for hold in blocks),
                next_at=max(times) if len(times) == len(blocks) else None,
            )
        uses = (*self._usage.uses, count_action(decision, self._now))
        self._usage = msgspec.structs.replace(self._usage, uses=uses)
        return decision

    def _find_blocks(self, facts: Facts) -> tuple[BudgetBlock, ...]:
        cluster = facts.finding.subject.cluster
        blocks = find_blocks(self._policy, facts, self._usage, self._now)
        left = get_remaining(self._policy, self._usage, self._now, cluster).workloads
        if len(blocks) == 1 and left == 0:
            # The budget is exhausted for a case of any size, so the answer is the same for every
            # other case of the cluster.
            self._exhausted[cluster] = blocks
        return blocks

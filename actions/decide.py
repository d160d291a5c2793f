"""Decide about one case: a pure function of stored rows, a policy, what was done, and when."""

from datetime import datetime

from actions.policy.budgets import Spent
from actions.policy.model import Policy
from fallow.acting import Decision, Facts


def decide(policy: Policy, facts: Facts, spent: Spent, now: datetime) -> Decision:
    """Return the next rung for a case, whether it may be taken now, and every reason.

    The case has to match the policy (`actions.policy.matching.matches`).
    """
    raise NotImplementedError

"""Which cases a policy is about."""

from actions.policy.model import Policy
from fallow.acting import Facts, Reason


def matches(policy: Policy, facts: Facts) -> tuple[Reason, ...]:
    """Return why a case is not the policy's; nothing = it is."""
    raise NotImplementedError

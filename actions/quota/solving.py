"""How much each account gives and gets: whole devices, nobody hurt, nothing lost."""

from collections.abc import Sequence
from datetime import datetime

from actions.quota.accounts import Account, Rules, Solution, Wish


def solve(
    accounts: Sequence[Account], wishes: Sequence[Wish], rules: Rules, now: datetime
) -> Solution:
    """Return the step closest to the wishes that keeps every rule."""
    raise NotImplementedError

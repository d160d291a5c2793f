"""What budgets leave at one moment, asked about one case after the other."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from actions.policy.budgets import Hold, Spent, Use, held, left, use
from actions.policy.model import Policy
from fallow.acting import Decision, Facts, Reason


class Room:
    """The budgets of a policy while its cases are decided, the dearest first."""

    def __init__(
        self,
        policy: Policy,
        spent: Spent,
        uses: Sequence[Use],
        now: datetime,
        concurrent: int | None = None,
    ) -> None:
        """`concurrent`: so many acts at once, their outcomes known by the next turn; None = any."""
        self._policy, self._now = policy, now
        self._at_once, self._taken = concurrent, 0
        self._spent = msgspec.structs.replace(spent, uses=tuple(uses))
        self._full: tuple[Hold, ...] | None = None

    def taken(self, decision: Decision, facts: Facts) -> Decision:
        """Return an allowed act as it is where there is room for it, and take that; else held."""
        if self._at_once is not None and self._taken >= self._at_once:
            said = f"{self._taken} actions are under way, concurrent is {self._at_once}"
            why = (Reason("concurrent", said),)
            return msgspec.structs.replace(decision, ruling="hold", reasons=why, next_at=None)
        shut = self._full if self._full is not None else self._held(facts)
        if shut:
            moments = [hold.until for hold in shut if hold.until is not None]
            return msgspec.structs.replace(
                decision,
                ruling="hold",
                reasons=tuple(hold.reason for hold in shut),
                next_at=max(moments) if len(moments) == len(shut) else None,
            )
        uses = (*self._spent.uses, use(decision, self._now))
        self._spent = msgspec.structs.replace(self._spent, uses=uses)
        self._taken += 1
        return decision

    def _held(self, facts: Facts) -> tuple[Hold, ...]:
        shut = held(self._policy, facts, self._spent, self._now)
        if len(shut) == 1 and left(self._policy, self._spent, self._now).workloads == 0:
            # Nothing fits whatever its size: the answer is the same for every other case.
            self._full = shut
        return shut

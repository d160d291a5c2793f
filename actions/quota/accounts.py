"""Quotas as accounts of one resource: nominal quota, use, and lower and upper bounds."""

from datetime import datetime, timedelta

import msgspec


class Account(msgspec.Struct, frozen=True):
    """One quota of one resource as it stands now, in devices."""

    key: str
    """`namespace/name`, or the name of a cluster's own object."""
    nominal: float | None
    """None = unlimited or not stated: it neither gives nor gets, and bounds no other account."""
    parent: str | None = None
    used: float | None = None
    """None = unknown: it gives nothing."""
    waiting: float = 0.0
    """Requested and not yet allocated."""
    least: float = 0.0
    """The minimum: the nominal quota never falls below it, whatever the use."""
    most: float | None = None
    """The maximum of the nominal quota; None = no maximum."""
    fixed: str = ""
    """Why its object must not be written; empty = it may be."""
    moved: float = 0.0
    """The change of our last step (negative: it gave)."""
    moved_at: datetime | None = None


class TargetQuota(msgspec.Struct, frozen=True):
    """The nominal quota that a proposal wants for an account, in the order of priority."""

    key: str
    to: float


class StepRules(msgspec.Struct, frozen=True):
    """The limits of one step."""

    floor: float = 1.0
    """Devices that a giver keeps above its use and its waiting demand."""
    max_step: float = 0.25
    """Maximum share of a nominal quota that is given in one step."""
    period: timedelta = timedelta(days=7)
    """An account moves at most once in this time."""
    settle: timedelta = timedelta(days=28)
    """A receiver does not give, and a giver does not get, before this time has passed (hysteresis).
    """
    least_move: int = 1
    """Minimum number of devices in all for a change."""


class QuotaShift(msgspec.Struct, frozen=True):
    """One account's nominal quota before and after."""

    key: str
    before: float
    after: float

    @property
    def change(self) -> float:
        """Return the devices it gets; negative: the devices it gives."""
        return round(self.after - self.before, 9)


class QuotaStep(msgspec.Struct, frozen=True):
    """The shifts in the order of writing, and the refusals with their reasons."""

    shifts: tuple[QuotaShift, ...]
    refused: tuple[tuple[str, str], ...] = ()
    """Key of the account, and why."""
    parents: frozenset[str] = frozenset()
    """Accounts that change only because accounts below them do."""

    @property
    def moved(self) -> float:
        """Return how many devices change hands; parents that follow do not count twice."""
        return sum(s.change for s in self.shifts if s.change > 0 and s.key not in self.parents)

"""Quotas as accounts of one resource: what each is entitled to, uses, and may never fall below."""

from datetime import datetime, timedelta

import msgspec


class Account(msgspec.Struct, frozen=True):
    """One quota of one resource as it stands now, in devices."""

    key: str
    """`namespace/name`, or the name of a cluster's own object."""
    guarantee: float | None
    """None = unlimited or not said: it neither gives nor gets, and bounds nobody."""
    parent: str | None = None
    used: float | None = None
    """None = not known: it gives nothing."""
    waiting: float = 0.0
    """Asked for and not had yet."""
    least: float = 0.0
    """What was promised: it never falls below, whatever it uses."""
    most: float | None = None
    """It never rises above; None = no such bound."""
    fixed: str = ""
    """Why it may not be written; empty = it may."""
    moved: float = 0.0
    """What our last step gave it (negative: took from it)."""
    moved_at: datetime | None = None


class TargetQuota(msgspec.Struct, frozen=True):
    """What a proposal would make of an account, in the order in which wishes are heard."""

    key: str
    to: float


class StepRules(msgspec.Struct, frozen=True):
    """How far one step may go."""

    floor: float = 1.0
    """Devices that a giver keeps above what it uses and waits for."""
    max_step: float = 0.25
    """Most of a guarantee that is given in one step."""
    period: timedelta = timedelta(days=7)
    """An account moves once in it."""
    settle: timedelta = timedelta(days=28)
    """Who got does not give, and who gave does not get, before that (hysteresis)."""
    least_move: int = 1
    """Fewer devices in all are not worth a change."""


class QuotaShift(msgspec.Struct, frozen=True):
    """One account's guarantee before and after."""

    key: str
    before: float
    after: float

    @property
    def change(self) -> float:
        """Return what it gets; negative: what it gives."""
        return round(self.after - self.before, 9)


class QuotaStep(msgspec.Struct, frozen=True):
    """The shifts in the order of writing, and who was refused what."""

    shifts: tuple[QuotaShift, ...]
    refused: tuple[tuple[str, str], ...] = ()
    """Key and why."""
    parents: frozenset[str] = frozenset()
    """Accounts that only follow those below them."""

    @property
    def moved(self) -> float:
        """Return how many devices change hands; parents that follow do not count twice."""
        return sum(s.change for s in self.shifts if s.change > 0 and s.key not in self.parents)

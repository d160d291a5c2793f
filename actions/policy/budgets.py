"""How much is left to be done: the most restrictive of all budgets that hold at a moment."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal

import msgspec

from actions.policy.model import Policy
from fallow.acting import Facts, Reason


class Use(msgspec.Struct, frozen=True):
    """One action that counts against budgets."""

    at: datetime
    policy: str
    workload: tuple[str, str, str, str]
    """cluster, kind, namespace, name"""
    gpus: float
    owner: str | None
    usd_per_hour: Decimal | None


class Spent(msgspec.Struct, frozen=True):
    """What was done already, and the fleet it was done to. None is unknown."""

    uses: tuple[Use, ...] = ()
    fleet_gpus: float | None = None
    fleet_workloads: int | None = None
    fleet_owners: int | None = None
    fleet_usd_per_hour: Decimal | None = None
    concurrent: int = 0
    """Actions under way."""
    frozen: str | None = None
    """Why nothing at all may be done."""
    demoted: frozenset[str] = frozenset()
    """Policies whose owners took back too much."""
    trusted: frozenset[str] = frozenset()
    """Policies whose back-test met the regret they declare, or which were forced."""
    acted: Mapping[str, int] = {}
    """Actions ever taken by a policy; none known = none taken."""


class Left(msgspec.Struct, frozen=True):
    """What may still be done now under the budgets that count everything together; None = any."""

    workloads: int | None
    gpus: float | None
    owners: int | None
    usd_per_hour: Decimal | None
    concurrent: int


def left(policy: Policy, spent: Spent, now: datetime) -> Left:
    """Return the least that any budget in force leaves."""
    raise NotImplementedError


def use(policy: Policy, facts: Facts, now: datetime) -> Use:
    """Return what an action on a case would count as."""
    raise NotImplementedError


def held(policy: Policy, facts: Facts, spent: Spent, now: datetime) -> tuple[Reason, ...]:
    """Return every budget that has nothing left for a case; nothing = it may be done now."""
    raise NotImplementedError


def exceeded(policy: Policy, cases: int, spent: Spent) -> Reason | None:
    """Say why so many cases in one run abort the run, or None."""
    raise NotImplementedError

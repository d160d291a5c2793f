"""A plan: what policies decide about all cases now, within their budgets."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from fallow.acting import Decision, Facts, History, Reason

if TYPE_CHECKING:
    from actions.policy.budgets import Spent
    from actions.policy.model import Policy


class Refused(msgspec.Struct, frozen=True):
    """A case that no policy takes a step for, and every reason."""

    finding: str
    subject: tuple[str, str, str, str]
    """cluster, kind, namespace, name"""
    policy: str
    """Empty = no policy matches it."""
    reasons: tuple[Reason, ...]


class Plan(msgspec.Struct, frozen=True):
    """Decisions that may be taken now, dearest over disruption first, and all that is refused."""

    decisions: tuple[Decision, ...]
    refused: tuple[Refused, ...]
    aborted: Reason | None = None
    """Why nothing at all may be done: more cases than a policy's max_resources, a freeze."""


def plan(
    policies: Sequence["Policy"],
    facts: Sequence[Facts],
    spent: "Spent",
    now: datetime,
    histories: Mapping[tuple[str, str], History] = {},
) -> Plan:
    """Decide about all cases, one decision per object."""
    raise NotImplementedError

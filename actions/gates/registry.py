"""The input of a gate, its refusal, and the registry of all gates."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import msgspec

from actions.policy.budgets import BudgetUsage
from actions.policy.model import Policy
from actions.recommend import NOTIFY_OWNER, REQUEST_TO_OWNER
from fallow.action_models import Facts
from fallow.window import format_duration


class GateInput(msgspec.Struct, frozen=True):
    """All data that a gate may read."""

    policy: Policy
    facts: Facts
    usage: BudgetUsage
    now: datetime


class Refusal(msgspec.Struct, frozen=True):
    """A gate's refusal: the reason, and the end if only time can change it."""

    text: str
    until: datetime | None = None


GateCheck = Callable[[GateInput], Iterator[Refusal]]
CHECKS: dict[str, GateCheck] = {}
"""The check of each gate, by its name in `gates.csv`."""


def register_gate(name: str) -> Callable[[GateCheck], GateCheck]:
    """Register a function as a gate."""

    def put(check: GateCheck) -> GateCheck:
        CHECKS[name] = check
        return check

    return put


def join_words(words: tuple[str, ...]) -> str:
    """Join words for a sentence."""
    return ", ".join(words) or "empty"


def format_span(length: timedelta) -> str:
    """Format a duration for people."""
    return format_duration(length.total_seconds())


def get_notice_time(facts: Facts) -> datetime | None:
    """Return when delivery was proved of a notice of this stretch that announced the same verb.

    A notice of an earlier stretch does not count. A notice that announced another verb named other
    losses. Where a stop was announced and the evidence is weaker now, no weaker notice follows: it
    would state that nothing happens automatically, and the stop would come as soon as the evidence
    is strong again.
    """
    history = facts.history
    verb = facts.recommendation.verb
    notified = history.announced.get(verb) if history.announced else history.notified_at
    if notified is None and verb in {NOTIFY_OWNER, REQUEST_TO_OWNER}:
        notified = next(iter(history.announced.values()), None)  # at most one
    start = facts.finding.window.start
    return notified if notified is not None and notified >= start else None

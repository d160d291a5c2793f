"""What a gate is asked about, what it answers, and the book of all gates."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import msgspec

from actions.policy.budgets import BudgetUsage
from actions.policy.model import Policy
from actions.recommend import ASK_OWNER, NOTIFY_OWNER
from fallow.action_models import Facts
from fallow.window import format_duration


class GateInput(msgspec.Struct, frozen=True):
    """All that a gate may look at."""

    policy: Policy
    facts: Facts
    spent: BudgetUsage
    now: datetime


class Refusal(msgspec.Struct, frozen=True):
    """A gate's no: why, and until when, if time alone can change it."""

    text: str
    until: datetime | None = None


GateCheck = Callable[[GateInput], Iterator[Refusal]]
CHECKS: dict[str, GateCheck] = {}
"""What each gate asks, by its name in `gates.csv`."""


def gate(name: str) -> Callable[[GateCheck], GateCheck]:
    """Make a function a gate."""

    def put(check: GateCheck) -> GateCheck:
        CHECKS[name] = check
        return check

    return put


def join_words(words: tuple[str, ...]) -> str:
    """Return words for a sentence."""
    return ", ".join(words) or "empty"


def format_span(length: timedelta) -> str:
    """Return a length as people say it."""
    return format_duration(length.total_seconds())


def get_notice_time(facts: Facts) -> datetime | None:
    """Return when a notice of this stretch of waste was proved that announced what is advised now.

    An earlier stretch's does not count, and one that announced something else named other losses.
    Where a stop was announced and the evidence is weaker now, no weaker notice follows: it would
    say that nothing happens by itself, and the stop would come as soon as the evidence is back.
    """
    history = facts.history
    verb = facts.recommendation.verb
    notified = history.announced.get(verb) if history.announced else history.notified_at
    if notified is None and verb in {NOTIFY_OWNER, ASK_OWNER}:
        notified = min(history.announced.values(), default=None)
    start = facts.finding.window.start
    return notified if notified is not None and notified >= start else None

"""Detect drift: a change by the owner is a reversal, a change by a controller is a revert."""

from datetime import datetime, timedelta

from actions.journal import ActionState, JournalState, event_types
from actions.loop.change_state import (
    compare_object,
    find_differences,
    find_final_changes,
    find_last_writer,
    is_pending,
)
from actions.loop.context import ActionContext, get_manager_name
from actions.loop.protocols import Reviewer
from actions.loop.undo import roll_back
from actions.policy.model import Policy
from fallow.action_models import Outcome, Reason
from fallow.errors import FallowError

CHECK_INTERVALS = (
    (timedelta(minutes=30), timedelta(0)),
    (timedelta(hours=24), timedelta(minutes=5)),
)
"""Maximum age of an action, and the time between two checks of it; older ones are checked hourly.
"""
LONGEST_INTERVAL = timedelta(hours=1)
REVERSAL_WINDOW = timedelta(days=30)
"""The window in which reversals are counted."""


class DriftDetector:
    """Checks the objects of actions repeatedly, less often with the age of the action."""

    def __init__(self, context: ActionContext) -> None:
        self._context = context
        self._checked: dict[str, datetime] = {}

    def find_changes(self) -> list[Outcome]:
        """Find actions that were reversed since; return the outcomes that changed."""
        context, now = self._context, self._context.clock()
        changed = []
        for state in context.record.list_standing(now - context.settings.watch):
            checked_at = self._checked.get(state.action.id)
            if checked_at is not None and now - checked_at < _check_interval(now - state.action.at):
                continue
            self._checked[state.action.id] = now
            try:
                outcome = self._check(state)
            except FallowError:
                continue  # unknown is no reversal: check again later
            if outcome is not None:
                changed.append(outcome)
        return changed

    def _check(self, state: ActionState) -> Outcome | None:
        context = self._context
        for change in find_final_changes(state.action.intent.changes):
            obj = context.sender.read_object(change)
            object_state = compare_object(change, obj)
            if (
                object_state in ("gone", "other")
                and change.target.uid == state.action.intent.target.uid
            ):
                context.record.append(
                    event_types.OBJECT_GONE, state.action.id, {"why": "its object was deleted"}
                )
                return None
            if (
                object_state in ("was", "neither")
                and obj is not None
                and not is_pending(change, object_state)
            ):
                fields = find_differences(change.becomes, obj)
                by = get_manager_name(find_last_writer(obj, fields))
                context.contested(state, by)
                if context.elapsed(state.action.at) > context.settings.reverted_within:
                    return None
                why = Reason("reverted", f"{by} took back {', '.join(fields)}")
                return context.conclude(state, "reverted", why, reverted_by=by)
        return None


def undo_harmful(context: ActionContext, reviewer: Reviewer) -> list[Outcome]:
    """Undo actions that did harm by stored rows, hours after the act."""
    now, outcomes = context.clock(), []
    for state in context.record.list_standing(now - context.settings.watch):
        if state.reviewed or context.halted():
            continue
        try:
            harm = reviewer(state.action, now)
            if harm == ():
                context.record.append(event_types.REVIEWED, state.action.id, {})
            elif harm:
                outcome = roll_back(context, state, "failed", *harm)
                length = context.settings.back_off.reverted
                context.back_off(state.workload, length, "; ".join(r.text for r in harm))
                outcomes += [outcome] if outcome is not None else []
        except FallowError:
            continue  # not known yet: check again at the next evaluation
    return outcomes


def demote_policies(record: JournalState, policies: tuple[Policy, ...], now: datetime) -> list[str]:
    """Demote policies whose owners reversed more than the declared rate; return the messages.

    One reversed action is tolerated, unless a policy declares a rate of zero. From the second on,
    the share is compared.
    """
    texts = []
    for policy in policies:
        trust = record.trusted.get(policy.name)
        if trust is None or policy.name in record.demoted:
            continue
        since = max(trust.since, now - REVERSAL_WINDOW)
        reversed_count, acted = record.count_reversals(policy.name, policy.reversals.within, since)
        rate = policy.reversals.rate
        if reversed_count > max(1 if rate else 0, rate * acted):
            document = {"reversed": reversed_count, "acted": acted, "declared": rate}
            record.append(event_types.DEMOTED, policy.name, document)
            texts.append(
                f"policy {policy.name} only notifies from now on: "
                f"{reversed_count} of {acted} actions were reversed, it declares {rate:.1%}"
            )
    return texts


def _check_interval(age: timedelta) -> timedelta:
    return next((pause for max_age, pause in CHECK_INTERVALS if age <= max_age), LONGEST_INTERVAL)

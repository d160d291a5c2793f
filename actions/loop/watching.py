"""Watch what was done: owners who take it back are regret, controllers who do are a contest."""

from datetime import datetime, timedelta

from actions.journal import Record, Told, words
from actions.loop.kit import Kit, manager_of
from actions.loop.pointers import differing, pending, standing, state, writer
from actions.loop.seams import Reviewer
from actions.loop.undoing import roll_back
from actions.policy.model import Policy
from fallow.acting import Outcome, Reason
from fallow.errors import FallowError

OFTEN = ((timedelta(minutes=30), timedelta(0)), (timedelta(hours=24), timedelta(minutes=5)))
"""Up to which age an action is looked at how often; older ones hourly."""
SELDOM = timedelta(hours=1)
MEMORY = timedelta(days=30)
"""Regret is counted over so long."""


class Watch:
    """Looks again and again at what stands, the older the less often."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._looked: dict[str, datetime] = {}

    def look(self) -> list[Outcome]:
        """Find what was taken back since; return outcomes that changed by that."""
        kit, now = self._kit, self._kit.clock()
        changed = []
        for told in kit.record.standing(now - kit.settings.watch):
            looked = self._looked.get(told.action.id)
            if looked is not None and now - looked < _pause(now - told.action.at):
                continue
            self._looked[told.action.id] = now
            try:
                made = self._one(told)
            except FallowError:
                continue  # unknown is not taken back: the next look may tell
            if made is not None:
                changed.append(made)
        return changed

    def _one(self, told: Told) -> Outcome | None:
        kit = self._kit
        for change in standing(told.action.intent.changes):
            obj = kit.writes.look(change)
            how = state(change, obj)
            if how in ("gone", "other") and change.target.uid == told.action.intent.target.uid:
                kit.record.append(words.ENDED, told.action.id, {"why": "its object is gone"})
                return None
            if how in ("was", "neither") and obj is not None and not pending(change, how):
                fields = differing(change.becomes, obj)
                by = manager_of(writer(obj, fields))
                kit.contested(told, by)
                if kit.clock() - told.action.at > kit.settings.contest:
                    return None
                why = Reason("reverted", f"{by} took back {', '.join(fields)}")
                return kit.conclude(told, "reverted", why, reverted_by=by)
        return None


def review(kit: Kit, reviewer: Reviewer) -> list[Outcome]:
    """Take back what stored rows show to have done harm, hours after it was done."""
    now, taken = kit.clock(), []
    for told in kit.record.standing(now - kit.settings.watch):
        if told.reviewed or kit.halted():
            continue
        try:
            harm = reviewer(told.action, now)
            if harm == ():
                kit.record.append(words.REVIEWED, told.action.id, {})
            elif harm:
                outcome = roll_back(kit, told, "failed", *harm)
                length = kit.settings.back_off.contested
                kit.back_off(told.workload, length, "; ".join(r.text for r in harm))
                taken += [outcome] if outcome is not None else []
        except FallowError:
            continue  # nobody knows yet: the next turn may
    return taken


def demote(record: Record, policies: tuple[Policy, ...], now: datetime) -> list[str]:
    """Demote policies whose owners took back more than they declare; return what to say.

    One action taken back is bad luck, unless a policy declares that none may be: from the second
    on, the share counts.
    """
    said = []
    for policy in policies:
        trust = record.trusted.get(policy.name)
        if trust is None or policy.name in record.demoted:
            continue
        since = max(trust.since, now - MEMORY)
        back, acted = record.regret(policy.name, policy.regret.within, since)
        rate = policy.regret.rate
        if back > max(1 if rate else 0, rate * acted):
            document = {"taken_back": back, "acted": acted, "declared": rate}
            record.append(words.DEMOTED, policy.name, document)
            said.append(
                f"policy {policy.name} only notifies from now on: {back} of {acted} actions were "
                f"taken back, it declares {rate:.1%}"
            )
    return said


def _pause(age: timedelta) -> timedelta:
    return next((pause for most, pause in OFTEN if age <= most), SELDOM)

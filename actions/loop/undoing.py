"""Take an action back: exactly, once, and only where nobody else changed it since.

Every change of the undo names what it finds (`was`) and what it leaves (`becomes`), so whoever
goes on after a crash reads the objects and sends what is still missing, nothing twice.
"""

from datetime import timedelta

import msgspec

from actions.journal import Told, words
from actions.loop.kit import LATE, Kit, manager_of
from actions.loop.pointers import State, differing, fresh, pending, state, writer
from actions.loop.telling import untell
from actions.loop.writes import Stopped
from fallow.acting import Change, Outcome, Reason, Result
from fallow.errors import RefusedError, TemporaryError
from fallow.window import format_duration


class Found(msgspec.Struct, frozen=True):
    """How the object of one change of an undo stands now."""

    change: Change
    """With the version that the object has now."""
    state: State
    by: str = ""
    """Who wrote what it shows, where that is neither of ours."""
    what: str = ""


def undo(kit: Kit, told: Told, by: str) -> Outcome:
    """Give back what an action took, because somebody asked for it.

    Raises:
        RefusedError: it was undone already, nothing of it was done, it is too old, somebody
            changed the object since, or the API says no. Nothing was written.
        TemporaryError: no answer; the next turn finds out and finishes it.
    """
    if _is_under_way(told) and (outcome := go_on(kit, told)) is not None:
        return _require_undone(told, outcome)
    _allowed(kit, told)
    found = look(kit, told)
    _unchanged(kit, told, found)
    _possible(kit, told, found)
    document = {"asked": True, "ends": "undone"}
    kit.record.append(words.UNDOING, told.action.id, document, actor=by)
    kit.pulse("journalled the undo")
    outcome = go_on(kit, told)
    if outcome is None:
        raise TemporaryError(
            f"action {told.action.id}: the undo is begun and not over: no answer, or it waits",
            hint="the next turn, or the same command again, finds out and finishes it",
        )
    return _require_undone(told, outcome)


def roll_back(kit: Kit, told: Told, ends: Result, *why: Reason) -> Outcome | None:
    """Take back what was done of an action that did not go well; None = that is not over yet."""
    kit.record.append(
        words.UNDOING, told.action.id, {"asked": False, "ends": ends, "why": list(why)}
    )
    kit.pulse("journalled the roll back")
    return go_on(kit, told)


def go_on(kit: Kit, told: Told) -> Outcome | None:
    """Send what is missing of an undo that was begun; None = it is not over yet."""
    begun = told.undoing
    if begun is None or (not begun.asked and kit.halted()) or _answer_late(kit, told):
        return None
    found = look(kit, told)
    stopped = None
    changed = [one.what for one in found if one.state == "neither"]
    if not (begun.asked and changed):
        skip = {n for n, one in enumerate(found) if not _to_send(told, n, one)}
        stopped = kit.writes.unsend(told, [one.change for one in found], skip)
    if stopped is not None and stopped.verdict in ("away", "halted", "throttled"):
        _withdraw(kit, told, stopped)
        return None
    if stopped is not None and stopped.verdict == "waiting":
        since = told.back.last or begun.at
        if kit.clock() - since < kit.settings.wait:
            return None
    left = [Reason("changed since", what) for what in changed]
    if stopped is not None:
        left.append(stopped.reason)
    if begun.asked and left:
        # Nothing of it was written, or only part: it stands as it stood.
        return kit.conclude(told, told.outcome.result if told.outcome else "unknown", *left)
    # Only now: an annotation makes the controller of a Deployment write, and the version that a
    # restore carries would be old. While the action stands, they say how to undo it.
    notes = untell(kit, told.action)
    if notes is None:
        return None
    kit.pulse("took the annotations away")
    if begun.asked:
        kit.contested(told, begun.by)
    reasons = [*begun.why, *left, *(Reason("annotation", note) for note in notes)]
    by = told.restored.by if told.restored and begun.ends == "reverted" else None
    return kit.conclude(told, begun.ends, *reasons, reverted_by=by)


def look(kit: Kit, told: Told) -> list[Found]:
    """Return how the objects of an action's undo stand now.

    Raises:
        TemporaryError: no answer.
    """
    found = []
    for change in told.action.intent.undo:
        obj = kit.writes.look(change)
        how = state(change, obj)
        by = what = ""
        if how in ("neither", "becomes") and obj is not None:
            fields = differing(change.was, obj)
            by = manager_of(writer(obj, fields))
            what = f"{change.target.kind} {change.target.name}: {', '.join(fields)} is not as left"
            what += f"; {by} wrote it"
        found.append(Found(fresh(change, obj), how, by, what))
    return found


def _is_under_way(told: Told) -> bool:
    """Tell whether somebody asked for an undo that is not over."""
    return told.is_open and told.undoing is not None and told.undoing.asked


def _require_undone(told: Told, outcome: Outcome) -> Outcome:
    """Return the outcome of an undo that somebody asked for.

    Raises:
        RefusedError: it is not undone, and why.
    """
    if outcome.result != "undone":
        raise RefusedError(
            f"action {told.action.id} is not undone: "
            + "; ".join(reason.text for reason in outcome.reasons)
        )
    return outcome


def _allowed(kit: Kit, told: Told) -> None:
    action, outcome = told.action, told.outcome
    if outcome is not None and outcome.result == "undone" and not told.is_open:
        raise RefusedError(f"action {action.id} was undone already, at {_minute(outcome.at)}")
    if told.restored is not None:
        at, by = told.restored.at, told.restored.by
        raise RefusedError(f"action {action.id} was taken back already, by {by} at {_minute(at)}")
    if told.is_open and (told.undoing is not None or told.writes.open or not told.writes.took):
        raise TemporaryError(
            f"action {action.id} is under way: what became of it is not known yet",
            hint="try again in a minute",
        )
    if not told.writes.took or (outcome is not None and outcome.result in ("refused", "failed")):
        raise RefusedError(f"action {action.id} stands no more: there is nothing to undo")
    age: timedelta = kit.clock() - action.at
    if age > kit.settings.watch:
        length = format_duration(kit.settings.watch.total_seconds())
        raise RefusedError(
            f"action {action.id} is older than {length}: it is not undone by command any more",
            hint="what it changed is in the journal: fallow actions ID",
        )
    if not action.intent.undo:
        raise RefusedError(
            f"action {action.id} cannot be undone: {action.intent.lost or 'it left nothing'}"
        )


def _unchanged(kit: Kit, told: Told, found: list[Found]) -> None:
    for one in found:
        whom = f"{one.change.target.kind} {one.change.target.name}"
        if one.state in ("gone", "other"):
            again = "" if one.state == "gone" else "; another has its name"
            raise RefusedError(f"action {told.action.id} cannot be undone: {whom} is gone{again}")
        if one.state == "neither":
            raise RefusedError(
                f"action {told.action.id} is not undone, somebody changed it since: {one.what}",
                hint="their change stays; what it was before is in: "
                f"fallow actions {told.action.id}",
            )
    if all(one.state == "becomes" for one in found):
        by = found[0].by
        kit.contested(told, by)
        raise RefusedError(f"action {told.action.id} was taken back already, by {by}")


def _possible(kit: Kit, told: Told, found: list[Found]) -> None:
    """Refuse an undo whose first write would wait: it would hold up what it has begun."""
    first = next((one.change for one in found if one.state == "was"), None)
    why = None if first is None else kit.writes.waits(first)
    if why is not None:
        raise RefusedError(f"action {told.action.id} cannot be undone now: {why}")


def _to_send(told: Told, number: int, one: Found) -> bool:
    if one.state == "was":
        return True
    if one.state == "unsaid":  # it cannot be compared: only what was never sent is sent
        return number not in told.back.sending and bool(told.writes.took)
    return False


def _answer_late(kit: Kit, told: Told) -> bool:
    """Settle writes of the undo that got no answer; tell whether one may still arrive."""
    waiting = False
    for number, at in sorted(told.back.open.items()):
        change = told.action.intent.undo[number]
        how = state(change, kit.writes.look(change))
        late = kit.clock() - at >= LATE
        if how == "becomes" or (late and (how != "was" or pending(change, how))):
            kit.record.append(words.UNSENT, told.action.id, {"change": number, "code": 0})
        elif late:
            kit.record.append(words.WITHDRAWN, told.action.id, {"change": number, "undo": True})
        else:
            waiting = True
    return waiting


def _withdraw(kit: Kit, told: Told, stopped: Stopped) -> None:
    if stopped.verdict == "throttled":
        document = {"change": stopped.change, "undo": True}
        kit.record.append(words.WITHDRAWN, told.action.id, document)


def _minute(moment: object) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"

"""Undo an action: exactly, once, and only where nobody else changed the object since.

Every change of the undo names the state that it expects (`was`) and the state that it leaves
(`becomes`). After a crash, the next process reads the objects and sends what is still missing,
nothing twice.
"""

from collections.abc import Sequence

import msgspec

from actions.journal import ActionState, JournalState, event_types
from actions.journal.action_state import UndoState
from actions.loop.annotate import remove_annotations
from actions.loop.change_state import (
    ObjectState,
    compare_object,
    find_differences,
    find_last_writer,
    is_pending,
    is_recreation,
    set_current_version,
)
from actions.loop.context import MAX_DELAY, ActionContext, get_manager_name
from actions.loop.sender import Interruption
from actions.recommend import ELSEWHERE, RESTART
from fallow.action_models import Change, Outcome, Reason, Result
from fallow.errors import RefusedError, TemporaryError
from fallow.kube.objects import is_deleting
from fallow.window import format_duration


class UndoCheck(msgspec.Struct, frozen=True):
    """The current state of the object of one change of an undo."""

    change: Change
    """The change with the object's current version."""
    state: ObjectState
    by: str = ""
    """The writer of the current value, where it is neither of our two values."""
    difference: str = ""


def undo(context: ActionContext, state: ActionState, by: str) -> Outcome:
    """Undo an action on a person's request.

    Raises:
        RefusedError: it was undone already, nothing of it was done, it is too old, somebody changed
            the object since, or the API refuses. Nothing was written.
        TemporaryError: no answer; the next evaluation reads the state and finishes it.
    """
    if _is_under_way(state) and (outcome := continue_undo(context, state)) is not None:
        return _require_undone(state, outcome)
    _require_undoable(context, state)
    checks = check_objects(context, state)
    _require_unchanged(context, state, checks)
    _require_lasting(context, state)
    _require_sendable(context, state, checks)
    document = {"requested": True, "ends": "undone"}
    context.record.append(event_types.UNDO_STARTED, state.action.id, document, actor=by)
    context.pulse("journalled the undo")
    outcome = continue_undo(context, state)
    if outcome is None:
        raise TemporaryError(
            f"action {state.action.id}: the undo is begun and not over: no answer, or it waits",
            hint="the next turn, or the same command again, finds out and finishes it",
        )
    return _require_undone(state, outcome)


def roll_back(
    context: ActionContext, state: ActionState, ends: Result, *why: Reason
) -> Outcome | None:
    """Roll back an action that failed in part; None = the rollback is not over yet."""
    context.record.append(
        event_types.UNDO_STARTED,
        state.action.id,
        {"requested": False, "ends": ends, "why": list(why)},
    )
    context.pulse("journalled the roll back")
    return continue_undo(context, state)


def continue_undo(context: ActionContext, state: ActionState) -> Outcome | None:
    """Send the missing part of an undo that was begun; None = it is not over yet."""
    undo_state = state.undo_state
    if (
        undo_state is None
        or (not undo_state.requested and context.halted())
        or _is_awaiting_answer(context, state)
    ):
        return None
    checks = check_objects(context, state)
    interruption = None
    changed = [check.difference for check in checks if check.state == "neither"]
    if not (undo_state.requested and changed):
        interruption = _send_missing(context, state, checks)
    if interruption is not None and _is_not_over(context, state, undo_state, interruption):
        return None
    reasons_left = [Reason("changed since", difference) for difference in changed]
    if interruption is not None:
        reasons_left.append(interruption.reason)
    if undo_state.requested and reasons_left:
        # Nothing of it was written, or only a part: the action stays in force.
        return context.conclude(
            state, state.outcome.result if state.outcome else "unknown", *reasons_left
        )
    return _conclude_undo(context, state, undo_state, reasons_left)


def _conclude_undo(
    context: ActionContext,
    state: ActionState,
    undo_state: UndoState,
    reasons_left: Sequence[Reason],
) -> Outcome | None:
    """Remove our annotations and end the action; None = they could not be removed yet."""
    # Only now: an annotation makes the controller of a Deployment write, and the version that a
    # restore carries would be old. While the action is in force, the annotations explain how to
    # undo it.
    notes = remove_annotations(context, state.action)
    if notes is None:
        return None
    context.pulse("took the annotations away")
    if undo_state.requested and not state.is_canary:
        context.contested(state, undo_state.by)
    reasons = [*undo_state.why, *reasons_left, *(Reason("annotation", note) for note in notes)]
    by = state.restored.by if state.restored and undo_state.ends == "reverted" else None
    return context.conclude(state, undo_state.ends, *reasons, reverted_by=by)


def _send_missing(
    context: ActionContext, state: ActionState, checks: Sequence[UndoCheck]
) -> Interruption | None:
    """Send the changes that are not applied yet; return why the sequence stopped."""
    skip = {n for n, check in enumerate(checks) if not _must_send(state, n, check)}
    return context.sender.send_undo(state, [check.change for check in checks], skip)


def _is_not_over(
    context: ActionContext, state: ActionState, undo_state: UndoState, interruption: Interruption
) -> bool:
    """Return whether a later evaluation continues: no answer yet, or its wait is not over."""
    if interruption.verdict in ("away", "halted", "throttled"):
        _withdraw(context, state, interruption)
        return True
    if interruption.verdict != "waiting":
        return False
    since = state.undo_progress.last or undo_state.at
    return context.elapsed(since) < context.settings.wait


def check_objects(context: ActionContext, state: ActionState) -> list[UndoCheck]:
    """Return the current states of the objects of an action's undo.

    Raises:
        TemporaryError: no answer.
    """
    checks = []
    for change in state.action.intent.undo:
        obj = context.sender.read_object(change)
        object_state = compare_object(change, obj)
        by = text = ""
        if object_state in ("neither", "becomes") and obj is not None:
            fields = find_differences(change.was, obj)
            by = get_manager_name(find_last_writer(obj, fields))
            text = f"{change.target.kind} {change.target.name}: {', '.join(fields)} is not as left"
            text += f"; {by} wrote it"
        checks.append(UndoCheck(set_current_version(change, obj), object_state, by, text))
    return checks


def _is_under_way(state: ActionState) -> bool:
    """Return whether a person requested an undo that is not over."""
    return state.is_open and state.undo_state is not None and state.undo_state.requested


def _require_undone(state: ActionState, outcome: Outcome) -> Outcome:
    """Return the outcome of an undo that a person requested.

    Raises:
        RefusedError: it is not undone, and why.
    """
    if outcome.result != "undone":
        raise RefusedError(
            f"action {state.action.id} is not undone: "
            + "; ".join(reason.text for reason in outcome.reasons)
        )
    return outcome


def require_in_force(record: JournalState, state: ActionState) -> None:
    """Require that an action took effect, and that nothing took it back.

    Raises:
        RefusedError: it was undone, reversed or resumed, or nothing of it was done.
        TemporaryError: it, or an undo of it, is under way.
    """
    action, outcome = state.action, state.outcome
    if outcome is not None and outcome.result == "undone" and not state.is_open:
        raise RefusedError(
            f"action {action.id} was undone already, at {_format_minute(outcome.at)}"
        )
    if state.restored is not None:
        at, by = state.restored.at, state.restored.by
        raise RefusedError(
            f"action {action.id} was reversed already, by {by} at {_format_minute(at)}"
        )
    if state.is_open and (
        state.undo_state is not None or state.writes.open or not state.writes.took
    ):
        raise TemporaryError(
            f"action {action.id} is under way: what became of it is not known yet",
            hint="try again in a minute",
        )
    if resumed_at := record.resumed_at(state):
        raise RefusedError(
            f"action {action.id} was reversed already: Fallow resumed it at "
            f"{_format_minute(resumed_at)}"
        )
    if not state.writes.took or (outcome is not None and outcome.result in ("refused", "failed")):
        raise RefusedError(f"action {action.id} stands no more: there is nothing to undo")


def _require_undoable(context: ActionContext, state: ActionState) -> None:
    action, outcome = state.action, state.outcome
    require_in_force(context.record, state)
    if context.elapsed(action.at) > context.settings.watch:
        length = format_duration(context.settings.watch.total_seconds())
        raise RefusedError(
            f"action {action.id} is older than {length}: it is not undone by command any more",
            hint="what it changed is in the journal: fallow actions ID",
        )
    if (
        action.intent.capability in {RESTART, ELSEWHERE}
        and outcome is not None
        and outcome.result == "done"
    ):
        raise RefusedError(f"action {action.id} cannot be undone: lost is {action.intent.lost}")
    if not action.intent.undo:
        raise RefusedError(
            f"action {action.id} cannot be undone: {action.intent.lost or 'it left nothing'}"
        )


def _require_unchanged(context: ActionContext, state: ActionState, checks: list[UndoCheck]) -> None:
    for check in checks:
        name = f"{check.change.target.kind} {check.change.target.name}"
        if check.state in ("gone", "other"):
            suffix = "" if check.state == "gone" else "; another has its name"
            raise RefusedError(f"action {state.action.id} cannot be undone: {name} is gone{suffix}")
        if check.state == "neither":
            raise RefusedError(
                f"action {state.action.id} is not undone, somebody changed it since: "
                f"{check.difference}",
                hint="their change stays; what it was before is in: "
                f"fallow actions {state.action.id}",
            )
    if all(check.state == "becomes" for check in checks):
        by = checks[0].by
        context.contested(state, by)
        raise RefusedError(f"action {state.action.id} was reversed already, by {by}")


def _require_lasting(context: ActionContext, state: ActionState) -> None:
    """Refuse an undo of an object that is being deleted: no pods would come back."""
    target = state.action.intent.target
    if not target.api_version or any(map(is_recreation, state.action.intent.undo)):
        return
    obj = context.cluster.get(context.path(target))
    if obj is not None and is_deleting(obj):
        name = f"{target.kind} {target.name}"
        raise RefusedError(
            f"action {state.action.id} cannot be undone: {name} is being deleted, so no pods of it "
            "would come back"
        )


def _require_sendable(context: ActionContext, state: ActionState, checks: list[UndoCheck]) -> None:
    """Refuse an undo whose first write would wait: the undo could not make progress."""
    first = next((check.change for check in checks if check.state == "was"), None)
    why = None if first is None else context.sender.explain_wait(first)
    if why is not None:
        raise RefusedError(
            f"action {state.action.id} cannot be undone now: {why}",
            hint=f"once that is over: fallow undo {state.action.id}",
        )


def _must_send(state: ActionState, number: int, check: UndoCheck) -> bool:
    if check.state == "was":
        return True
    if check.state == "unsaid":  # it cannot be compared: only what was never sent is sent
        return number not in state.undo_progress.sending and bool(state.writes.took)
    return False


def _is_awaiting_answer(context: ActionContext, state: ActionState) -> bool:
    """Settle writes of the undo without an answer; return whether one may still arrive."""
    waiting = False
    for number, at in sorted(state.undo_progress.open.items()):
        change = state.action.intent.undo[number]
        object_state = compare_object(change, context.sender.read_object(change))
        late = context.elapsed(at) >= MAX_DELAY
        if object_state == "becomes" or (
            late and (object_state != "was" or is_pending(change, object_state))
        ):
            context.record.append(
                event_types.UNDO_SENT, state.action.id, {"change": number, "code": 0}
            )
        elif late:
            context.record.append(
                event_types.WITHDRAWN, state.action.id, {"change": number, "undo": True}
            )
        else:
            waiting = True
    return waiting


def _withdraw(context: ActionContext, state: ActionState, interruption: Interruption) -> None:
    if interruption.verdict == "throttled":
        document = {"change": interruption.change, "undo": True}
        context.record.append(event_types.WITHDRAWN, state.action.id, document)


def _format_minute(timestamp: object) -> str:
    return f"{timestamp:%Y-%m-%d %H:%M} UTC"

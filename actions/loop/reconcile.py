"""Determine the outcome of open actions from the cluster: after a crash, and in every evaluation.

nothing was sent             it never happened; the case is decided again from fresh evidence
sent, no answer              read the object; wait for a write that may still arrive
sent in part                 send evictions that a budget delays again; otherwise, or too late,
                             undo: a node that could not be drained accepts pods again
sent until one that waits    send the rest once the object shows the condition; too late: undo
sent completely              wait until pods are gone and GPUs free, and nobody reversed it
undo begun                   send the missing part of the undo

Nothing is sent twice: a change that may have been sent is read back and never sent again.
"""

from collections.abc import Mapping
from typing import Any

from actions.cluster.resize_status import RESIZE, ResizeStatus, read_resize_status
from actions.journal import ActionState, event_types
from actions.loop.annotate import announce_action
from actions.loop.change_state import (
    EVICTION,
    ObjectState,
    compare_object,
    find_differences,
    find_final_changes,
    find_first_changes,
    find_last_writer,
    is_pending,
)
from actions.loop.context import MAX_DELAY, ActionContext, get_manager_name
from actions.loop.sender import Interruption
from actions.loop.undo import continue_undo, roll_back
from fallow.action_models import Change, Outcome, Reason
from fallow.errors import FallowError

ENDED_PHASES = frozenset({"Succeeded", "Failed"})
REPLACED = frozenset({"evict", "restart", "restart elsewhere"})
"""Capabilities after which new pods of the workload are expected."""


def reconcile(context: ActionContext, state: ActionState) -> Outcome | None:
    """Return the outcome of an open action; None = it is still open.

    Raises:
        TemporaryError: no answer.
        RefusedError: the objects may not be read.
    """
    if state.undo_state is not None and state.order[1] > state.order[0]:
        return continue_undo(context, state)
    if _is_awaiting_answer(context, state):
        return None
    changes = state.action.intent.changes
    missing = [n for n in range(len(changes)) if n not in state.writes.took]
    if not state.writes.took:
        return _close_without_effect(context, state)
    if missing:
        return _send_missing(context, state, missing)
    return verify_action(context, state)


def continue_after(
    context: ActionContext, state: ActionState, interruption: Interruption
) -> Outcome | None:
    """Continue after a change that was not applied; None = the next evaluations will."""
    if interruption.verdict == "away" or (interruption.verdict == "halted" and state.writes.took):
        return None
    if interruption.verdict == "waiting":
        return _leave_open(context, state, interruption)
    if interruption.verdict == "throttled":
        document = {"change": interruption.change, "why": interruption.reason.text}
        context.record.append(event_types.WITHDRAWN, state.action.id, document)
        if state.writes.took and _is_eviction(state, interruption.change):
            return None
    if not state.writes.took:
        return _conclude_refused(context, state, interruption.reason)
    return roll_back(context, state, "failed", interruption.reason)


def verify_action(context: ActionContext, state: ActionState) -> Outcome | None:
    """Verify that a completely sent action sticks; None = it is too early."""
    unapplied = _find_unapplied(context, state)
    return (
        _handle_resizes(context, state, unapplied) if unapplied else _verify_changes(context, state)
    )


def _verify_changes(context: ActionContext, state: ActionState) -> Outcome | None:
    intent, now = state.action.intent, context.clock()
    reverted: list[tuple[Change, Mapping[str, Any]]] = []
    waiting: list[str] = []
    changes = find_final_changes(intent.changes)
    for change in changes:
        obj = context.sender.read_object(change)
        object_state = compare_object(change, obj)
        if is_pending(change, object_state):
            waiting.append(f"{change.target.kind} {change.target.name}")
        elif object_state in ("gone", "other") and change.target.uid == intent.target.uid:
            return context.conclude(
                state,
                "done",
                Reason("gone", f"{change.target.kind} is gone since"),
                freed_gpus=None,
            )
        elif object_state in ("was", "neither") and obj is not None:
            reverted.append((change, obj))
    if reverted:
        return _conclude_reverted(context, state, reverted, whole=len(reverted) == len(changes))
    remaining = waiting or _find_remaining_pods(context, state)
    since = state.writes.last or state.action.at
    if not remaining:
        if now - since < context.settings.stick:
            return None
        freed = sum(pod.gpus for pod in intent.frees)
        notes = announce_action(context, state.action)
        return context.conclude(
            state, "done", *(Reason("annotation", note) for note in notes), freed_gpus=freed
        )
    if now - since < context.settings.settle:
        return None
    why = Reason("not sticking", f"still there: {', '.join(remaining[:5])}")
    context.back_off(state.workload, context.settings.back_off.reverted, why.text)
    return context.conclude(state, "not sticking", why)


def _find_unapplied(
    context: ActionContext, state: ActionState
) -> list[tuple[Change, ResizeStatus]]:
    """Return the resizes in a pod's spec that its kubelet has not applied."""
    unapplied = []
    for change in find_final_changes(state.action.intent.changes):
        if not change.path.endswith(RESIZE):
            continue
        obj = context.sender.read_object(change)
        resize_status = (
            read_resize_status(change, obj)
            if obj is not None and compare_object(change, obj) == "becomes"
            else None
        )
        if resize_status is not None and resize_status.state != "applied":
            unapplied.append((change, resize_status))
    return unapplied


def _handle_resizes(
    context: ActionContext, state: ActionState, pods: list[tuple[Change, ResizeStatus]]
) -> Outcome | None:
    """Undo a resize that kubelets cannot or do not apply; None = they still have time."""
    impossible = [resize_status for resize_status in pods if resize_status[1].state == "impossible"]
    since = state.writes.last or state.action.at
    if not impossible and context.elapsed(since) < context.settings.settle:
        return None
    texts = [
        f"pod {change.target.name}: {resize_status.why}"
        for change, resize_status in (impossible or pods)[:3]
    ]
    why = Reason("resize", "; ".join(texts))
    context.back_off(state.workload, context.settings.back_off.failed, why.text)
    return roll_back(context, state, "failed", why)


def _is_awaiting_answer(context: ActionContext, state: ActionState) -> bool:
    """Read the effect of writes without an answer; return whether one may still arrive."""
    waiting = False
    for number, at in sorted(state.writes.open.items()):
        change = state.action.intent.changes[number]
        obj = context.sender.read_object(change)
        object_state = compare_object(change, obj)
        late = context.elapsed(at) >= MAX_DELAY
        if object_state == "becomes" or (late and not _is_not_arrived(change, object_state, obj)):
            # A change that cannot be compared counts as sent: it is never sent again.
            document = {"change": number, "code": 0, "why": f"read back: {object_state}"}
            context.record.append(event_types.SENT, state.action.id, document)
            context.pulse(f"read back {number}")
        elif late:
            document = {"change": number, "why": "it did not arrive"}
            context.record.append(event_types.WITHDRAWN, state.action.id, document)
        else:
            waiting = True
    return waiting


def _is_not_arrived(
    change: Change, object_state: ObjectState, obj: Mapping[str, Any] | None
) -> bool:
    """Return whether a late write certainly did not arrive: some effects show much later.

    An eviction shows at once: the server marks the pod as deleting before it answers.
    """
    if change.path.endswith(EVICTION):
        return object_state == "was" and not ((obj or {}).get("metadata") or {}).get(
            "deletionTimestamp"
        )
    return object_state == "was" and not is_pending(change, object_state)


def _close_without_effect(context: ActionContext, state: ActionState) -> Outcome | None:
    """Close an action of which nothing was applied, once the cluster shows nothing of it."""
    for change in find_first_changes(state.action.intent.changes):
        object_state = compare_object(change, context.sender.read_object(change))
        if object_state == "becomes" and change.was != change.becomes:
            # Another client made the same change meanwhile: it is theirs.
            why = "somebody else did it meanwhile"
            return context.conclude(state, "refused", Reason("changed since", why))
    refusal = next((c for c in state.writes.sent.values() if c), None)
    why = "it was interrupted before anything took"
    return _conclude_refused(
        context, state, Reason("interrupted", f"{why} (HTTP {refusal})" if refusal else why)
    )


def _conclude_refused(context: ActionContext, state: ActionState, reason: Reason) -> Outcome:
    if reason.gate not in ("conflict", "interrupted", "frozen", "lease"):
        context.back_off(state.workload, context.settings.back_off.failed, reason.text)
    return context.conclude(state, "refused", reason)


def _send_missing(context: ActionContext, state: ActionState, missing: list[int]) -> Outcome | None:
    if context.halted():
        return None
    now, first_change = context.clock(), state.action.intent.changes[missing[0]]
    young = now - state.action.at < context.settings.settle
    evictions = all(_is_eviction(state, n) for n in missing)
    is_waiting = evictions and now - (state.writes.last or state.action.at) < context.settings.wait
    # The evidence gets old, but a change that waits for a state of the object is the way back.
    if first_change.when or first_change.after or is_waiting or (young and first_change.vacant):
        if is_waiting and (reverted := _find_reverted(context, state)):
            return _conclude_reverted(context, state, reverted, whole=False)
        interruption = context.sender.send(state, state.action.intent.changes)
        return (
            verify_action(context, state)
            if interruption is None
            else continue_after(context, state, interruption)
        )
    text = f"{len(missing)} of its changes did not take"
    if evictions:
        text = _find_last_refusal(context, state) or text
        context.back_off(state.workload, context.settings.back_off.failed, text)
    return roll_back(context, state, "failed", Reason("interrupted", text))


def _find_last_refusal(context: ActionContext, state: ActionState) -> str:
    """Return why an eviction of an action was last delayed: the pod and its budget."""
    rows = context.record.journal.entries(event_types.WITHDRAWN)
    reasons = [r.document.get("why") for r in rows if r.key == state.action.id]
    return str(reasons[-1] or "") if reasons else ""


def _leave_open(
    context: ActionContext, state: ActionState, interruption: Interruption
) -> Outcome | None:
    """Leave an action open whose next change waits, while the sent part stands and is recent."""
    if not state.writes.took:
        return _conclude_refused(context, state, interruption.reason)
    if reverted := _find_reverted(context, state):
        return _conclude_reverted(context, state, reverted, whole=False)
    if context.elapsed(state.writes.last or state.action.at) < context.settings.wait:
        return None
    return roll_back(context, state, "failed", interruption.reason)


def _find_reverted(
    context: ActionContext, state: ActionState
) -> list[tuple[Change, Mapping[str, Any]]]:
    """Return the applied changes that somebody reversed meanwhile, with their objects."""
    reverted = []
    for change in find_final_changes(state.action.intent.changes, state.writes.took):
        obj = context.sender.read_object(change)
        object_state = compare_object(change, obj)
        if (
            obj is not None
            and object_state in ("was", "neither")
            and not is_pending(change, object_state)
        ):
            reverted.append((change, obj))
    return reverted


def _is_eviction(state: ActionState, number: int) -> bool:
    """Return whether a change is an eviction: undoing the changes before it does not help."""
    return state.action.intent.changes[number].path.endswith(EVICTION)


def _conclude_reverted(
    context: ActionContext,
    state: ActionState,
    reverted: list[tuple[Change, Mapping[str, Any]]],
    *,
    whole: bool,
) -> Outcome | None:
    change, obj = reverted[0]
    fields = find_differences(change.becomes, obj)
    by = get_manager_name(find_last_writer(obj, fields))
    context.contested(state, by)
    why = Reason("reverted", f"{by} took back {', '.join(fields)} of {change.target.kind}")
    if not whole:
        return roll_back(context, state, "reverted", why)
    return context.conclude(state, "reverted", why, reverted_by=by)


def _find_remaining_pods(context: ActionContext, state: ActionState) -> list[str]:
    """Return the pods that should be gone and are not, and the pods that replaced them."""
    intent = state.action.intent
    remaining = [f"{h.namespace}/{h.pod}" for h in intent.frees if not context.sender.has_gone(h)]
    if intent.frees and not remaining:
        old = {freed.uid for freed in intent.frees}
        try:
            pods = context.cluster.pods(intent.target)
        except FallowError:
            return []  # the known pods are gone; the owners of the others cannot be read
        remaining = [
            f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"
            for pod in pods
            if pod["metadata"].get("uid") not in old
            and (pod.get("status") or {}).get("phase") not in ENDED_PHASES
            and intent.capability not in REPLACED
        ]
    return remaining

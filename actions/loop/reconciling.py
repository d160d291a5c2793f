"""Find out what became of open actions, from the cluster: after a crash, and every turn.

nothing was sent             it never happened; the case is decided again from fresh evidence
sent, no answer              read the object; what may still arrive is waited for
sent in part                 evictions that a budget puts off are sent on; else, or too late, taken
                             back: a node that could not be drained is let in pods again
sent until one that waits     sent on once the object shows what it waits for; too late, taken back
sent whole                   wait until pods are gone, GPUs free, and nobody took it back
undo begun                   what is missing of it is sent

Nothing is sent twice: a change that was sent, perhaps, is read and never sent again.
"""

from collections.abc import Mapping
from typing import Any

from actions.cluster.resizing import RESIZE, Resize, resize
from actions.journal import Told, words
from actions.loop.kit import LATE, Kit, manager_of
from actions.loop.pointers import (
    EVICTION,
    State,
    begun,
    differing,
    pending,
    standing,
    state,
    writer,
)
from actions.loop.telling import tell
from actions.loop.undoing import go_on, roll_back
from actions.loop.writes import Stopped
from fallow.acting import Change, Held, Outcome, Reason
from fallow.errors import FallowError

OVER = frozenset({"Succeeded", "Failed"})


def reconcile(kit: Kit, told: Told) -> Outcome | None:
    """Return what came of an open action; None = it is still to come.

    Raises:
        TemporaryError: no answer.
        RefusedError: the objects may not be read.
    """
    if told.undoing is not None and told.order[1] > told.order[0]:
        return go_on(kit, told)
    if _waits_for_an_answer(kit, told):
        return None
    changes = told.action.intent.changes
    missing = [n for n in range(len(changes)) if n not in told.writes.took]
    if not told.writes.took:
        return _nothing_done(kit, told)
    if missing:
        return _finish(kit, told, missing)
    return settle(kit, told)


def after(kit: Kit, told: Told, stopped: Stopped) -> Outcome | None:
    """Go on after a change that did not take; None = the next turns will."""
    if stopped.verdict == "away" or (stopped.verdict == "halted" and told.writes.took):
        return None
    if stopped.verdict == "waiting":
        return _wait(kit, told, stopped)
    if stopped.verdict == "throttled":
        document = {"change": stopped.change, "why": stopped.reason.text}
        kit.record.append(words.WITHDRAWN, told.action.id, document)
        if told.writes.took and _evicts(told, stopped.change):
            return None
    if not told.writes.took:
        return _refused(kit, told, stopped.reason)
    return roll_back(kit, told, "failed", stopped.reason)


def settle(kit: Kit, told: Told) -> Outcome | None:
    """Verify that an action that was sent whole sticks; None = it is too early to say."""
    unapplied = _unapplied(kit, told)
    return _resizing(kit, told, unapplied) if unapplied else _settled(kit, told)


def _settled(kit: Kit, told: Told) -> Outcome | None:
    intent, now = told.action.intent, kit.clock()
    reverted: list[tuple[Change, Mapping[str, Any]]] = []
    waiting: list[str] = []
    changes = standing(intent.changes)
    for change in changes:
        obj = kit.writes.look(change)
        how = state(change, obj)
        if pending(change, how):
            waiting.append(f"{change.target.kind} {change.target.name}")
        elif how in ("gone", "other") and change.target.uid == intent.target.uid:
            return kit.conclude(
                told, "done", Reason("gone", f"{change.target.kind} is gone since"), freed_gpus=None
            )
        elif how in ("was", "neither") and obj is not None:
            reverted.append((change, obj))
    if reverted:
        return _reverted(kit, told, reverted, whole=len(reverted) == len(changes))
    left = waiting or _remaining(kit, told)
    since = told.writes.last or told.action.at
    if not left:
        if now - since < kit.settings.stick:
            return None
        freed = sum(held.gpus for held in intent.frees)
        notes = tell(kit, told.action)
        return kit.conclude(
            told, "done", *(Reason("annotation", note) for note in notes), freed_gpus=freed
        )
    if now - since < kit.settings.settle:
        return None
    why = Reason("not sticking", f"still there: {', '.join(left[:5])}")
    kit.back_off(told.workload, kit.settings.back_off.contested, why.text)
    return kit.conclude(told, "not sticking", why)


def _unapplied(kit: Kit, told: Told) -> list[tuple[Change, Resize]]:
    """Return the resizes that stand in a pod's spec and that its kubelet has not applied."""
    found = []
    for change in standing(told.action.intent.changes):
        if not change.path.endswith(RESIZE):
            continue
        obj = kit.writes.look(change)
        done = resize(change, obj) if obj is not None and state(change, obj) == "becomes" else None
        if done is not None and done.state != "applied":
            found.append((change, done))
    return found


def _resizing(kit: Kit, told: Told, pods: list[tuple[Change, Resize]]) -> Outcome | None:
    """Take back a resize that kubelets cannot, or do not, apply; None = they have time still."""
    impossible = [one for one in pods if one[1].state == "impossible"]
    since = told.writes.last or told.action.at
    if not impossible and kit.clock() - since < kit.settings.settle:
        return None
    said = [f"pod {change.target.name}: {one.why}" for change, one in (impossible or pods)[:3]]
    why = Reason("resize", "; ".join(said))
    kit.back_off(told.workload, kit.settings.back_off.failed, why.text)
    return roll_back(kit, told, "failed", why)


def _waits_for_an_answer(kit: Kit, told: Told) -> bool:
    """Read what became of writes without an answer; tell whether one may still arrive."""
    waiting = False
    for number, at in sorted(told.writes.open.items()):
        change = told.action.intent.changes[number]
        found = kit.writes.look(change)
        how = state(change, found)
        late = kit.clock() - at >= LATE
        if how == "becomes" or (late and not _never_arrived(change, how, found)):
            # What cannot be compared counts as sent: it is never sent again.
            document = {"change": number, "code": 0, "why": f"read back: {how}"}
            kit.record.append(words.SENT, told.action.id, document)
            kit.pulse(f"read back {number}")
        elif late:
            document = {"change": number, "why": "it did not arrive"}
            kit.record.append(words.WITHDRAWN, told.action.id, document)
        else:
            waiting = True
    return waiting


def _never_arrived(change: Change, how: State, found: Mapping[str, Any] | None) -> bool:
    """Tell whether a late write surely did not arrive: what is asked for may show much later.

    An eviction shows at once: the server marks the pod as going before it answers.
    """
    if change.path.endswith(EVICTION):
        return how == "was" and not ((found or {}).get("metadata") or {}).get("deletionTimestamp")
    return how == "was" and not pending(change, how)


def _nothing_done(kit: Kit, told: Told) -> Outcome | None:
    """Close an action of which nothing took, once nothing of it can be seen on the cluster."""
    for change in begun(told.action.intent.changes):
        how = state(change, kit.writes.look(change))
        if how == "becomes" and change.was != change.becomes:
            # Somebody else did the same meanwhile: it is theirs, and nothing of ours.
            why = "somebody else did it meanwhile"
            return kit.conclude(told, "refused", Reason("changed since", why))
    refusal = next((c for c in told.writes.sent.values() if c), None)
    why = "it was interrupted before anything took"
    return _refused(kit, told, Reason("interrupted", f"{why} (HTTP {refusal})" if refusal else why))


def _refused(kit: Kit, told: Told, reason: Reason) -> Outcome:
    if reason.gate not in ("conflict", "interrupted", "frozen", "lease"):
        kit.back_off(told.workload, kit.settings.back_off.failed, reason.text)
    return kit.conclude(told, "refused", reason)


def _finish(kit: Kit, told: Told, missing: list[int]) -> Outcome | None:
    if kit.halted():
        return None
    now, first = kit.clock(), told.action.intent.changes[missing[0]]
    young = now - told.action.at < kit.settings.settle
    evictions = all(_evicts(told, n) for n in missing)
    waits = evictions and now - (told.writes.last or told.action.at) < kit.settings.wait
    # The evidence grows old, but what waits for the object to show something is the way back.
    if first.when or waits or (young and first.vacant):
        if waits and (reverted := _taken_back(kit, told)):
            return _reverted(kit, told, reverted, whole=False)
        stopped = kit.writes.send(told, told.action.intent.changes)
        return settle(kit, told) if stopped is None else after(kit, told, stopped)
    text = f"{len(missing)} of its changes did not take"
    if evictions:
        text = _last_refusal(kit, told) or text
        kit.back_off(told.workload, kit.settings.back_off.failed, text)
    return roll_back(kit, told, "failed", Reason("interrupted", text))


def _last_refusal(kit: Kit, told: Told) -> str:
    """Return why an eviction of an action was put off last: the pod and its budget."""
    rows = kit.record.journal.entries(words.WITHDRAWN)
    mine = [r.document.get("why") for r in rows if r.key == told.action.id]
    return str(mine[-1] or "") if mine else ""


def _wait(kit: Kit, told: Told, stopped: Stopped) -> Outcome | None:
    """Leave an action open whose next change waits, as long as what was sent stands and is new."""
    if not told.writes.took:
        return _refused(kit, told, stopped.reason)
    if reverted := _taken_back(kit, told):
        return _reverted(kit, told, reverted, whole=False)
    if kit.clock() - (told.writes.last or told.action.at) < kit.settings.wait:
        return None
    return roll_back(kit, told, "failed", stopped.reason)


def _taken_back(kit: Kit, told: Told) -> list[tuple[Change, Mapping[str, Any]]]:
    """Return the changes that took and that somebody took back meanwhile, with their objects."""
    reverted = []
    for change in standing(told.action.intent.changes, told.writes.took):
        obj = kit.writes.look(change)
        how = state(change, obj)
        if obj is not None and how in ("was", "neither") and not pending(change, how):
            reverted.append((change, obj))
    return reverted


def _evicts(told: Told, number: int) -> bool:
    """Tell whether a change is an eviction: it is no use to take those before it back."""
    return told.action.intent.changes[number].path.endswith(EVICTION)


def _reverted(
    kit: Kit, told: Told, reverted: list[tuple[Change, Mapping[str, Any]]], *, whole: bool
) -> Outcome | None:
    change, obj = reverted[0]
    fields = differing(change.becomes, obj)
    by = manager_of(writer(obj, fields))
    kit.contested(told, by)
    why = Reason("reverted", f"{by} took back {', '.join(fields)} of {change.target.kind}")
    if not whole:
        return roll_back(kit, told, "reverted", why)
    return kit.conclude(told, "reverted", why, reverted_by=by)


def _remaining(kit: Kit, told: Told) -> list[str]:
    """Return the pods that should be gone and are not, and those that came in their place."""
    intent = told.action.intent
    left = [f"{h.namespace}/{h.pod}" for h in intent.frees if not _gone(kit, h)]
    if intent.frees and not left:
        old = {held.uid for held in intent.frees}
        try:
            now = kit.door.pods(intent.target)
        except FallowError:
            return []  # the pods we knew are gone; whose the others are cannot be read
        left = [
            f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"
            for pod in now
            if pod["metadata"].get("uid") not in old
            and (pod.get("status") or {}).get("phase") not in OVER
            and intent.capability != "evict"
        ]
    return left


def _gone(kit: Kit, held: Held) -> bool:
    pod = kit.door.get(f"/api/v1/namespaces/{held.namespace}/pods/{held.pod}")
    if pod is None or pod["metadata"].get("uid") != held.uid:
        return True
    return (pod.get("status") or {}).get("phase") in OVER

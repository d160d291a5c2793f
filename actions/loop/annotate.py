"""Record an action on the workload itself, with an Event and annotations.

They explain how to undo the action and how to opt out.
"""

from collections.abc import Mapping

from actions.loop.context import ActionContext
from fallow.action_models import Action, Change, Target
from fallow.errors import FallowError, TemporaryError

PREFIX = "fallow.dev/"
KEPT_UNTIL = PREFIX + "keep-until"
# Not `keep`: an annotation with that name opts the object out permanently.
ANNOTATION_KEYS = tuple(
    PREFIX + name for name in ("action", "acted-at", "undo", "how-to-keep", "link")
)
RECYCLE_KEY = PREFIX + "recycle"
"""Why a node is cordoned (`actions/nodes/recycling.py`). It is removed with the other keys. This
also holds where a person made the node schedulable again, so that the cordon is not ours to
undo."""
_EXISTS, _UID = "exists", "uid"
"""Causes of a refused write: the Event is there already; another object has the name."""


def announce_action(context: ActionContext, action: Action, link: str = "") -> list[str]:
    """Annotate the object and post an Event; return what failed.

    A repeated call changes nothing: the Event has the action's name, annotations the same values.
    """
    notes = build_annotations(action, link)
    try:
        changes = [
            build_annotation_change(context, action.intent.target, notes),
            _build_event(action, notes),
        ]
    except TemporaryError as error:
        return [error.message]
    return [why for verdict, why in _send_all(context, changes) if verdict != "gone"]


def remove_annotations(context: ActionContext, action: Action) -> list[str] | None:
    """Remove the annotations; return what the API refused, None = no answer."""
    keys = (
        (*ANNOTATION_KEYS, RECYCLE_KEY) if action.intent.target.kind == "Node" else ANNOTATION_KEYS
    )
    try:
        failed = _send_all(
            context, [build_annotation_change(context, action.intent.target, dict.fromkeys(keys))]
        )
    except TemporaryError:
        return None
    if any(verdict == "away" for verdict, _ in failed):
        return None
    return [why for verdict, why in failed if verdict != "gone"]


def build_annotations(action: Action, link: str = "") -> dict[str, str | None]:
    """Return the annotations of an object that was acted upon."""
    target = action.intent.target
    subject = "/".join(filter(None, (target.kind, target.namespace, target.name)))
    return {
        ANNOTATION_KEYS[0]: action.id,
        ANNOTATION_KEYS[1]: action.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        ANNOTATION_KEYS[2]: f"fallow undo {action.id}",
        ANNOTATION_KEYS[3]: f"fallow keep {subject} 24h",
        ANNOTATION_KEYS[4]: link.replace("{finding}", action.decision.finding) or None,
    }


def build_annotation_change(
    context: ActionContext, target: Target, notes: Mapping[str, str | None]
) -> Change | str:
    """Return the change that sets annotations (None removes one), or why there is none.

    It carries the uid and no version: no other client writes our keys.

    Raises:
        TemporaryError: no answer.
    """
    try:
        path = context.path(target)
    except TemporaryError:
        raise
    except FallowError as error:
        return error.message
    body = {"metadata": {"uid": target.uid, "annotations": dict(notes)}}
    return Change(target=target, method="PATCH", path=path, body=body, guarded=False)


def _build_event(action: Action, notes: Mapping[str, str | None]) -> Change:
    target, decision = action.intent.target, action.decision
    namespace = target.namespace or "default"
    at = action.at.strftime("%Y-%m-%dT%H:%M:%SZ")
    remedies = f"undo: {notes[ANNOTATION_KEYS[2]]}; keep it: {notes[ANNOTATION_KEYS[3]]}"
    why = "; ".join(r.text for r in decision.reasons[:3])
    text = f"{decision.verb} by policy {decision.policy}: {why or 'idle'}. {remedies}"
    if notes[ANNOTATION_KEYS[4]]:
        text += f"; {notes[ANNOTATION_KEYS[4]]}"
    reference = {
        "apiVersion": target.api_version,
        "kind": target.kind,
        "namespace": target.namespace,
        "name": target.name,
        "uid": target.uid,
    }
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"fallow.{action.id}", "namespace": namespace},
        "involvedObject": {k: v for k, v in reference.items() if v},
        "reason": "Fallow",
        "type": "Normal",
        "message": text[:1024],
        "source": {"component": "fallow"},
        "reportingComponent": "fallow.dev/actor",
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
    return Change(
        target=target,
        method="POST",
        path=f"/api/v1/namespaces/{namespace}/events",
        body=body,
        content_type="application/json",
        guarded=False,
    )


def _send_all(context: ActionContext, changes: list[Change | str]) -> list[tuple[str, str]]:
    """Send changes; return the verdict and the reason of each that was not applied."""
    failed: list[tuple[str, str]] = []
    for change in changes:
        if isinstance(change, str):
            failed.append(("refused", change))
            continue
        try:
            result = context.cluster.send(change, dry_run=False)
        except TemporaryError as error:
            failed.append(("away", error.message))
            continue
        except FallowError as error:
            failed.append(("refused", error.message))
            continue
        if result.cause == _UID:
            named = f"{change.target.kind} {change.target.namespace}/{change.target.name}"
            failed.append((result.verdict, f"{named} is a new object, without annotations of ours"))
        elif not result.ok and result.cause != _EXISTS:
            failed.append((result.verdict, result.reason))
    return failed

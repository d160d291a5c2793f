"""What the workload itself says afterwards: an Event and annotations with the two ways out."""

from collections.abc import Mapping

from actions.loop.kit import Kit
from fallow.acting import Action, Change, Target
from fallow.errors import FallowError, TemporaryError

PREFIX = "fallow.dev/"
KEPT_UNTIL = PREFIX + "keep-until"
# Not `keep`: that word on an object opts it out for good.
OURS = tuple(PREFIX + name for name in ("action", "acted-at", "undo", "how-to-keep", "link"))
RECYCLED = PREFIX + "recycle"
"""What a cordon says of itself (`actions/nodes/recycling.py`): it goes with the others, also where
somebody let pods in again and the cordon is not ours to take back."""
_EXISTS = "exists"


def tell(kit: Kit, action: Action, link: str = "") -> list[str]:
    """Annotate the object and post an Event; return what could not be said.

    Saying it twice says it once: the Event has the action's name, annotations the same values.
    """
    said = annotations(action, link)
    try:
        made = [annotate(kit, action.intent.target, said), _event(action, said)]
    except TemporaryError as error:
        return [error.message]
    return [why for _, why in _sent(kit, made)]


def untell(kit: Kit, action: Action) -> list[str] | None:
    """Take the annotations away again; return what the API refused, None = no answer."""
    ours = (*OURS, RECYCLED) if action.intent.target.kind == "Node" else OURS
    try:
        failed = _sent(kit, [annotate(kit, action.intent.target, dict.fromkeys(ours))])
    except TemporaryError:
        return None
    if any(verdict == "away" for verdict, _ in failed):
        return None
    return [why for verdict, why in failed if verdict != "gone"]


def annotations(action: Action, link: str = "") -> dict[str, str | None]:
    """Return what an acted upon object is annotated with."""
    target = action.intent.target
    whom = "/".join(filter(None, (target.kind, target.namespace, target.name)))
    return {
        OURS[0]: action.id,
        OURS[1]: action.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        OURS[2]: f"fallow undo {action.id}",
        OURS[3]: f"fallow keep {whom} 24h",
        OURS[4]: link.replace("{finding}", action.decision.finding) or None,
    }


def annotate(kit: Kit, target: Target, said: Mapping[str, str | None]) -> Change | str:
    """Return the change that sets annotations (None takes one away), or why there is none.

    It carries the uid and no version: keys of ours are nobody else's to write.

    Raises:
        TemporaryError: no answer.
    """
    try:
        path = kit.path(target)
    except TemporaryError:
        raise
    except FallowError as error:
        return error.message
    body = {"metadata": {"uid": target.uid, "annotations": dict(said)}}
    return Change(target=target, method="PATCH", path=path, body=body, guarded=False)


def _event(action: Action, said: Mapping[str, str | None]) -> Change:
    target, decision = action.intent.target, action.decision
    space = target.namespace or "default"
    at = action.at.strftime("%Y-%m-%dT%H:%M:%SZ")
    ways = f"undo: {said[OURS[2]]}; keep it: {said[OURS[3]]}"
    why = "; ".join(r.text for r in decision.reasons[:3])
    text = f"{decision.verb} by policy {decision.policy}: {why or 'idle'}. {ways}"
    if said[OURS[4]]:
        text += f"; {said[OURS[4]]}"
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
        "metadata": {"name": f"fallow.{action.id}", "namespace": space},
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
        path=f"/api/v1/namespaces/{space}/events",
        body=body,
        content_type="application/json",
        guarded=False,
    )


def _sent(kit: Kit, changes: list[Change | str]) -> list[tuple[str, str]]:
    """Send changes; return the verdict and the reason of each that did not take."""
    failed: list[tuple[str, str]] = []
    for change in changes:
        if isinstance(change, str):
            failed.append(("refused", change))
            continue
        try:
            answer = kit.door.send(change, dry_run=False)
        except TemporaryError as error:
            failed.append(("away", error.message))
            continue
        except FallowError as error:
            failed.append(("refused", error.message))
            continue
        if not answer.ok and answer.cause != _EXISTS:
            failed.append((answer.verdict, answer.reason))
    return failed

"""Delete objects: grace for pods, finalizers, preconditions, propagation."""

from typing import Any

import msgspec

from simulator.kube import pods, server_metadata
from simulator.kube.kinds import ApiKind
from simulator.kube.status import StatusError, build_precondition

Object = dict[str, Any]

_FINALIZERS = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}


class DeleteOptions(msgspec.Struct, frozen=True):
    """How an object is to be deleted (`DeleteOptions`)."""

    grace_s: float | None = None
    """None = the pod's own value."""
    uid: str | None = None
    resource_version: str | None = None
    propagation: str = "Background"
    dry_run: bool = False


def end_object(kind: ApiKind, old: Object, how: DeleteOptions, now: float) -> tuple[Object, bool]:
    """Return an object after a delete request, and whether no finalizer holds it any more.

    Raises:
        ApiError: 409 it is not the object that the caller meant.
    """
    meta = dict(old["metadata"])
    for field, expected, own in (
        ("UID", how.uid, meta["uid"]),
        ("ResourceVersion", how.resource_version, meta["resourceVersion"]),
    ):
        if expected is not None and expected != own:
            raise build_precondition(
                kind.group, kind.plural, meta["name"], field=field, expected=expected, own=own
            )
    grace = pods.get_grace_seconds(old, how.grace_s) if kind.key == "Pod" else 0
    finalizers = list(meta.get("finalizers") or ())
    extra = _FINALIZERS.get(how.propagation)
    if extra and "deletionTimestamp" not in meta:
        finalizers.append(extra)
        meta["finalizers"] = finalizers
    holds = bool(finalizers) or kind.key == "Namespace"
    if not grace and not holds:
        return old, True
    left = meta.get("deletionGracePeriodSeconds")
    if "deletionTimestamp" in meta and left is not None and grace >= left:
        return old, False
    began = now
    if "deletionTimestamp" in meta and left is not None:
        began = server_metadata.parse_time(meta["deletionTimestamp"]) - left
    elif meta.get("generation"):
        meta["generation"] += 1
    meta["deletionTimestamp"] = server_metadata.format_time(began + grace)
    meta["deletionGracePeriodSeconds"] = grace
    new = {**old, "metadata": meta}
    if kind.key == "Namespace":
        new["status"] = {**(old.get("status") or {}), "phase": "Terminating"}
    return new, False


def parse_options(body: Any, query: dict[str, str], *, dry_run: bool) -> DeleteOptions:
    """Return the options of a delete request: those of its query, else of its body.

    Raises:
        ApiError: 400 the options cannot be read.
    """
    options = body if isinstance(body, dict) else {}
    conditions = options.get("preconditions") or {}
    grace = query.get("gracePeriodSeconds", options.get("gracePeriodSeconds"))
    try:
        grace_s = None if grace is None else float(grace)
    except (TypeError, ValueError) as error:
        raise StatusError(
            400, "BadRequest", f"gracePeriodSeconds is no number: {grace!r}"
        ) from error
    return DeleteOptions(
        grace_s=grace_s,
        uid=conditions.get("uid"),
        resource_version=conditions.get("resourceVersion"),
        propagation=query.get("propagationPolicy", options.get("propagationPolicy"))
        or "Background",
        dry_run=dry_run,
    )

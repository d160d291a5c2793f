"""Garbage collection: what a deleted object owned goes, and namespaces end when empty."""

from simulator.cluster.clerk import Clerk
from simulator.cluster.objects import Object, going, name, uid
from simulator.cluster.view import View

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


def collect(obj: Object, view: View, clerk: Clerk) -> None:
    """Delete what a deleted object controlled."""
    for there in view.children(uid(obj)):
        if not going(there):
            clerk.delete(there)


def finalize(obj: Object, view: View, clerk: Clerk) -> None:
    """Do for an object that is going what its finalizers wait for, and take them off."""
    finalizers = obj["metadata"].get("finalizers") or []
    if not going(obj):
        return
    children = view.children(uid(obj))
    if ORPHAN in finalizers:
        for there in children:
            others = [r for r in there["metadata"]["ownerReferences"] if r["uid"] != uid(obj)]
            clerk.patch(there, {"metadata": {"ownerReferences": others}}, "")
        _release(obj, ORPHAN, clerk)
    elif FOREGROUND in finalizers:
        for there in children:
            if not going(there):
                clerk.delete(there)
        if not children:
            _release(obj, FOREGROUND, clerk)


def _release(obj: Object, finalizer: str, clerk: Clerk) -> None:
    kept = [f for f in obj["metadata"].get("finalizers") or () if f != finalizer]
    clerk.patch(obj, {"metadata": {"finalizers": kept or None}}, "")


def end_namespace(obj: Object, clerk: Clerk) -> None:
    """Delete everything in a namespace that is going; the namespace itself when nothing is left."""
    if not going(obj):
        return
    left = False
    for kind in clerk.store.catalog:
        if not kind.namespaced:
            continue
        for there in clerk.store.list(kind.key, name(obj)):
            left = True
            if not going(there):
                clerk.delete(there)
    if not left:
        clerk.store.remove("Namespace", name(obj))

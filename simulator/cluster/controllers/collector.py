"""Simulate garbage collection: delete the children of deleted objects, and empty namespaces."""

from fallow.kube.objects import get_uid, is_deleting, name
from simulator.cluster.objects import Object
from simulator.cluster.store_writer import StoreWriter
from simulator.cluster.view import View

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


def collect(obj: Object, view: View, writer: StoreWriter) -> None:
    """Delete what a deleted object controlled."""
    for child in view.children(get_uid(obj)):
        if not is_deleting(child):
            writer.delete(child)


def finalize(obj: Object, view: View, writer: StoreWriter) -> None:
    """Do what the finalizers of a deleted object wait for, and remove them."""
    finalizers = obj["metadata"].get("finalizers") or []
    if not is_deleting(obj):
        return
    children = view.children(get_uid(obj))
    if ORPHAN in finalizers:
        for child in children:
            others = [r for r in child["metadata"]["ownerReferences"] if r["uid"] != get_uid(obj)]
            writer.patch(child, {"metadata": {"ownerReferences": others}}, "")
        _release(obj, ORPHAN, writer)
    elif FOREGROUND in finalizers:
        for child in children:
            if not is_deleting(child):
                writer.delete(child)
        if not children:
            _release(obj, FOREGROUND, writer)


def _release(obj: Object, finalizer: str, writer: StoreWriter) -> None:
    remaining = [f for f in obj["metadata"].get("finalizers") or () if f != finalizer]
    writer.patch(obj, {"metadata": {"finalizers": remaining or None}}, "")


def end_namespace(obj: Object, writer: StoreWriter) -> None:
    """Delete all objects in a terminating namespace; then delete the namespace."""
    if not is_deleting(obj):
        return
    left = False
    for kind in writer.store.catalog:
        if not kind.namespaced:
            continue
        for child in writer.store.list(kind.key, name(obj)):
            left = True
            if not is_deleting(child):
                writer.delete(child)
    if not left:
        writer.store.remove("Namespace", name(obj))

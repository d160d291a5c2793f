"""Resolve a pod to the topmost owner that controls it, from metadata or from its labels."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from collectors.kube.shapes import Meta, OwnerRef
from fallow.kube.owner_chains import ChainObject, Controller, OwnerChains, UnknownOwner
from fallow.kube.owner_links import get_row_kind, read_owner_links
from fallow.protections import select_protections

HASH_LABEL = "pod-template-hash"


class AbsentOwnerError(Exception):
    """The kind is not served, or the object does not exist."""


class TopOwner(msgspec.Struct, frozen=True):
    """The topmost owner."""

    kind: str
    name: str
    uid: str | None
    protections: dict[str, str] = {}
    """What the table of protections names on it and on the owners between it and the pod."""


class Lookup(Protocol):
    """The source of an object's metadata.

    Raises UnknownOwnerError where reading is not permitted, Absent where it does not exist.
    """

    def __call__(self, group: str, kind: str, namespace: str, name: str, version: str) -> Meta:
        """Return the metadata of one object."""
        ...


class Owners:
    """Resolve pods to their topmost owners; each object is looked up once."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._chains = OwnerChains(self._find)

    def top(self, pod: Meta) -> TopOwner | None:
        """Return the topmost owner of a pod, the pod itself where it has none, or None."""
        marks = pod.labels or {}, pod.annotations or {}
        chain = self._chains.chain(_build_link("", "Pod", pod, {}), marks)
        if isinstance(chain, UnknownOwner):
            return None
        top = chain[-1]
        protections = [owner.body for owner in chain[1:] if owner.body]
        return TopOwner(
            get_row_kind(top.group, top.kind),
            top.name,
            top.uid or None,
            select_protections(*protections) if protections else {},
        )

    def _find(
        self, group: str, kind: str, namespace: str, name: str, version: str
    ) -> ChainObject | None:
        if (group, kind) == ("", "Node"):  # a static pod of the kubelet: it has no owner
            return ChainObject("", kind, "", name, "", None)
        try:
            meta = self._lookup(group, kind, namespace, name, version)
        except AbsentOwnerError:
            return None
        return _build_link(group, kind, meta, meta.protections)


def _build_link(group: str, kind: str, meta: Meta, protections: dict[str, str]) -> ChainObject:
    ref = find_controller(meta)
    controller = Controller(ref.api_version, ref.kind, ref.name, ref.uid) if ref else None
    return ChainObject(group, kind, meta.namespace, meta.name, meta.uid, controller, protections)


def find_controller(meta: Meta) -> OwnerRef | None:
    """Return the one owner that controls an object."""
    return next((r for r in meta.owner_references or () if r.controller), None)


def find_by_template_hash(pod: Meta) -> TopOwner | None:
    """Return the Deployment of a ReplicaSet's pod by the names that its controller gives.

    The deployment controller names a ReplicaSet `<deployment>-<hash>` and labels its pods with that
    hash. Where only pods are known (a dump), this is certain enough to name the owner.
    """
    ref = find_controller(pod)
    tail = "-" + (pod.labels or {}).get(HASH_LABEL, "\0")
    if ref is None or ref.kind != "ReplicaSet" or not ref.name.endswith(tail):
        return None
    return TopOwner("Deployment", ref.name.removesuffix(tail), None)


def find_by_labels(pod: Meta, owner: TopOwner) -> TopOwner | None:
    """Return the topmost owner by a pod's labels, where no object above `owner` can be read.

    A label is only a hint: the name of what lies between begins with that of its owner. None =
    another object may own it, and no label says which.
    """
    for link in read_owner_links():
        name = link.end(pod.labels or {}, pod.annotations or {})
        if name is not None and (not link.group or owner.name.startswith(name)):
            if link.kind == owner.kind:
                break
            return msgspec.structs.replace(owner, kind=link.kind, name=name, uid=None)
    may_be_owned = any(link.kind == owner.kind and link.above for link in read_owner_links())
    return None if may_be_owned else owner


def build_lookup(index: dict[tuple[str, str, str, str], Meta]) -> Lookup:
    """Look up objects in an index by (group, kind, namespace, name)."""

    def lookup(group: str, kind: str, namespace: str, name: str, version: str) -> Meta:
        del version
        metadata = index.get((group, kind, namespace, name)) or index.get((group, kind, "", name))
        if metadata is None:
            raise AbsentOwnerError
        return metadata

    return lookup


Resolver = Callable[[Meta], TopOwner | None]

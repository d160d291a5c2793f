"""Resolve a pod to the topmost owner that controls it.

Each object's one controller reference is followed; links that are no references are in
`fallow/kube/owner_links.csv`. An object that cannot be read (forbidden, deleted) makes the owner
unknown. The object below it is never used instead, because its controller would undo a stop.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from collectors.kube.shapes import Meta, OwnerRef
from fallow.kube.owner_links import get_row_kind, read_owner_links
from fallow.protections import select_protections

MAX_DEPTH = 10
"""Links followed before a chain counts as unresolvable."""

HASH_LABEL = "pod-template-hash"


class UnknownOwnerError(Exception):
    """An owner could not be read."""


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

    Raises Unknown where reading is not permitted, Absent where the object does not exist.
    """

    def __call__(self, group: str, kind: str, namespace: str, name: str, version: str) -> Meta:
        """Return the metadata of one object."""
        ...


class Owners:
    """Resolve pods to their topmost owners; each object is looked up once."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._above: dict[tuple[str, str, str, str], TopOwner | None] = {}

    def top(self, pod: Meta) -> TopOwner | None:
        """Return the topmost owner of a pod, the pod itself where it has none, or None."""
        own = TopOwner("Pod", pod.name, pod.uid)
        try:
            owner = self._climb(pod, own, 0)
            if owner.kind not in {j.kind for j in read_owner_links()}:
                owner = self._jump(pod, owner)
        except UnknownOwnerError:
            return None
        return owner

    def _climb(self, meta: Meta, own_top: TopOwner, depth: int) -> TopOwner:
        if depth > MAX_DEPTH:
            raise UnknownOwnerError
        ref = find_controller(meta)
        if ref is None:
            return own_top
        group, version = split_api_version(ref.api_version)
        key = (group, ref.kind, meta.namespace, ref.uid or ref.name)
        if key not in self._above:
            self._above[key] = self._resolve(ref, group, version, meta.namespace, depth)
        owner = self._above[key]
        if owner is None:
            raise UnknownOwnerError
        return owner

    def _resolve(
        self, ref: OwnerRef, group: str, version: str, namespace: str, depth: int
    ) -> TopOwner | None:
        if (group, ref.kind) == ("", "Node"):  # a static pod of the kubelet: it has no owner
            return TopOwner("Node", ref.name, ref.uid)
        try:
            meta = self._lookup(group, ref.kind, namespace, ref.name, version)
            if ref.uid and meta.uid and ref.uid != meta.uid:  # another object with that name
                return None
            protections = meta.protections
            own_top = TopOwner(get_row_kind(group, ref.kind), ref.name, meta.uid or ref.uid)
            owner = self._climb(meta, own_top, depth + 1)
            return _add_protections(owner, protections)
        except (UnknownOwnerError, AbsentOwnerError):
            return None

    def _jump(self, pod: Meta, owner: TopOwner) -> TopOwner:
        for jump in read_owner_links():
            name = jump.end(pod.labels or {}, pod.annotations or {})
            if name is None:
                continue
            if not jump.group:
                return TopOwner(jump.kind, name, None)
            try:
                meta = self._lookup(jump.group, jump.kind, pod.namespace, name, "")
            except AbsentOwnerError:  # a label is only a hint: the chain of references wins
                continue
            protections = select_protections(owner.protections, meta.protections)
            return _add_protections(
                self._climb(meta, TopOwner(jump.kind, name, meta.uid), 1), protections
            )
        return owner


def _add_protections(top: TopOwner, protections: dict[str, str]) -> TopOwner:
    """Return the topmost owner with the protections of an owner below it added."""
    if not protections:
        return top
    return msgspec.structs.replace(
        top, protections=select_protections(top.protections, protections)
    )


def find_controller(meta: Meta) -> OwnerRef | None:
    """Return the one owner that controls an object."""
    return next((r for r in meta.owner_references or () if r.controller), None)


def split_api_version(api_version: str) -> tuple[str, str]:
    """Return group and version of `apps/v1`; the core group is empty."""
    group, _, version = api_version.rpartition("/")
    return group, version


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

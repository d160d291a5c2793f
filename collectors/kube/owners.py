"""Climb from a pod to the topmost owner that acts on it.

Follow the one controller reference of each object; links that are no references are in
`fallow/kube/owner_jumps.csv`. What cannot be read (forbidden, gone) makes the owner unknown: the
lower object is never taken for it, because stopping the lower one would be undone by the one above.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from collectors.kube.shapes import Meta, OwnerRef
from fallow.kube.owner_jumps import called, jumps
from fallow.protections import named

MAX_DEPTH = 10
"""Links followed before a chain counts as unresolvable."""

HASH_LABEL = "pod-template-hash"


class Unknown(Exception):  # noqa: N818  (an answer, not a failure)
    """An owner could not be read."""


class Absent(Exception):  # noqa: N818
    """The kind is not served, or the object does not exist."""


class Top(msgspec.Struct, frozen=True):
    """The topmost owner."""

    kind: str
    name: str
    uid: str | None
    protections: dict[str, str] = {}
    """What the table of protections names on it and on the owners between it and the pod."""


class Lookup(Protocol):
    """Where an object's metadata comes from.

    Raises Unknown where we may not look, Absent where there is nothing.
    """

    def __call__(self, group: str, kind: str, namespace: str, name: str, version: str) -> Meta:
        """Return the metadata of one object."""
        ...


class Owners:
    """Resolve pods to their topmost owners; each object is looked up once."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._above: dict[tuple[str, str, str, str], Top | None] = {}

    def top(self, pod: Meta) -> Top | None:
        """Return the topmost owner of a pod, the pod itself where it has none, or None."""
        own = Top("Pod", pod.name, pod.uid)
        try:
            found = self._climb(pod, own, 0)
            if found.kind not in {j.kind for j in jumps()}:
                found = self._jump(pod, found)
        except Unknown:
            return None
        return found

    def _climb(self, meta: Meta, here: Top, depth: int) -> Top:
        if depth > MAX_DEPTH:
            raise Unknown
        ref = controller(meta)
        if ref is None:
            return here
        group, version = split(ref.api_version)
        key = (group, ref.kind, meta.namespace, ref.uid or ref.name)
        if key not in self._above:
            self._above[key] = self._resolve(ref, group, version, meta.namespace, depth)
        found = self._above[key]
        if found is None:
            raise Unknown
        return found

    def _resolve(
        self, ref: OwnerRef, group: str, version: str, namespace: str, depth: int
    ) -> Top | None:
        if (group, ref.kind) == ("", "Node"):  # a static pod: the kubelet's own, nobody's above
            return Top("Node", ref.name, ref.uid)
        try:
            meta = self._lookup(group, ref.kind, namespace, ref.name, version)
            if ref.uid and meta.uid and ref.uid != meta.uid:  # another object of that name
                return None
            words = named(meta.labels, meta.annotations)
            here = Top(called(group, ref.kind), ref.name, meta.uid or ref.uid)
            found = self._climb(meta, here, depth + 1)
            return _with(found, words)
        except (Unknown, Absent):
            return None

    def _jump(self, pod: Meta, found: Top) -> Top:
        for jump in jumps():
            name = jump.end(pod.labels or {}, pod.annotations or {})
            if name is None:
                continue
            if not jump.group:
                return Top(jump.kind, name, None)
            try:
                meta = self._lookup(jump.group, jump.kind, pod.namespace, name, "")
            except Absent:  # a label is only a hint: the chain of references stands
                continue
            words = named(found.protections, meta.labels, meta.annotations)
            return _with(self._climb(meta, Top(jump.kind, name, meta.uid), 1), words)
        return found


def _with(top: Top, words: dict[str, str]) -> Top:
    """Return the topmost owner with what an owner below it says, too."""
    if not words:
        return top
    return msgspec.structs.replace(top, protections=named(top.protections, words))


def controller(meta: Meta) -> OwnerRef | None:
    """Return the one owner that controls an object."""
    return next((r for r in meta.owner_references or () if r.controller), None)


def split(api_version: str) -> tuple[str, str]:
    """Return group and version of `apps/v1`; the core group is empty."""
    group, _, version = api_version.rpartition("/")
    return group, version


def by_template_hash(pod: Meta) -> Top | None:
    """Return the Deployment of a ReplicaSet's pod by the names its controller gives.

    The deployment controller names a ReplicaSet `<deployment>-<hash>` and labels its pods with
    that hash; where only pods are at hand (a dump), this is certain enough to name the owner.
    """
    ref = controller(pod)
    tail = "-" + (pod.labels or {}).get(HASH_LABEL, "\0")
    if ref is None or ref.kind != "ReplicaSet" or not ref.name.endswith(tail):
        return None
    return Top("Deployment", ref.name.removesuffix(tail), None)


def from_index(index: dict[tuple[str, str, str, str], Meta]) -> Lookup:
    """Look objects up among those at hand, by (group, kind, namespace, name)."""

    def lookup(group: str, kind: str, namespace: str, name: str, version: str) -> Meta:
        del version
        found = index.get((group, kind, namespace, name)) or index.get((group, kind, "", name))
        if found is None:
            raise Absent
        return found

    return lookup


Resolver = Callable[[Meta], Top | None]

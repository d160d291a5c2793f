"""Follow a pod's controllers upwards; an owner that cannot be read makes the owner unknown.

Each owner is read once. After a few owners of one kind the whole kind is listed: a namespace with
hundreds of Jobs then costs one request and not hundreds.
"""

from collections import Counter

import msgspec

from actions.cluster.objects import (
    Object,
    find_controller,
    format_object,
    get_namespace,
    get_uid,
    group,
)
from fallow.errors import FallowError, RefusedError, TemporaryError
from fallow.kube.owner_links import OwnerLink, read_owner_links
from fallow.protocols import ClusterReader

MAX_DEPTH = 10
"""Links followed before a chain counts as unresolvable."""
MAX_SINGLE_READS = 3
"""Owners of a kind read one by one before the kind is listed."""


class UnknownOwner(msgspec.Struct, frozen=True):
    """The owner of a pod is unknown, so nothing acts on it."""

    reason: str


class OwnerChainReader:
    """Reads owners and caches each one for its lifetime.

    Create a new reader for every evaluation.
    """

    def __init__(self, cluster: ClusterReader) -> None:
        self._cluster = cluster
        self._read: dict[tuple[str, str], Object | None] = {}
        self._singly: Counter[str] = Counter()

    def chain(self, pod: Object, *, jump: bool = True) -> tuple[Object, ...] | UnknownOwner:
        """Return a pod and its owners, the topmost last.

        Raises:
            TemporaryError: the API does not answer.
        """
        owners = self._climb((pod,))
        if isinstance(owners, UnknownOwner) or not jump:
            return owners
        top = owners[-1]
        if any(top.get("kind") == j.kind and _group(top) == j.group for j in read_owner_links()):
            return owners
        for owner_link in read_owner_links():
            name = _end(owner_link, pod)
            if name is None or not owner_link.group:
                continue
            above = self._named(owner_link.kind, owner_link.group, get_namespace(pod), name)
            if isinstance(above, UnknownOwner):
                return above
            if above is not None:  # a label is only a hint: the chain is valid without its object
                return self._climb((*owners, above))
        return owners

    def _climb(self, chain: tuple[Object, ...]) -> tuple[Object, ...] | UnknownOwner:
        while (reference := find_controller(chain[-1])) is not None:
            kind, reference_name = str(reference.get("kind")), f"{reference.get('kind')} "
            reference_name += f"{reference.get('name')}"
            if len(chain) > MAX_DEPTH:
                return UnknownOwner(
                    f"more than {MAX_DEPTH} owners above {format_object(chain[0], 'Pod')}"
                )
            api_group = group(str(reference.get("apiVersion") or ""))
            above = self._named(
                kind, api_group, get_namespace(chain[-1]), str(reference.get("name"))
            )
            if isinstance(above, UnknownOwner):
                return above
            if above is None:
                return UnknownOwner(f"its owner {reference_name} is not there")
            if get_uid(above) != reference.get("uid"):
                return UnknownOwner(
                    f"its owner {reference_name} was deleted and another object has its name"
                )
            chain = (*chain, above)
        return chain

    def _named(
        self, kind: str, api_group: str, space: str, name: str
    ) -> Object | UnknownOwner | None:
        try:
            path = self._cluster.collection(kind, api_group, space)
            if path is None:
                return None
            return self._object(path, name, kind)
        except TemporaryError:
            raise
        except RefusedError as error:
            return UnknownOwner(f"its owner {kind} {name} may not be read: {error.message}")
        except FallowError as error:
            return UnknownOwner(f"its owner {kind} {name} cannot be read: {error.message}")

    def _object(self, path: str, name: str, kind: str) -> Object | None:
        key = (path, name)
        if key in self._read:
            return self._read[key]
        self._singly[path] += 1
        if self._singly[path] == MAX_SINGLE_READS + 1:
            for item in self._cluster.items(path):
                obj = {"apiVersion": _get_version(path), "kind": kind, **item}
                self._read.setdefault((path, str(item["metadata"]["name"])), obj)
        if key not in self._read:
            self._read[key] = self._cluster.get(f"{path}/{name}")
        return self._read[key]


def _get_version(path: str) -> str:
    parts = path.split("/")
    return parts[2] if parts[1] == "api" else f"{parts[2]}/{parts[3]}"


def _group(obj: Object) -> str:
    return group(str(obj.get("apiVersion") or ""))


def _end(owner_link: OwnerLink, pod: Object) -> str | None:
    metadata = pod.get("metadata") or {}
    return owner_link.end(metadata.get("labels") or {}, metadata.get("annotations") or {})

"""Follow the controllers of a pod to its topmost owner.

Each object's one controller reference is followed; links that are no references are in
`owner_links.csv`. An object that cannot be read (forbidden, deleted) makes the owner unknown. The
object below it is never used instead, because its controller would undo a stop.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from fallow.kube.owner_links import read_owner_links

MAX_DEPTH = 10
"""Links followed before a chain counts as unresolvable."""

Marks = tuple[Mapping[str, str], Mapping[str, str]]
"""Labels and annotations."""


class UnknownOwner(msgspec.Struct, frozen=True):
    """The owner of a pod is unknown, so nothing acts on it."""

    reason: str


class UnknownOwnerError(Exception):
    """An owner could not be read; the text is the reason."""


class Controller(msgspec.Struct, frozen=True):
    """The reference to the one owner that controls an object."""

    api_version: str
    kind: str
    name: str
    uid: str


class ChainObject(msgspec.Struct, frozen=True):
    """An object of a chain of owners, and what its reader keeps of it."""

    group: str
    kind: str
    namespace: str
    name: str
    uid: str
    controller: Controller | None
    body: Any = None
    """None = it is no API object: a server of JupyterHub."""


class OwnerFinder(Protocol):
    """The source of owners."""

    def __call__(
        self, group: str, kind: str, namespace: str, name: str, version: str
    ) -> ChainObject | None:
        """Return an object, or None where it does not exist or its kind is not served.

        Raises:
            UnknownOwnerError: it cannot be read.
        """
        ...


class OwnerChains:
    """Climbs from pods to their topmost owners; each reference is resolved once."""

    def __init__(self, find: OwnerFinder) -> None:
        self._find = find
        self._above: dict[
            tuple[str, str, str, str], tuple[ChainObject, ...] | UnknownOwnerError
        ] = {}

    def chain(
        self, pod: ChainObject, marks: Marks | None
    ) -> tuple[ChainObject, ...] | UnknownOwner:
        """Return a pod and its owners, the topmost last; without its marks no link is followed."""
        try:
            owners = (pod, *self._climb(pod, 0))
            return owners if marks is None else self._follow_links(owners, marks)
        except UnknownOwnerError as error:
            return UnknownOwner(str(error))

    def _climb(self, obj: ChainObject, depth: int) -> tuple[ChainObject, ...]:
        """Return the owners above an object."""
        reference = obj.controller
        if reference is None:
            return ()
        if depth >= MAX_DEPTH:
            raise UnknownOwnerError(f"more than {MAX_DEPTH} owners are above it")
        group, version = split_api_version(reference.api_version)
        key = (group, reference.kind, obj.namespace, reference.uid or reference.name)
        if key not in self._above:
            try:
                above = self._resolve(reference, group, obj.namespace, version)
                self._above[key] = (above, *self._climb(above, depth + 1))
            except UnknownOwnerError as error:
                self._above[key] = error
        owners = self._above[key]
        if isinstance(owners, UnknownOwnerError):
            raise UnknownOwnerError(str(owners))
        return owners

    def _resolve(
        self, reference: Controller, group: str, namespace: str, version: str
    ) -> ChainObject:
        owner = f"its owner {reference.kind} {reference.name}"
        above = self._find(group, reference.kind, namespace, reference.name, version)
        if above is None:
            raise UnknownOwnerError(f"{owner} is not there")
        if reference.uid and above.uid and reference.uid != above.uid:
            raise UnknownOwnerError(f"{owner} was deleted and another object has its name")
        return above if above.uid else msgspec.structs.replace(above, uid=reference.uid)

    def _follow_links(
        self, owners: tuple[ChainObject, ...], marks: Marks
    ) -> tuple[ChainObject, ...]:
        pod, top, links = owners[0], owners[-1], read_owner_links()
        if any((link.group, link.kind) == (top.group, top.kind) for link in links):
            return owners
        for link in links:
            name = link.end(*marks)
            if name is None:
                continue
            if link.group:
                above = self._find(link.group, link.kind, pod.namespace, name, "")
                if above is not None:  # a label is only a hint: without it the references count
                    return (*owners, above, *self._climb(above, 1))
            elif top is pod:
                return (pod, ChainObject("", link.kind, pod.namespace, name, "", None))
        return owners


def split_api_version(api_version: str) -> tuple[str, str]:
    """Return group and version of `apps/v1`; the core group is empty."""
    group, _, version = api_version.rpartition("/")
    return group, version

"""Which kinds an API server serves, and where."""

from typing import Any

import msgspec

from fallow.errors import SourceError
from fallow.kube.api import Api, ApiError
from fallow.kube.shapes import Shape


class Version(Shape, frozen=True):
    """A version of a group."""

    group_version: str
    version: str


class Group(Shape, frozen=True):
    """A group and the versions it is served in."""

    name: str
    versions: list[Version]
    preferred_version: Version | None = None


class Groups(Shape, frozen=True):
    """The answer of `/apis`."""

    groups: list[Group] | None = None


class Served(Shape, frozen=True):
    """One resource of a version; subresources have a slash in their name."""

    name: str
    kind: str
    namespaced: bool = False


class ServedList(Shape, frozen=True):
    """The answer of `/apis/<group>/<version>`."""

    resources: list[Served] | None = None


class Discovery:
    """Answers are asked for once and kept; make a new one for every look."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._groups: dict[str, Group] | None = None
        self._served: dict[str, list[Served]] = {}

    def root(self, group: str, version: str | None = None) -> str | None:
        """Return `/api/v1` or `/apis/<group>/<version>`; None where the group is not served.

        The version asked for is taken where it is served, else the preferred one.
        """
        if not group:
            return "/api/v1"
        found = self._known().get(group)
        if found is None or not found.versions:
            return None
        served = [v.version for v in found.versions]
        preferred = found.preferred_version or found.versions[0]
        chosen = version if version in served else preferred.version
        return f"/apis/{group}/{chosen}"

    def resource(self, group: str, kind: str, version: str | None = None) -> Served | None:
        """Return the resource of a kind, or None where it is not served."""
        root = self.root(group, version)
        if root is None:
            return None
        return next(
            (r for r in self._resources(root) if r.kind == kind and "/" not in r.name), None
        )

    def collection(self, group: str, plural: str) -> str | None:
        """Return the path that lists a resource in all namespaces, or None."""
        root = self.root(group)
        if root is None or all(r.name != plural for r in self._resources(root)):
            return None
        return f"{root}/{plural}"

    def path(self, group: str, kind: str, namespace: str = "") -> str | None:
        """Return the path of a kind's collection in the first version that has it, or None.

        A group's preferred version comes first, but not every kind is in it.
        """
        for root in self._roots(group):
            for found in self._resources(root):
                if found.kind == kind and "/" not in found.name:
                    inside = f"/namespaces/{namespace}" if namespace and found.namespaced else ""
                    return f"{root}{inside}/{found.name}"
        return None

    def _roots(self, group: str) -> tuple[str, ...]:
        preferred = self.root(group)
        if preferred is None or not group:
            return () if preferred is None else (preferred,)
        served = (f"/apis/{group}/{v.version}" for v in self._known()[group].versions)
        return (preferred, *(root for root in served if root != preferred))

    def groups(self) -> tuple[str, ...]:
        """Return all groups, the core first, then as the server orders them."""
        return ("", *self._known())

    def _known(self) -> dict[str, Group]:
        if self._groups is None:
            groups = _decode(self._api.get("/apis"), Groups, "/apis")
            self._groups = {g.name: g for g in groups.groups or ()}
        return self._groups

    def _resources(self, root: str) -> list[Served]:
        if root not in self._served:
            try:
                answer = _decode(self._api.get(root), ServedList, root)
            except ApiError as error:
                if error.code != 404:  # noqa: PLR2004  (a group that has just gone)
                    raise
                answer = ServedList()
            self._served[root] = answer.resources or []
        return self._served[root]


def _decode(body: bytes, shape: type[Any], path: str) -> Any:
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.DecodeError as error:
        raise SourceError(f"{path}: not a discovery answer: {error}") from error

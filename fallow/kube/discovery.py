"""Discover which kinds an API server serves, and under which paths."""

from typing import Any

import msgspec

from fallow.errors import UNREADABLE_JSON, SourceError
from fallow.kube.api import ApiConnection, ApiError
from fallow.kube.api_objects import ApiObject


class GroupVersion(ApiObject, frozen=True):
    """A version of a group."""

    group_version: str
    version: str


class ApiGroup(ApiObject, frozen=True):
    """A group and the versions it is served in."""

    name: str
    versions: list[GroupVersion]
    preferred_version: GroupVersion | None = None


class ApiGroups(ApiObject, frozen=True):
    """The answer of `/apis`."""

    groups: list[ApiGroup] | None = None


class ServedResource(ApiObject, frozen=True):
    """One resource of a version; subresources have a slash in their name."""

    name: str
    kind: str
    namespaced: bool = False


class ServedResources(ApiObject, frozen=True):
    """The answer of `/apis/<group>/<version>`."""

    resources: list[ServedResource] | None = None


class Discovery:
    """Responses are requested once and kept; create a new object for every poll."""

    def __init__(self, api: ApiConnection) -> None:
        self._api = api
        self._groups: dict[str, ApiGroup] | None = None
        self._served: dict[str, list[ServedResource]] = {}

    def root(self, group: str, version: str | None = None) -> str | None:
        """Return `/api/v1` or `/apis/<group>/<version>`; None where the group is not served.

        The requested version is used where it is served, else the preferred one.
        """
        if not group:
            return "/api/v1"
        api_group = self._groups_by_name().get(group)
        if api_group is None or not api_group.versions:
            return None
        served = [v.version for v in api_group.versions]
        preferred = api_group.preferred_version or api_group.versions[0]
        chosen = version if version in served else preferred.version
        return f"/apis/{group}/{chosen}"

    def resource(self, group: str, kind: str, version: str | None = None) -> ServedResource | None:
        """Return the resource of a kind, or None where it is not served."""
        root = self.root(group, version)
        if root is None:
            return None
        return next(
            (
                resource
                for resource in self._resources(root)
                if resource.kind == kind and "/" not in resource.name
            ),
            None,
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
            for served in self._resources(root):
                if served.kind == kind and "/" not in served.name:
                    inside = f"/namespaces/{namespace}" if namespace and served.namespaced else ""
                    return f"{root}{inside}/{served.name}"
        return None

    def _roots(self, group: str) -> tuple[str, ...]:
        preferred = self.root(group)
        if preferred is None or not group:
            return () if preferred is None else (preferred,)
        served = (f"/apis/{group}/{v.version}" for v in self._groups_by_name()[group].versions)
        return (preferred, *(root for root in served if root != preferred))

    def groups(self) -> tuple[str, ...]:
        """Return all groups, the core first, then as the server orders them."""
        return ("", *self._groups_by_name())

    def _groups_by_name(self) -> dict[str, ApiGroup]:
        if self._groups is None:
            groups = _decode(self._api.get("/apis"), ApiGroups, "/apis")
            self._groups = {g.name: g for g in groups.groups or ()}
        return self._groups

    def _resources(self, root: str) -> list[ServedResource]:
        if root not in self._served:
            try:
                served_resources = _decode(self._api.get(root), ServedResources, root)
            except ApiError as error:
                if error.code != 404:  # noqa: PLR2004  (a group that has just gone)
                    raise
                served_resources = ServedResources()
            self._served[root] = served_resources.resources or []
        return self._served[root]


def _decode(body: bytes, shape: type[Any], path: str) -> Any:
    try:
        return msgspec.json.decode(body, type=shape)
    except UNREADABLE_JSON as error:
        raise SourceError(f"{path}: not a discovery answer: {error}") from error

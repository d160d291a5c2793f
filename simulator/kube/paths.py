"""Parse a path: a kind, a namespace, a name, a subresource."""

from collections.abc import Sequence

import msgspec

from simulator.kube.kinds import ApiKind, KindCatalog
from simulator.kube.status import build_no_such_path


class RequestTarget(msgspec.Struct, frozen=True):
    """The object of a request; no `name` means the collection."""

    kind: ApiKind
    version: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def resource(self) -> str:
        """The resource as access rules write it."""
        return "/".join(p for p in (self.kind.plural, self.subresource) if p)

    @property
    def api_version(self) -> str:
        """The requested version."""
        group = self.kind.group
        return f"{group}/{self.version}" if group else self.version


_LONGEST = 3


def parse_path(catalog: KindCatalog, path: str) -> RequestTarget:
    """Return the object of a path.

    Raises:
        ApiError: 404 nothing is served there.
    """
    parts = [p for p in path.split("/") if p]
    match parts:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            raise build_no_such_path()
    namespace = ""
    if not group and rest[:1] == ["namespaces"] and (len(rest) <= 2 or _is_of_namespace(rest)):  # noqa: PLR2004
        kind = catalog.at("", version, "namespaces")
        return _build_target(kind, version, "", rest[1:])
    if rest[:1] == ["namespaces"] and len(rest) > 2:  # noqa: PLR2004
        namespace, rest = rest[1], rest[2:]
    if not rest:
        raise build_no_such_path()
    kind = catalog.at(group, version, rest[0])
    if kind is not None and namespace and not kind.namespaced:
        raise build_no_such_path()
    return _build_target(kind, version, namespace, rest[1:])


def _is_of_namespace(rest: Sequence[str]) -> bool:
    return len(rest) == _LONGEST and rest[2] in {"status", "finalize"}


def _build_target(
    kind: ApiKind | None, version: str, namespace: str, rest: Sequence[str]
) -> RequestTarget:
    if kind is None or len(rest) > 2 or not version:  # noqa: PLR2004
        raise build_no_such_path()
    name = rest[0] if rest else ""
    return RequestTarget(kind, version, namespace, name, rest[1] if len(rest) > 1 else "")

"""Define the kinds that are served (`resources.csv`), and those of CustomResourceDefinitions."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from fallow.errors import UsageError
from fallow.resources import read_table

NEWEST = "1.36"
"""The server version that the responses imitate."""
RESIZE_SINCE = "1.33"
"""The first server version that serves `pods/resize`."""


class ScalePaths(msgspec.Struct, frozen=True):
    """Where the scale subresource finds its numbers in an object."""

    spec: tuple[str, ...]
    status: tuple[str, ...]
    selector: tuple[str, ...]


class ApiKind(msgspec.Struct, frozen=True):
    """One kind: its names, where it is served, and how its generation changes."""

    kind: str
    group: str
    versions: tuple[str, ...]
    """The preferred one first; objects read the same in all of them."""
    plural: str
    namespaced: bool = True
    custom: bool = True
    generation: str = "spec"
    """What changes it: spec | annotations (and spec) | all (but metadata) | nothing."""
    status: bool = False
    """Whether status is written through its own subresource."""
    scale: ScalePaths | None = None
    short: tuple[str, ...] = ()
    schema: Mapping[str, Any] = {}
    """The structural schema of its definition; empty = it takes any field."""
    since: str = ""
    """The first server version that serves it in this API version; empty = older than all here."""

    @property
    def key(self) -> str:
        """Name that no other kind has: `Pod`, `Deployment`; custom ones `Notebook.kubeflow.org`."""
        return f"{self.kind}.{self.group}" if self.custom else self.kind

    @property
    def api_version(self) -> str:
        """The `apiVersion` objects are stored with."""
        return f"{self.group}/{self.versions[0]}" if self.group else self.versions[0]


def _split_path(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(".") if part)


def _scale(text: str) -> ScalePaths | None:
    return ScalePaths(*(_split_path(p) for p in text.split())) if text else None


def _parse_version(text: str) -> list[int]:
    return [int(part) for part in text.split(".") if part]


def read_builtin_kinds() -> list[ApiKind]:
    """Return the rows of `resources.csv`."""
    return [
        ApiKind(
            kind=row["kind"],
            group=row["group"],
            versions=(row["version"], *row["also"].split()),
            plural=row["plural"],
            namespaced=row["namespaced"] == "1",
            custom=row["custom"] == "1",
            generation=row["generation"],
            status=row["status"] == "1",
            scale=_scale(row["scale"]),
            short=tuple(row["short"].split()),
            since=row["since"],
        )
        for row in read_table("simulator.kube", "resources.csv")
    ]


class KindCatalog:
    """The kinds of one store, as a server of a version serves them.

    `installed` names groups of custom kinds; None = all that we know.
    """

    def __init__(self, installed: Iterable[str] | None = None, version: str = NEWEST) -> None:
        self.version = version
        wanted = None if installed is None else set(installed)
        rows = [k for k in read_builtin_kinds() if self.has(k.since)]
        legal = {k.group for k in rows if k.custom}
        if wanted is not None and (strange := wanted - legal):
            raise UsageError(
                f"no custom kinds of group {', '.join(sorted(strange))}",
                hint="there are " + ", ".join(sorted(legal)),
            )
        self._kinds = {
            k.key: k for k in rows if not k.custom or wanted is None or k.group in wanted
        }

    def has(self, since: str) -> bool:
        """Say whether the server is of a version (`1.33`) or later."""
        return _parse_version(self.version) >= _parse_version(since)

    def __iter__(self) -> Any:
        return iter(self._kinds.values())

    def find(self, name: str) -> ApiKind:
        """Return the kind named `Pod`, or `Queue.scheduling.run.ai` if several groups have it.

        A name without a group that a built-in kind has means the built-in one.

        Raises:
            UsageError: no kind or several kinds have the name.
        """
        if kind_found := self._kinds.get(name):
            return kind_found
        called = [k for k in self._kinds.values() if k.kind == name]
        built_in = [k for k in called if not k.custom]
        for few in (built_in, called):
            if len(few) == 1:
                return few[0]
        if called:
            several = " or ".join(k.key for k in called)
            raise UsageError(f"several kinds are called {name!r}", hint=f"say {several}")
        raise UsageError(f"no kind {name!r} is served here", hint="install its definition first")

    def at(self, group: str, version: str, plural: str) -> ApiKind | None:
        """Return what is served at a path."""
        for kind in self._kinds.values():
            if (kind.group, kind.plural) == (group, plural) and version in kind.versions:
                return kind
        return None

    def serve(self, kind: ApiKind) -> None:
        """Serve one more kind."""
        self._kinds[kind.key] = kind

    def drop(self, kind: ApiKind) -> None:
        """Serve a kind no longer."""
        self._kinds.pop(kind.key, None)


def build_kind(spec: Mapping[str, Any]) -> ApiKind:
    """Return the kind that the spec of a CustomResourceDefinition describes."""
    names = spec["names"]
    served = [v for v in spec["versions"] if v.get("served", True)]
    served.sort(key=lambda v: not v.get("storage", False))
    parts: Mapping[str, Any] = served[0].get("subresources") or {}
    scale = parts.get("scale")
    paths = None
    if scale:
        words = ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
        paths = ScalePaths(*(_split_path(scale.get(w) or "") for w in words))
    return ApiKind(
        kind=names["kind"],
        group=spec["group"],
        versions=tuple(v["name"] for v in served),
        plural=names["plural"],
        namespaced=spec.get("scope", "Namespaced") == "Namespaced",
        generation="spec" if "status" in parts else "all",
        status="status" in parts,
        scale=paths,
        short=tuple(names.get("shortNames") or ()),
        schema=(served[0].get("schema") or {}).get("openAPIV3Schema") or {},
    )

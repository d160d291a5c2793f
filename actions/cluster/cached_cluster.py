"""A cluster client that caches its answers: what is decided is decided on one state."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from fallow.action_models import Target
from fallow.protocols import ClusterReader

T = TypeVar("T")


class CachedCluster:
    """Cache the answers of a cluster client."""

    def __init__(self, cluster: ClusterReader) -> None:
        self._cluster = cluster
        self._answers: dict[Hashable, Any] = {}

    @property
    def name(self) -> str:
        """The cluster's name in stored rows."""
        return self._cluster.name

    def get(self, path: str) -> Mapping[str, Any] | None:
        """Return one object; None = it does not exist."""
        return self._read_once(("get", path), lambda: self._cluster.get(path))

    def items(
        self, path: str, *, labels: str = "", fields: str = ""
    ) -> Sequence[Mapping[str, Any]]:
        """Return all objects of a collection that selectors match."""
        return self._read_once(
            ("items", path, labels, fields),
            lambda: self._cluster.items(path, labels=labels, fields=fields),
        )

    def collection(self, kind: str, group: str | None = None, namespace: str = "") -> str | None:
        """Return the path of a kind's collection."""
        return self._read_once(
            ("collection", kind, group, namespace),
            lambda: self._cluster.collection(kind, group, namespace),
        )

    def pods(self, target: Target) -> Sequence[Mapping[str, Any]]:
        """Return the pods of an object."""
        return self._read_once(("pods", target.uid), lambda: self._cluster.pods(target))

    def find(self, target: Target) -> Mapping[str, Any] | None:
        """Return an object as it was read last; None = it was not read. A Scale is not the object.

        Of a version that the target names, no other is returned.
        """
        for answer in reversed(self._answers.values()):
            objects = [answer] if isinstance(answer, Mapping) else answer
            for obj in objects if isinstance(objects, Sequence) else ():
                meta = obj.get("metadata") or {} if isinstance(obj, Mapping) else {}
                version = target.resource_version or meta.get("resourceVersion")
                is_same = meta.get("uid") == target.uid and version == meta.get("resourceVersion")
                if is_same and obj.get("kind") != "Scale":
                    return obj
        return None

    def _read_once(self, key: Hashable, read: Callable[[], T]) -> T:
        if key not in self._answers:
            self._answers[key] = read()
        answer: T = self._answers[key]
        return answer

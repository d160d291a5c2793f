"""A cluster that is asked each thing once: one rebalance is decided on one look."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from fallow.acting import Target
from fallow.seams import Cluster

T = TypeVar("T")


class Once:
    """Remember the answers of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._said: dict[Hashable, Any] = {}

    @property
    def name(self) -> str:
        """The cluster's name as in the rows."""
        return self._cluster.name

    def get(self, path: str) -> Mapping[str, Any] | None:
        """Return one object; None = it is not there."""
        return self._asked(("get", path), lambda: self._cluster.get(path))

    def items(
        self, path: str, *, labels: str = "", fields: str = ""
    ) -> Sequence[Mapping[str, Any]]:
        """Return all objects of a collection that selectors match."""
        return self._asked(
            ("items", path, labels, fields),
            lambda: self._cluster.items(path, labels=labels, fields=fields),
        )

    def collection(self, kind: str, group: str | None = None, namespace: str = "") -> str | None:
        """Return the path of a kind's collection."""
        return self._asked(
            ("collection", kind, group, namespace),
            lambda: self._cluster.collection(kind, group, namespace),
        )

    def pods(self, target: Target) -> Sequence[Mapping[str, Any]]:
        """Return the pods of an object."""
        return self._asked(("pods", target.uid), lambda: self._cluster.pods(target))

    def _asked(self, key: Hashable, ask: Callable[[], T]) -> T:
        if key not in self._said:
            self._said[key] = ask()
        said: T = self._said[key]
        return said

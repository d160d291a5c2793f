"""Report pods that existed and do not exist any more: a list has only existing pods."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any


class UnlistedPods:
    """Remembers the pods of the last complete list; yields a row per pod that the next list lacks.

    The row has identity and times only, so that nothing known about the pod is overwritten.
    """

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._listed_before: dict[str, tuple[str, str, bool]] = {}
        self._listed: dict[str, tuple[str, str, bool]] = {}

    def begin(self) -> None:
        """Start a list."""
        self._listed = {}

    def saw(self, row: dict[str, Any]) -> None:
        """Add a pod of the list, or one that was created since."""
        ended = row["finished_at"] is not None
        self._listed[row["uid"]] = (row["namespace"], row["pod"], ended)

    def forget(self, uid: str) -> None:
        """Remove a pod whose deletion was observed."""
        self._listed.pop(uid, None)

    def complete(self, now: datetime) -> Iterator[dict[str, Any]]:
        """Yield a row for each pod that is missing since the last complete list."""
        for uid, (namespace, pod, ended) in self._listed_before.items():
            if uid not in self._listed:
                yield {
                    "cluster": self._cluster,
                    "uid": uid,
                    "namespace": namespace,
                    "pod": pod,
                    "finished_at": None if ended else now,
                    "deleted_at": now,
                    "last_seen": now,
                }
        self._listed_before = self._listed

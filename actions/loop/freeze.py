"""The kill switch: a file, a ConfigMap, a row of the journal. Any of them stops everything.

They are read before every evaluation, before every action and before every single write. A switch
that cannot be read counts as frozen: with unknown state nothing acts.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from actions.journal import JournalState, event_types
from actions.loop.protocols import ClusterClient
from fallow.action_models import Change, Target
from fallow.errors import FallowError, RefusedError

NO = frozenset({"", "false", "no", "0", "off"})
"""The value of `frozen` in the ConfigMap when acting is allowed."""
_OK = 300


class Freeze:
    """The three switches."""

    def __init__(
        self,
        state: JournalState | None,
        cluster: ClusterClient | None,
        *,
        file: Path,
        namespace: str,
        configmap: str,
    ) -> None:
        self._state, self._cluster, self._file = state, cluster, file
        self._collection = f"/api/v1/namespaces/{namespace}/configmaps" if configmap else ""
        self._namespace, self._name = namespace, configmap

    def why(self) -> str | None:
        """Return why nothing may act; None = acting is allowed."""
        try:
            frozen = self._state.catch_up().frozen if self._state else None
            outdated = self._state.outdated if self._state else ""
        except FallowError as error:
            return f"the journal cannot be read: {error.message}"
        if frozen is not None:
            return f"frozen by {frozen.by} at {frozen.at:%Y-%m-%d %H:%M} UTC: {frozen.why}"
        if outdated:
            return (
                f"the journal is not reconciled with the cluster (`fallow reconcile`): {outdated}"
            )
        try:
            if self._file.exists():
                return f"frozen: the file {self._file} exists"
        except OSError as error:
            return f"the file {self._file} cannot be checked: {error.strerror or error}"
        return self.explain_configmap()

    def explain_configmap(self) -> str | None:
        """Return why the ConfigMap stops everything; None = it does not."""
        if not self._collection or self._cluster is None:
            return None
        name = f"ConfigMap {self._namespace}/{self._name}"
        try:
            configmap = self._cluster.get(f"{self._collection}/{self._name}")
        except FallowError as error:
            return f"{name} cannot be read, so it may say frozen: {error.message}"
        if configmap is None:
            return None
        value = str((configmap.get("data") or {}).get("frozen", "")).strip().lower()
        return None if value in NO else f"frozen: {name} says so"

    def freeze(self, why: str, by: str) -> list[str]:
        """Turn all three switches on, the fastest first; return the failures as text."""
        failed = []
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(f"{why}\nby {by}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC\n")
        except OSError as error:
            failed.append(f"the file {self._file}: {error.strerror or error}")
        failed += self._set("true", why, by)
        try:
            if self._state is not None:
                self._state.append(event_types.FROZEN, event_types.FLEET, {"why": why}, actor=by)
        except FallowError as error:
            failed.append(error.message)
        return failed

    def thaw(self, by: str) -> list[str]:
        """Turn all three switches off; return the failures. Everything then stays frozen.

        Raises:
            RefusedError: the journal was not reconciled with what the cluster shows.
        """
        if self._state is not None and self._state.catch_up().outdated:
            raise RefusedError(
                f"the journal may lack actions ({self._state.outdated}): nothing is thawed",
                hint="`fallow reconcile` compares it with the marks on the objects",
            )
        failed = []
        try:
            self._file.unlink(missing_ok=True)
        except OSError as error:
            failed.append(f"the file {self._file}: {error.strerror or error}")
        failed += self._set("false", "", by)
        if not failed and self._state is not None:
            self._state.append(event_types.THAWED, event_types.FLEET, {}, actor=by)
        return failed

    def _set(self, value: str, why: str, by: str) -> list[str]:
        if not self._collection or self._cluster is None:
            return []
        path, name = f"{self._collection}/{self._name}", f"ConfigMap {self._name}"
        data = {"frozen": value, "why": why, "by": by}
        try:
            configmap = self._cluster.get(path)
            if configmap is None and value == "false":
                return []
            result = self._cluster.send(self._change(configmap, data), dry_run=False)
        except FallowError as error:
            return [f"{name}: {error.message}"]
        return [] if 0 < result.code < _OK else [f"{name}: {result.reason or result.code}"]

    def _change(self, configmap: Mapping[str, Any] | None, data: dict[str, str]) -> Change:
        meta = (configmap or {}).get("metadata") or {}
        target = Target(
            cluster=self._cluster.name if self._cluster else "",
            api_version="v1",
            kind="ConfigMap",
            namespace=self._namespace,
            name=self._name,
            uid=meta.get("uid", ""),
        )
        if configmap is not None:
            path = f"{self._collection}/{self._name}"
            return Change(
                target=target, method="PATCH", path=path, body={"data": data}, guarded=False
            )
        metadata = {"name": self._name, "namespace": self._namespace}
        return Change(
            target=target,
            method="POST",
            path=self._collection,
            body={"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data},
            content_type="application/json",
            guarded=False,
        )

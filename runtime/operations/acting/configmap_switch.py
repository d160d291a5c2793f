"""Read the kill switch that is in the cluster, for readers that have no actor."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from actions.rights import check_rights
from fallow.errors import FallowError
from fallow.protocols import Right
from fallow.settings import Settings
from runtime.operations.acting import live_actor

if TYPE_CHECKING:
    from actions.cluster.client import KubeClient

RIGHT = Right("", "configmaps", ("get",))
ROLE = "fallow-own"


class ConfigMapSwitch:
    """The ConfigMap of `actions.freeze_configmap`. Threads may share it.

    It is read where Fallow acts or reads the inventory of a cluster. A site that does not act and
    does not permit reading the ConfigMap has no such switch. Every other failure counts as frozen.
    """

    def __init__(
        self,
        settings: Settings,
        connect: "Callable[[Settings], KubeClient]" = live_actor.connect_cluster,
    ) -> None:
        self._settings, self._connect = settings, connect
        self._lock = threading.Lock()
        self._client: KubeClient | None = None
        acting = settings.actions
        self._is_used = bool(acting.freeze_configmap) and (
            acting.enabled or settings.kubernetes.enabled
        )

    def why(self) -> str | None:
        """Return why the ConfigMap stops everything; None = it does not."""
        try:
            client = self._open() if self._is_used else None
        except FallowError as error:
            acting = self._settings.actions
            name = f"{acting.lease.namespace}/{acting.freeze_configmap}"
            return f"ConfigMap {name} cannot be read, so it may say frozen: {error.message}"
        if client is None:
            return None
        return live_actor.kill_switch(self._settings, None, client).explain_configmap()

    def _open(self) -> "KubeClient | None":
        """Return the client; None = this site has no such switch."""
        with self._lock:
            if self._client is None:
                client = self._connect(self._settings)
                acting = self._settings.actions
                checks = check_rights(client.review, {ROLE: (RIGHT,)}, [acting.lease.namespace])
                self._is_used = acting.enabled or all(check.allowed for check in checks)
                self._client = client
            return self._client if self._is_used else None

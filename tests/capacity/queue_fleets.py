"""Small clusters for tests of the queue: who holds what, and what the ledger says of it."""

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

from capacity.queue.reading import QueueReader
from capacity.queue.records import QueuedWorkload, WayIn
from tests.actions.cases import NOW
from tests.actions.facts.test_waiting import THEN
from tests.capacity.test_pending_places import Fleet

HOUR = timedelta(hours=1)


class QueueFleet(Fleet):
    """The clusters `c` (where jobs wait) and `d` of `Fleet`, with a ledger."""

    def runs(
        self,
        workload: str,
        devices: Sequence[str],
        *,
        state: str | None = "productive",
        kind: str = "Job",
        hours: float = 50,
        **pod: Any,
    ) -> None:
        """Let a workload hold devices for some hours; `state` None = the ledger lacks them."""
        start = THEN - timedelta(hours=hours)
        whose = {
            "cluster": "c", "namespace": pod.pop("namespace", "team-a"), "workload_kind": kind,
            "workload": workload,
        }  # fmt: skip
        self.views.rows(
            "allocation",
            [
                whose | {
                    "device": device, "pod_uid": f"{workload}-{device.split('/')[0]}",
                    "pod": f"{workload}-0",
                    "start": start, "end": THEN, "share": 1.0, "attribution": "exact",
                }
                for device in devices
            ],
        )  # fmt: skip
        for node in sorted({device.split("/")[0] for device in devices}):
            own = [device for device in devices if device.startswith(f"{node}/")]
            row = whose | {
                "uid": f"{workload}-{node}", "pod": f"{workload}-{node}", "node": node,
                "workload_uid": workload, "phase": "Running", "gpu_request": float(len(own)),
                "gpu_resource": "nvidia.com/gpu", "created_at": start, "scheduled_at": start,
                "started_at": start, "first_seen": start, "last_seen": THEN, "priority": 0,
            }  # fmt: skip
            self.views.rows("pod", [row | pod])
        if state is not None:
            self.spends(whose, devices, state)

    def spends(self, whose: dict[str, str], devices: Sequence[str], state: str) -> None:
        """Write the two newest hours of the ledger, at 2 dollars per GPU-hour."""
        self.views.rows(
            "ledger",
            [
                whose | {
                    "bucket": THEN - hour * HOUR, "device": device, "state": state,
                    "node": device.split("/")[0], "seconds": 3600.0, "gpu_seconds": 3600.0,
                    "usd": Decimal(2), "priced": True,
                }
                for device in devices
                for hour in (1, 2)
            ],
        )  # fmt: skip

    def says(self, pod: str, reason: str, message: str) -> None:
        """Add an event about a waiting pod."""
        row = {
            "cluster": "c", "uid": f"{pod}{reason}", "namespace": "team-b", "kind": "Pod",
            "name": pod, "reason": reason, "message": message, "type": "Warning",
            "ts": THEN - timedelta(minutes=5),
        }  # fmt: skip
        self.views.rows("event", [row])

    def quota(self, kind: str = "ResourceQuota", **more: Any) -> None:
        """Add a quota of the own cluster for the namespace of the waiting jobs."""
        self.quota_there(kind, **{"cluster": "c", **more})

    def record(self) -> QueuedWorkload:
        """Return the record of the one workload that waits."""
        (record,) = QueueReader(self.views, NOW).read()
        return record

    def way(self, kind: str) -> WayIn:
        """Return one of its ways."""
        return next(way for way in self.record().ways if way.kind == kind)


def eight(node: str) -> list[str]:
    """Return the names of the devices of a node."""
    return [f"{node}/{n}" for n in range(8)]

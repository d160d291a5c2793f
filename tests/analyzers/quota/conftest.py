"""Quotas of one cluster by the hour: entitled, used, waiting, and the ledger beside them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from fallow.window import Window

END = datetime(2026, 11, 1, tzinfo=UTC)
NAIVE = END.replace(tzinfo=None)
GPU = "nvidia.com/gpu"
Course = float | Sequence[float]
"""A number, or one per day, repeated."""


class Ground:
    """A cluster over some days, the last of them the window."""

    def __init__(self, views: Any, *, gpus: int = 16, days: int = 1, window_days: int = 1) -> None:
        self.views, self.days = views, days
        self.hours = [NAIVE - timedelta(hours=h) for h in range(days * 24, 0, -1)]
        self.window = Window(END - timedelta(days=window_days), END)
        row = {
            "cluster": "c", "node": "n0", "gpu_count": gpus, "gpu_resource": GPU,
            "gpu_model": "H100", "cpu_milli": gpus * 10_000, "memory_bytes": gpus * 2**37,
            "first_seen": self.hours[0], "last_seen": NAIVE,
        }  # fmt: skip
        views.rows("node", [row])

    def quota(
        self,
        name: str,
        nominal: Course | None,
        used: Course | None = 0,
        waiting: Course | None = None,
        *,
        kind: str = "ElasticQuota",
        namespace: str | None = None,
        resource: str = GPU,
        **more: Any,
    ) -> None:
        """Let an object say the same of its resource in every hour of a day."""
        rows = [
            {
                "cluster": "c", "ts": hour, "kind": kind, "name": name, "resource": resource,
                "namespace": name if namespace is None else namespace,
                "nominal": _of(nominal, n), "used": _of(used, n), "waiting": _of(waiting, n),
                **more,
            }
            for n, hour in enumerate(self.hours)
        ]  # fmt: skip
        self.views.rows("quota", rows)

    def pod(
        self, namespace: str, gpus: float, *, waits_h: float = 0, runs_h: float = 24, **more: Any
    ) -> None:
        """Put a pod of the window's first day; it waits, then runs, from the day's first moment."""
        created = self.window.start.replace(tzinfo=None)
        begun = created + timedelta(hours=waits_h)
        row = {
            "cluster": "c", "uid": f"{namespace}-{gpus}-{waits_h}-{runs_h}", "pod": "p",
            "namespace": namespace, "gpu_request": gpus, "gpu_resource": GPU, "node": "n0",
            "cpu_request_milli": int(gpus * 5000), "memory_request_bytes": int(gpus * 2**35),
            "created_at": created, "scheduled_at": begun, "workload_kind": "Job",
            "workload": f"{namespace}-job", "first_seen": created,
            "finished_at": begun + timedelta(hours=runs_h), "last_seen": NAIVE,
        }  # fmt: skip
        self.views.rows("pod", [row | more])

    def post(
        self, *, free: float = 0, idle: Mapping[str, float] | None = None, usd_h: str | None = "2"
    ) -> None:
        """Write the ledger of the window: so many GPUs free, and idle in namespaces."""
        start = self.window.start.replace(tzinfo=None)
        owners = [("", "free", free), *((ns, "idle", g) for ns, g in (idle or {}).items())]
        rows = [
            {
                "cluster": "c", "bucket": hour, "device": f"gpu-{ns or 'free'}", "state": state,
                "namespace": ns, "workload_kind": "Job" if ns else "",
                "workload": f"{ns}-job" if ns else "", "model": "H100", "seconds": 3600.0,
                "gpu_seconds": gpus * 3600, "priced": usd_h is not None,
                "usd": None if usd_h is None else Decimal(usd_h) * Decimal(repr(gpus)),
            }
            for hour in self.hours
            if hour >= start
            for ns, state, gpus in owners
            if gpus
        ]  # fmt: skip
        self.views.rows("ledger", rows)


def _of(course: Course | None, hour: int) -> float | None:
    if course is None or isinstance(course, (int, float)):
        return course
    return float(course[(hour // 24) % len(course)])


@pytest.fixture
def make_ground(views: Any) -> Any:
    return lambda **size: Ground(views, **size)

"""A cluster whose pods ask for GPUs by the day and hour, and the ledger of its window."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from fallow.window import Window

END = datetime(2026, 11, 2, tzinfo=UTC)
"""A Monday."""
NAIVE = END.replace(tzinfo=None)


class Site:
    """Some days of pods, the last of them the window."""

    def __init__(self, views: Any, *, days: int = 8, window_days: int = 1) -> None:
        self.views, self.days = views, days
        self.start = NAIVE - timedelta(days=days)
        self.window = Window(END - timedelta(days=window_days), END)
        self.count = 0

    def pod(self, start_h: float, hours: float, gpus: float = 1, **more: Any) -> None:
        """Put a pod that is asked for and placed `start_h` hours after the beginning."""
        begun = self.start + timedelta(hours=start_h)
        ended = begun + timedelta(hours=hours)
        self.count += 1
        row = {
            "cluster": "c", "uid": f"u{self.count}", "namespace": "ns", "pod": f"p{self.count}",
            "node": "n0", "gpu_request": gpus, "gpu_resource": "nvidia.com/gpu",
            "workload_kind": "Job", "workload": f"job-{self.count}", "created_at": begun,
            "scheduled_at": begun, "finished_at": ended if ended < NAIVE else None,
            "first_seen": begun, "last_seen": min(ended, NAIVE),
        }  # fmt: skip
        self.views.rows("pod", [row | more])

    def demand(self, gpus: Callable[[int, int], float], **more: Any) -> None:
        """Put pods that ask for `gpus(day, hour)` in every hour."""
        for day in range(self.days):
            for hour in range(24):
                wanted = gpus(day, hour)
                if wanted:
                    self.pod(day * 24 + hour, 1, wanted, **more)

    def node(self, name: str, capacity_type: str) -> None:
        row = {"cluster": "c", "node": name, "gpu_count": 8, "capacity_type": capacity_type}
        self.views.rows("node", [row])

    def post(self, node: str, *, held: float, free: float, usd_h: str | None = "2") -> None:
        """Write the ledger of the window: so many GPUs of a node held and free in every hour."""
        hours = int(self.window.seconds // 3600)
        first = self.window.start.replace(tzinfo=None)
        rows = [
            {
                "cluster": "c", "bucket": first + timedelta(hours=h), "device": f"{node}-gpu",
                "state": state, "namespace": "ns" if state == "productive" else "",
                "workload_kind": "", "workload": "", "node": node, "model": "NVIDIA H100 80GB HBM3",
                "seconds": 3600.0, "gpu_seconds": gpus * 3600, "priced": usd_h is not None,
                "usd": None if usd_h is None else Decimal(usd_h) * Decimal(repr(gpus)),
            }
            for h in range(hours)
            for state, gpus in (("productive", held), ("free", free))
            if gpus
        ]  # fmt: skip
        self.views.rows("ledger", rows)


@pytest.fixture
def make_demand(views: Any) -> Any:
    return lambda **size: Site(views, **size)

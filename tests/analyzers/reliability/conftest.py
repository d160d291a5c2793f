"""A small cluster to which things happen: nodes, pods, hourly rollups, events, a ledger."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from fallow.window import Window

START = datetime(2026, 11, 1, tzinfo=UTC)
HOURS = 96
USD_H = Decimal("6.88")


class Ward:
    """Four days of one cluster, in hours from `START`."""

    def __init__(self, views: Any) -> None:
        self.views = views
        self.window = Window(START, START + timedelta(hours=HOURS))

    def at(self, hour: float) -> datetime:
        return START.replace(tzinfo=None) + timedelta(hours=hour)

    def node(self, name: str, pool: str = "h100") -> None:
        """Put a node of eight GPUs that is there all the time."""
        self.views.rows(
            "node",
            [
                {
                    "cluster": "c", "node": name, "pool": pool, "gpu_count": 8,
                    "first_seen": self.at(0), "last_seen": self.at(HOURS),
                }
            ],
        )  # fmt: skip

    def pod(
        self,
        name: str,
        node: str,
        hours: tuple[float, float],
        *,
        workload: str = "train",
        kind: str = "PyTorchJob",
        gpus: int = 8,
        phase: str | None = None,
        notes: dict[str, str] | None = None,
        deleted: float | None = None,
        created: float | None = None,
        startup: float = 0.0,
    ) -> None:
        """Put a pod, and into the ledger what it held: some start-up, the rest productive."""
        begin, end = hours
        lives = end >= HOURS
        self.views.rows(
            "pod",
            [
                {
                    "cluster": "c", "uid": f"uid-{name}-{begin}", "namespace": "ns", "pod": name,
                    "node": node, "phase": phase or ("Running" if lives else "Succeeded"),
                    "workload_kind": kind, "workload": workload, "gpu_request": float(gpus),
                    "created_at": self.at(begin if created is None else created),
                    "started_at": self.at(begin),
                    "finished_at": None if lives or phase == "Running" else self.at(end),
                    "deleted_at": None if deleted is None else self.at(deleted),
                    "first_seen": self.at(begin), "last_seen": self.at(min(end, HOURS)),
                    "annotations": json.dumps(notes) if notes else None,
                }
            ],
        )  # fmt: skip
        self.ledger("startup", startup * gpus, workload, kind, node, gpus=gpus)
        self.ledger("productive", (end - begin - startup) * gpus, workload, kind, node, gpus=gpus)

    def ledger(
        self,
        state: str,
        hours: float,
        workload: str = "",
        kind: str = "",
        node: str = "n0",
        *,
        gpus: float = 1,
    ) -> None:
        """Write GPU-hours of a state, as one device of so many GPUs."""
        if hours <= 0:
            return
        row = {
            "cluster": "c", "bucket": self.at(0), "device": f"{node}-{workload}-{state}-{hours}",
            "state": state, "namespace": "ns" if workload else "", "workload_kind": kind,
            "workload": workload, "node": node, "pool": "h100", "gpu_seconds": hours * 3600,
            "seconds": hours * 3600 / gpus,
            "usd": (USD_H * Decimal(repr(hours))).quantize(Decimal("1e-8")), "priced": True,
        }  # fmt: skip
        self.views.rows("ledger", [row])

    def shows(
        self,
        device: str,
        node: str,
        hours: tuple[int, int],
        *,
        pod: str = "",
        xid: int = 0,
        **more: Any,
    ) -> None:
        """Let a device show the same for some hours."""
        self.views.rows(
            "rollup_1h",
            [
                {
                    "cluster": "c", "bucket": self.at(hour), "device": device, "node": node,
                    "namespace": "ns" if pod else "", "pod": pod, "xid_max": xid,
                    "model": "H100", "busy_s": 3600.0 if pod else 0.0, **more,
                }
                for hour in range(*hours)
            ],
        )  # fmt: skip

    def event(self, name: str, hour: float, reason: str, kind: str = "Node") -> None:
        """Let something be said."""
        row = {
            "cluster": "c", "uid": f"{name}-{hour}-{reason}", "ts": self.at(hour), "kind": kind,
            "name": name, "namespace": "ns" if kind == "Pod" else None, "reason": reason,
        }  # fmt: skip
        self.views.rows("event", [row])

    def memory(self, device: str, node: str, **signs: int) -> None:
        """Let the last day's looks show memory errors."""
        row = {"cluster": "c", "ts": self.at(HOURS - 2), "device": device, "node": node, **signs}
        self.views.rows("sample", [row])


@pytest.fixture
def ward(views: Any) -> Ward:
    return Ward(views)

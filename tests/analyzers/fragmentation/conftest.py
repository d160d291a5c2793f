"""A small fleet of our own in the engine's memory: nodes, devices, pods, and what is free."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from fallow.window import Window

START = datetime(2026, 11, 1, tzinfo=UTC)
HOURS = 24
WINDOW = Window(START, START + timedelta(hours=HOURS))
NAIVE = START.replace(tzinfo=None)
END = NAIVE + timedelta(hours=HOURS)


class Fleet:
    """Nodes of 8 GPUs that are looked at for a day; pods hold devices all of it or a part."""

    def __init__(self, views: Any) -> None:
        self.views = views
        self.shares: dict[str, list[tuple[datetime, datetime, float]]] = {}
        self.place: dict[str, tuple[str, str]] = {}

    def node(self, name: str, *, gpus: int = 8, looked_at: bool = True, **more: Any) -> None:
        row = {
            "cluster": "c", "node": name, "pool": "train", "gpu_model": "NVIDIA-H100-80GB-HBM3",
            "gpu_count": gpus, "cpu_milli": 96_000, "memory_bytes": 2**40, "ready": True,
            "unschedulable": False, "first_seen": NAIVE, "last_seen": END, **more,
        }  # fmt: skip
        self.views.rows("node", [row])
        for k in range(gpus if looked_at else 0):
            self.device(f"{name}/gpu{k}", name, row["pool"])

    def device(self, device: str, node: str, pool: str = "train", **more: Any) -> None:
        self.shares.setdefault(device, [])
        self.place[device] = node, pool
        row = {
            "cluster": "c", "device": device, "node": node, "model": "NVIDIA H100 80GB HBM3",
            "gpu_model": "H100", "weight": 1.0, "first_seen": NAIVE, "last_seen": END, **more,
        }  # fmt: skip
        self.views.rows("device", [row])

    def pod(
        self,
        name: str,
        node: str | None,
        devices: list[int] = [],  # noqa: B006  (never changed)
        *,
        share: float = 1.0,
        kind: str | None = "Deployment",
        hours: tuple[float, float] = (0, HOURS),
        **more: Any,
    ) -> None:
        since, until = (NAIVE + timedelta(hours=h) for h in hours)
        row = {
            "cluster": "c", "uid": name, "namespace": "ns", "pod": name, "node": node,
            "phase": "Running" if node else "Pending", "workload_kind": kind, "workload": name,
            "gpu_resource": "nvidia.com/gpu" if devices else None,
            "gpu_request": share * len(devices), "cpu_request_milli": 10_000,
            "memory_request_bytes": 2**34, "created_at": since, "first_seen": since,
            "scheduled_at": since if node else None, "last_seen": until,
            "finished_at": until if until < END else None, **more,
        }  # fmt: skip
        self.views.rows("pod", [row])
        if node and devices:
            held = [f"{node}/gpu{k}" for k in devices]
            self.views.rows(
                "allocation",
                [
                    {
                        "cluster": "c", "device": device, "pod_uid": name, "start": since,
                        "end": until, "namespace": "ns", "pod": name, "workload_kind": kind,
                        "workload": name, "share": share, "attribution": "exact", "rule": "test",
                    }
                    for device in held
                ],
            )  # fmt: skip
            for device in held:
                self.shares[device].append((since, until, share))

    def post(self, usd_h: str | None = "2.00") -> None:
        """Write the free hours of every device, as the ledger would."""
        rows = []
        for device, held in self.shares.items():
            node, pool = self.place[device]
            hours = HOURS - sum((b - a).total_seconds() / 3600 * part for a, b, part in held)
            rows.append(
                {
                    "cluster": "c", "bucket": NAIVE, "device": device, "state": "free",
                    "namespace": "", "workload_kind": "", "workload": "", "node": node,
                    "pool": pool, "model": "H100", "seconds": hours * 3600,
                    "gpu_seconds": hours * 3600, "priced": usd_h is not None,
                    "usd": None if usd_h is None else Decimal(usd_h) * Decimal(repr(hours)),
                }
            )  # fmt: skip
        self.views.rows("ledger", [r for r in rows if float(str(r["gpu_seconds"])) > 0])


@pytest.fixture
def window() -> Window:
    return WINDOW


@pytest.fixture
def fleet(views: Any) -> Fleet:
    return Fleet(views)


@pytest.fixture
def make_fleet(make_site: Callable[[], Any]) -> Callable[[], Fleet]:
    return lambda: Fleet(make_site().views)

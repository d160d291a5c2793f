"""A small cluster of node pools: nodes, pods by the hour, and the ledger that follows from them."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from fallow.window import Window

START = datetime(2026, 11, 1, tzinfo=UTC)
HOURS = 24
GIB = 2**30
TYPES = {
    "p5.48xlarge": ("NVIDIA-H100-80GB-HBM3", 8, 191450, 1938410, "55.04"),
    "p5.4xlarge": ("NVIDIA-H100-80GB-HBM3", 1, 15890, 240830, "6.88"),
    "p5e.48xlarge": ("NVIDIA-H200", 8, 191450, 1938410, None),
    "g6.12xlarge": ("NVIDIA-L4", 4, 47810, 178933, "4.6016"),
    "g6.xlarge": ("NVIDIA-L4", 1, 3920, 14162, "0.8048"),
    "g5g.xlarge": ("NVIDIA-T4G", 1, 3920, 6525, "0.42"),
    "g4dn.xlarge": ("Tesla-T4", 1, 3920, 14481, "0.526"),
    "g4ad.xlarge": ("AMD-Radeon-Pro-V520", 1, 3920, 14712, "0.37853"),
}


class Pools:
    """Nodes and pods of one cluster over a day, in hours from `START`."""

    def __init__(self, views: Any) -> None:
        self.views = views
        self.window = Window(START, START + timedelta(hours=HOURS))
        self.nodes: dict[str, tuple[str, int, Decimal | None, str | None]] = {}
        self.held: dict[str, list[tuple[float, float, float]]] = {}

    def empty(self, *tables: str) -> None:
        """Forget the rows of some tables, and who held what."""
        for table in tables:
            self.views.engine.execute(f"DELETE FROM {table}")
        self.held = {name: [] for name in self.nodes}

    def at(self, hour: float) -> datetime:
        return START.replace(tzinfo=None) + timedelta(hours=hour)

    def node(
        self,
        name: str,
        instance_type: str = "p5.48xlarge",
        *,
        pool: str | None = "h100",
        **more: Any,
    ) -> None:
        """Put a node that is there all day."""
        model, gpus, cpu, memory_mib, usd = TYPES[instance_type]
        row = {
            "cluster": "c", "node": name, "pool": pool, "provider": "aws", "region": "us-east-1",
            "instance_type": instance_type, "capacity_type": "on-demand", "cpu_milli": cpu,
            "memory_bytes": memory_mib * 2**20, "gpu_resource": "nvidia.com/gpu",
            "gpu_count": gpus, "gpu_model": model, "ready": True,
            "labels": '{"kubernetes.io/arch": "amd64"}',
            "first_seen": self.at(-100), "last_seen": self.at(HOURS),
        }  # fmt: skip
        self.views.rows("node", [row | more])
        self.nodes[name] = (model, gpus, None if usd is None else Decimal(usd), pool)
        self.held.setdefault(name, [])

    def pod(
        self,
        name: str,
        node: str | None,
        hours: tuple[float, float] = (0, HOURS),
        *,
        gpus: float = 0,
        cpu_milli: int | None = 4000,
        memory_gib: float = 16,
        kind: str = "Deployment",
        **more: Any,
    ) -> None:
        """Put a pod that runs for some hours."""
        begin, end = hours
        row = {
            "cluster": "c", "uid": f"uid-{name}", "namespace": "ns", "pod": name, "node": node,
            "phase": "Running" if end >= HOURS else "Succeeded", "owner_kind": kind,
            "owner_name": name, "workload_kind": kind, "workload": name,
            "gpu_resource": "nvidia.com/gpu" if gpus else None, "gpu_request": float(gpus),
            "cpu_request_milli": cpu_milli, "memory_request_bytes": int(memory_gib * GIB),
            "created_at": self.at(begin), "scheduled_at": self.at(begin),
            "finished_at": None if end >= HOURS else self.at(end),
            "first_seen": self.at(begin), "last_seen": self.at(min(end, HOURS)),
        }  # fmt: skip
        self.views.rows("pod", [row | more])
        if gpus and node is not None:
            self.held[node].append((begin, end, float(gpus)))

    def post(self) -> None:
        """Post the ledger: what pods hold is productive, the rest is nobody's."""
        rows: list[dict[str, Any]] = []
        for name, (model, gpus, usd, pool) in self.nodes.items():
            for hour in range(HOURS):
                held = sum(
                    n * max(min(end, hour + 1) - max(begin, hour), 0)
                    for begin, end, n in self.held[name]
                )
                for state, amount in (("productive", held), ("free", gpus - held)):
                    cost = None if usd is None else usd / gpus * Decimal(repr(amount))
                    rows.append(
                        {
                            "cluster": "c",
                            "bucket": self.at(hour),
                            "device": f"{name}-gpus",
                            "state": state,
                            "namespace": "ns" if state == "productive" else "",
                            "workload_kind": "",
                            "workload": "",
                            "node": name,
                            "pool": pool,
                            "model": model,
                            "gpu_seconds": amount * 3600,
                            "seconds": 3600.0,
                            "usd": cost,
                            "priced": cost is not None,
                            "price_as_of": self.at(-1000),
                        }
                    )
        self.views.rows("ledger", [r for r in rows if r["gpu_seconds"] > 0])

    def prices(self, only: Iterable[str] = TYPES, **more: Any) -> None:
        """Put the list prices of types, in us-east-1."""
        rows: list[Mapping[str, Any]] = [
            {
                "source": "rate-card", "provider": "aws", "region": "us-east-1", "zone": "",
                "instance_type": name, "gpu_model": "", "cluster": "", "term": "on-demand",
                "valid_from": self.at(-1000), "as_of": self.at(-1000),
                "gpu_count": TYPES[name][1], "node_usd_h": Decimal(str(TYPES[name][4])),
                "reference": "test", **more,
            }
            for name in only
            if TYPES[name][4] is not None
        ]  # fmt: skip
        self.views.rows("rate", rows)


@pytest.fixture
def pools(views: Any) -> Pools:
    return Pools(views)

"""A small cluster that buys on demand: nodes, pods, a ledger of what they used, and a market."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from fallow.window import Window

START = datetime(2026, 11, 1, tzinfo=UTC)
DAYS = 10
TYPES = {
    "p3.16xlarge": (8, "24.48"),
    "p5.48xlarge": (8, "55.04"),
    "p5.4xlarge": (1, "6.88"),
    "g6.12xlarge": (4, "4.6016"),
}


class Fleet:
    """Ten days of one cluster, in hours from `START`."""

    def __init__(self, views: Any) -> None:
        self.views = views
        self.hours = 24.0 * DAYS
        self.window = Window(START, START + timedelta(days=DAYS))
        self.nodes: dict[str, dict[str, Any]] = {}

    def at(self, hour: float) -> datetime:
        return START.replace(tzinfo=None) + timedelta(hours=hour)

    def node(self, name: str, instance_type: str = "p5.48xlarge", **more: Any) -> None:
        """Put a node that is there all the time."""
        row = {
            "cluster": "c", "node": name, "provider": "aws", "region": "us-east-1",
            "zone": "us-east-1a", "instance_type": instance_type, "capacity_type": "on-demand",
            "pool": "main", "gpu_count": TYPES.get(instance_type, (8, ""))[0], "gpu_model": "H100",
            "first_seen": self.at(0), "last_seen": self.at(self.hours),
        } | more  # fmt: skip
        self.views.rows("node", [row])
        self.nodes[name] = row

    def pod(
        self,
        name: str,
        node: str,
        hours: tuple[float, float] = (0, 24 * DAYS),
        *,
        workload: str = "train",
        kind: str = "PyTorchJob",
        gpus: int = 8,
        phase: str | None = None,
        notes: dict[str, Any] | None = None,
        worked: float = 1.0,
    ) -> None:
        """Put a pod, and what it used into the ledger: a part of its time productive, rest idle."""
        begin, end = hours
        lives = end >= self.hours
        self.views.rows(
            "pod",
            [
                {
                    "cluster": "c", "uid": f"uid-{name}", "namespace": "ns", "pod": name,
                    "node": node, "phase": phase or ("Running" if lives else "Succeeded"),
                    "owner_kind": kind, "owner_name": workload, "workload_kind": kind,
                    "workload": workload, "gpu_request": float(gpus),
                    "created_at": self.at(begin), "scheduled_at": self.at(begin),
                    "started_at": self.at(begin), "finished_at": None if lives else self.at(end),
                    "first_seen": self.at(begin), "last_seen": self.at(min(end, self.hours)),
                    "annotations": json.dumps(notes) if notes else None,
                }
            ],
        )  # fmt: skip
        about = self.nodes[node]
        size, listed = TYPES.get(about["instance_type"], (8, ""))
        for state, part in (("productive", worked), ("idle", 1 - worked)):
            used = (end - begin) * gpus * part
            if used <= 0:
                continue
            usd = Decimal(listed or "0") / size * Decimal(repr(used))
            usd = usd.quantize(Decimal("1e-8"))
            self.views.rows(
                "ledger",
                [
                    {
                        "cluster": "c", "bucket": self.at(int(begin)), "device": f"{node}-{name}",
                        "state": state, "namespace": "ns", "workload_kind": kind,
                        "workload": workload, "team": "ml", "node": node, "pool": about["pool"],
                        "model": "H100", "seconds": 3600.0, "gpu_seconds": used * 3600,
                        "usd": usd if listed else None, "priced": bool(listed),
                        "price_as_of": self.at(-1000),
                    }
                ],
            )  # fmt: skip

    def prices(
        self, spot: dict[str, dict[str, str]] | None = None, only: Iterable[str] = TYPES
    ) -> None:
        """Put list prices, and spot prices by type and zone."""
        rows = [self.rate(name, "", "on-demand", TYPES[name][1]) for name in only]
        for name, zones in (spot or {}).items():
            rows += [self.rate(name, zone, "spot", usd) for zone, usd in zones.items()]
        self.views.rows("rate", rows)

    def rate(self, name: str, zone: str, term: str, usd: str) -> dict[str, Any]:
        """Return a price of a whole node that holds until the next one."""
        return {
            "source": "test", "provider": "aws", "region": "us-east-1", "zone": zone,
            "instance_type": name, "gpu_model": "", "cluster": "", "term": term,
            "valid_from": self.at(-1000), "as_of": self.at(-1), "reference": "test",
            "gpu_count": TYPES[name][0], "node_usd_h": Decimal(usd),
        }  # fmt: skip

    def event(self, node: str, hour: float, reason: str) -> None:
        """Let something be said about a node."""
        self.views.rows(
            "event",
            [
                {
                    "cluster": "c", "uid": f"{node}-{hour}-{reason}", "ts": self.at(hour),
                    "kind": "Node", "name": node, "reason": reason, "type": "Warning",
                }
            ],
        )  # fmt: skip

    def writes(self, pod: str, every_h: float, *, first_h: float = 1.0, count: int = 20) -> None:
        """Let a pod write for a minute now and then, and be quiet otherwise."""
        rows = [
            {
                "cluster": "c", "namespace": "ns", "pod": pod, "interval_s": 60.0,
                "ts": self.at(first_h + n * every_h) + timedelta(minutes=minute),
                "fs_write_bps": 2e8 if minute == 0 else 1e3,
            }
            for n in range(count)
            for minute in (-1, 0, 1)
        ]  # fmt: skip
        self.views.rows("pod_sample", rows)


@pytest.fixture
def fleet(views: Any) -> Fleet:
    return Fleet(views)

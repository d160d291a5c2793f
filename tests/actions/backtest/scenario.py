"""A small fleet with a history: notebooks and jobs that are idle, used again, and deleted."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Self

from msgspec.structs import replace

from actions.policy.model import ActionBudget, Allow, Match, Policy, PolicyAmount, Stage
from tests.analyzers.conftest import START, Memory, Site

MINUTE = timedelta(minutes=5)
HOUR = timedelta(hours=1)
HOURS = 48
IDLE: Mapping[str, Any] = {
    "gr_engine_active": 0.0, "power_w": 118.0, "mem_used_bytes": 4_000_000_000
}  # fmt: skip
BUSY: Mapping[str, Any] = {**IDLE, "gr_engine_active": 0.8, "power_w": 600.0}


def rests(*busy: tuple[int, int]) -> list[Mapping[str, Any]]:
    """Return looks every five minutes that rest but for these hours."""
    return [
        BUSY if any(low <= n / 12 < high for low, high in busy) else IDLE for n in range(HOURS * 12)
    ]


class FleetScenario:
    """Workloads with one device each, on a node each, whose hosts rest when they do."""

    def __init__(self) -> None:
        self.views = Memory()
        self.site = Site(self.views, MINUTE)
        self.site.price("2.40")
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.views.engine.close()

    def add(
        self,
        name: str,
        looks: Sequence[Mapping[str, Any]] | None = None,
        *,
        kind: str = "Job",
        devices: int = 1,
        hours: float = HOURS,
        begin: float = 0.0,
        **pod: Any,
    ) -> None:
        """Let a workload hold devices for hours; its host rests while its devices do."""
        looks = rests() if looks is None else looks
        names = [f"GPU-{self._count + n}" for n in range(devices)]
        self._count += devices
        for device in names:
            self.site.device(device, looks)
        start = START.replace(tzinfo=None) + begin * HOUR
        self.site.holds(
            name, names, kind=kind, begin=begin * HOUR, length=(hours - begin) * HOUR,
            workload_uid=f"top-{name}", created_at=start - timedelta(days=2),
            first_seen=start - timedelta(days=2), scheduled_at=start - HOUR,
            last_seen=start + (hours - begin) * HOUR, gpu_request=float(devices),
            gpu_resource="nvidia.com/gpu", **pod,
        )  # fmt: skip
        busy = [sample["gr_engine_active"] > 0 for sample in looks]
        self.views.rows(
            "pod_sample",
            [
                {
                    "cluster": "c", "ts": START.replace(tzinfo=None) + n * MINUTE,
                    "namespace": "ns", "pod": f"{name}-0", "interval_s": 300.0,
                    "cpu_cores": 2.0 if works else 0.01, "net_rx_bps": 1.0, "net_tx_bps": 1.0,
                }
                for n, works in enumerate(busy)
            ],
        )  # fmt: skip

    def settle(self) -> None:
        """Put the node, and roll up."""
        self.place()
        self.roll()

    def place(self) -> None:
        """Put the node."""
        self.views.rows(
            "node",
            [
                {
                    "cluster": "c", "node": "n1", "ready": True, "pool": "p",
                    "gpu_count": self._count,
                    "first_seen": START.replace(tzinfo=None) - timedelta(days=9),
                    "last_seen": START.replace(tzinfo=None) + HOURS * HOUR,
                }
            ],
        )  # fmt: skip

    def add_cluster(self, name: str) -> None:
        """Put everything that there is into another cluster, too."""
        for table in ("sample", "allocation", "device", "pod", "node", "pod_sample", "rate"):
            self.views.engine.execute(
                f"INSERT INTO {table} SELECT * REPLACE ('{name}' AS cluster) FROM {table}"
            )

    def go_on(self, hour: int, looks: Sequence[Mapping[str, Any]]) -> None:
        """Let all that is there live on from an hour: new looks, and rows seen again later."""
        first, last = START.replace(tzinfo=None) + hour * HOUR, "'2026-11-03'"
        self.views.rows(
            "sample",
            [
                {
                    "cluster": "c", "ts": first + n * MINUTE, "device": f"GPU-{device}",
                    "node": "n1", "model": "NVIDIA H100 80GB HBM3", "interval_s": 300.0, **sample,
                }
                for device in range(self._count)
                for n, sample in enumerate(looks)
            ],
        )  # fmt: skip
        for table, column in (
            ("allocation", '"end"'),
            ("device", "last_seen"),
            ("pod", "last_seen"),
        ):
            self.views.engine.execute(f"UPDATE {table} SET {column} = TIMESTAMP {last}")

    def roll(self) -> None:
        """Roll the looks up, as the warehouse would have."""
        for table, minutes in (("rollup_5m", 5), ("rollup_1h", 60)):
            self.views.engine.execute(f"DELETE FROM {table}")
            self.views.engine.execute(
                f"""
                INSERT INTO {table} BY NAME
                SELECT
                    cluster, time_bucket(INTERVAL {minutes} MINUTE, ts) AS bucket, device,
                    '' AS namespace, '' AS pod, any_value(node) AS node, 300.0 AS interval_s,
                    count(*) AS n, 300.0 * count(*) AS covered_s,
                    300.0 * count(*) FILTER (WHERE gr_engine_active <= 0.05) AS idle_s,
                    300.0 * count(*) FILTER (WHERE gr_engine_active > 0.05) AS busy_s,
                    0.0 AS low_s, 0.0 AS conflict_s
                FROM sample GROUP BY cluster, bucket, device
                """
            )


def rule(**changes: Any) -> Policy:
    """Return a policy that stops jobs and notebooks three hours after a notice."""
    made = Policy(
        name="rest",
        mode="notify",
        match=Match(analyzer=("idle",), kind=("idle_job", "idle_notebook")),
        allow=Allow(namespaces=("ns",)),
        stages=(
            Stage("observe"),
            Stage("notify"),
            Stage("grace", wait=3 * HOUR),
            Stage("act", do=("suspend",), verbs=("suspend", "stop")),
        ),
        budgets=(ActionBudget(workloads=PolicyAmount(Decimal(10))),),
        max_resources=PolicyAmount(Decimal(1), share=True),
    )
    return replace(made, **changes)


def moments(step: timedelta = HOUR, hours: int = HOURS) -> list[datetime]:
    """Return the moments of a replay."""
    return [START + n * step for n in range(1, round(hours * HOUR / step) + 1)]

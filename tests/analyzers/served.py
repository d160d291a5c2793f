"""Two days of services whose servers tell histograms, and of their replicas."""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from tests.analyzers.hourly import HOURS, NAIVE, Hours

QUIET = {"act": 0.12, "gr_engine_active": 0.12, "sm_active": 0.1}
BOUNDS = (0.5, 1.0, 2.0, 5.0)


class Served(Hours):
    """Hours whose pods also serve."""

    def service(
        self,
        name: str,
        counts: Sequence[float],
        *,
        replicas: int = 4,
        rank: Any = None,
        slo: str | None = None,
        bounds: Sequence[float] = BOUNDS,
        metric: str = "e2e",
        source: str = "vllm:e2e_request_latency_seconds",
        total_s: float | None = None,
        hours: range = range(HOURS),
        **more: Any,
    ) -> None:
        """Put a Deployment of which each replica counts the same every hour."""
        noted = {"annotations": json.dumps({"fallow.dev/slo": slo})} if slo else {}
        seen = {"last_seen": NAIVE, **noted}
        ranks = [rank or QUIET] * replicas
        self.workload(name, ranks, kind="Deployment", gpus_per_pod=1, pod=seen, **more)
        self.told(name, counts, replicas, bounds, metric, source, total_s, hours)

    def told(  # noqa: PLR0917  (one caller)
        self,
        name: str,
        counts: Sequence[float],
        replicas: int,
        bounds: Sequence[float] = BOUNDS,
        metric: str = "e2e",
        source: str = "vllm:e2e_request_latency_seconds",
        total_s: float | None = None,
        hours: range = range(HOURS),
    ) -> None:
        """Let a workload's pods tell the same histogram every hour."""
        self.views.rows(
            "latency_sample",
            [
                {
                    "cluster": "c", "ts": NAIVE + timedelta(hours=hour), "namespace": "ns",
                    "pod": f"{name}-{n}", "metric": metric, "source": source,
                    "interval_s": 3600.0, "count": float(sum(counts)), "total_s": total_s,
                    "bounds": list(bounds), "counts": list(counts) if bounds else [],
                }
                for hour in hours
                for n in range(replicas)
            ],
        )  # fmt: skip

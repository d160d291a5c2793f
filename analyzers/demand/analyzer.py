"""Find capacity that demand does not need, and forecast the demand."""

from typing import Any

import msgspec

from analyzers.demand.clusters import read_clusters, read_price_ratios
from analyzers.demand.findings import advise_headroom, describe_coverage, find_excess
from analyzers.demand.profiles import read_profiles, sum_profiles
from fallow.models import Finding, Subject, Unjudged
from fallow.protocols import Views
from fallow.settings.capacity import DemandSettings
from fallow.window import Window

MOST_NAMED = 64


class DemandAnalyzer:
    """Find head-room and reservations that demand does not need.

    Source: telemetry-and-waste.md#demand-and-head-room.
    """

    def __init__(self, settings: DemandSettings | None = None) -> None:
        self.settings = settings or DemandSettings()

    def find(self, views: Views, window: Window) -> list[Finding]:
        """Return capacity that is paid for without demand, the most GPU-hours first."""
        ratios = read_price_ratios(views, window)
        findings = [
            finding
            for cluster in read_clusters(views, window, self.settings)
            for finding in find_excess(cluster, ratios, window, self.settings)
        ]
        return sorted(findings, key=lambda f: (-f.gpu_hours, f.kind, f.id))

    def summary(self, views: Views, window: Window) -> dict[str, Any]:
        """Return profiles of workloads, forecasts of queues, head-room and reservations."""
        profiles = read_profiles(views, window)
        document: dict[str, Any] = {
            "profiles": sum_profiles(profiles),
            "workloads": [msgspec.to_builtins(p) for p in profiles[:MOST_NAMED]],
            "clusters": {},
        }
        for cluster in read_clusters(views, window, self.settings):
            reserved = cluster.capacity.reserved if cluster.capacity else {}
            document["clusters"][cluster.name] = {
                "history_days": cluster.history_days,
                "forecast_from": cluster.next_day.isoformat(),
                "forecasts": msgspec.to_builtins(cluster.forecasts),
                "headroom": msgspec.to_builtins(advise_headroom(cluster, window, self.settings)),
                "quarter": msgspec.to_builtins(cluster.quarter),
                "wait_targets": msgspec.to_builtins(cluster.waits),
                "reservations": {
                    model: describe_coverage(r) for model, r in sorted(reserved.items())
                },
            }
        return document

    def unjudged(self, views: Views, window: Window) -> list[Unjudged]:
        """Return the forecasts and advice that are refused, and why."""
        unjudged = []
        for cluster in read_clusters(views, window, self.settings):
            fleet = Subject(cluster.name, "", "Fleet", cluster.name)
            if cluster.history_days < self.settings.least_days:
                why = f"{cluster.history_days} days of demand: head-room needs "
                unjudged.append(Unjudged(fleet, 0.0, (f"{why}{self.settings.least_days}",)))
            if cluster.quarter is not None and cluster.quarter.refused:
                why = f"no plan of the quarter: {cluster.quarter.refused}"
                unjudged.append(Unjudged(fleet, 0.0, (why,)))
            if cluster.waits is not None and cluster.waits.refused:
                why = f"no targets of the wait: {cluster.waits.refused}"
                unjudged.append(Unjudged(fleet, 0.0, (why,)))
            for name, forecast in cluster.forecasts.items():
                if forecast.refused is not None:
                    about = Subject(cluster.name, "", "Queue", name)
                    unjudged.append(Unjudged(about, 0.0, (f"no forecast: {forecast.refused}",)))
        return unjudged

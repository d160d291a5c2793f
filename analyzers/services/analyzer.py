"""Judge service levels of inference, and find replicas that are not needed for them.

latency_sample, objectives ─► levels.py ─► missed ─► no reduction allowed (vetoes)
                                  └─────► met, with room
rollup_1h, allocation ─► replicas.sql ────────┴─► fewer replicas, of `low` and `idle` hours
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from analyzers.services.findings import build_missed, build_spare_replicas
from analyzers.services.levels import InferenceService, read_services
from analyzers.services.rows import (
    ATTAINED,
    REPLICAS,
    RequestedObjective,
    list_objectives,
    list_owners,
    read_replicas,
    read_silent_servers,
)
from analyzers.work import read_costs
from analyzers.workload_rows import Owner
from fallow.models import Finding, Subject, Unjudged
from fallow.protocols import Views
from fallow.settings.service_levels import ServicesSettings
from fallow.window import Window

RECENT = timedelta(days=2)
"""Host samples show which pods serve at all: only the last ones are read."""


class ServicesAnalyzer:
    """Judge service levels, and find replicas that are not needed for them."""

    def __init__(self, settings: ServicesSettings | None = None) -> None:
        self.settings = settings or ServicesSettings()

    def find(self, views: Views, window: Window) -> list[Finding]:
        """Return missed levels and services with room, the most GPU-hours first."""
        judged = read_services(views, window, self.settings)
        findings = [f for service in judged if (f := build_missed(service, window)) is not None]
        findings += self._roomy(views, window, judged)
        return sorted(findings, key=lambda f: (-f.gpu_hours, f.id))

    def unjudged(self, views: Views, window: Window) -> list[Unjudged]:
        """Return the services with an unknown level, and the reasons."""
        unjudged = []
        for service in read_services(views, window, self.settings):
            reasons = [*service.doubts]
            reasons += [
                f"{level.spoken()}: the bucket is too wide to tell"
                + (" (only a mean is exported)" if level.mean_only else "")
                for level in service.levels
                if level.state == "unsure"
            ]
            unjudged += [Unjudged(service.subject, 0.0, (why,), window) for why in reasons]
        recent = max(window.start, window.end - RECENT)
        for silent in read_silent_servers(views, window, recent):
            about = Subject(silent.cluster, "", "Fleet", silent.cluster)
            why = (
                f"{silent.pods} serving pods tell no latency histogram: "
                "scrape theirs (docs/prometheus.md), or name it in prometheus.latency_metrics"
            )
            unjudged.append(Unjudged(about, 0.0, (why,), window))
        return unjudged

    def vetoes(self, views: Views, window: Window) -> Mapping[Owner, str]:
        """Return the workloads that must not be reduced, and why."""
        return {
            service.owner: service.keeps
            for service in read_services(views, window, self.settings)
            if service.keeps is not None
        }

    def summary(self, views: Views, window: Window) -> Mapping[str, Any]:
        """Return how many services meet their levels, and the share of requests within them."""
        levels = [
            level
            for service in read_services(views, window, self.settings)
            for level in service.levels
        ]
        states = [level.state for level in levels]
        requests = sum(level.requests for level in levels)
        attained = sum(level.about * level.requests for level in levels)
        return {
            "levels": len(levels),
            **{state: states.count(state) for state in ("met", "missed", "unsure")},
            "observations": round(requests, 3),
            "attained": round(attained / requests, 6) if requests else None,
        }

    def proof(self, finding: Finding) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """Yield the counts within each objective, and the activity of the replicas."""
        about = finding.subject
        owner = (about.cluster, about.namespace, about.workload_kind, about.workload)
        unique = {
            (level["metric"], level["within_s"], level["target"])
            for level in finding.details["levels"]
        }
        objectives = [RequestedObjective(owner, *level) for level in sorted(unique)]
        bounds = finding.window.bounds()
        title = "how many requests kept the objective: least, about, most"
        yield title, ATTAINED, {**bounds, **list_objectives(objectives)}
        if finding.kind == "slo_headroom":
            title = "how many replicas there were, and how active they were"
            yield title, REPLICAS, {**bounds, **list_owners([owner])}

    def _roomy(
        self, views: Views, window: Window, judged: list[InferenceService]
    ) -> Iterator[Finding]:
        happy = {
            service.owner: service for service in judged if service.levels and service.keeps is None
        }
        if not happy:
            return
        money = read_costs(views, window)
        for row in read_replicas(views, window, happy):
            finding = build_spare_replicas(happy[row.owner], row, money, self.settings, window)
            if finding is not None:
                yield finding

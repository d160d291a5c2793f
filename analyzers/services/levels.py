"""Compute the service levels of a window: the share of requests within each objective.

    pod, latency_sample ─► latencies.sql ─► objectives ─┐
    latency_sample ─────────────────────────────────────┴─► attained.sql ─► ServiceLevel

A histogram gives a share only between two bounds. `least` counts none of the bucket that contains
the objective, `most` all of it, `about` a part as if its requests were evenly distributed (as
`histogram_quantile` assumes). For a mean alone, Markov's inequality gives `least`, and `most` is 1.
"""

from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from analyzers.query_cache import cache_query
from analyzers.services.objectives import find_objectives, parse_objectives
from analyzers.services.rows import (
    AttainedObjective,
    RequestedObjective,
    read_attained,
    read_latencies,
)
from analyzers.workload_rows import Owner
from fallow.errors import UsageError
from fallow.models import Subject
from fallow.protocols import Views
from fallow.settings.service_levels import ServicesSettings
from fallow.window import Window

LAPSES = timedelta(hours=24)
"""A service without requests for this time is no longer judged by the hours in which it missed."""
NO_OBJECTIVE = (
    "its latencies are known, but no objective: set services.objectives, or fallow.dev/slo on its "
    "pods"
)


class ServiceLevel(AttainedObjective, frozen=True):
    """One objective of one service, from one source: `least`, `about` and `most` are shares."""

    @property
    def state(self) -> Literal["met", "missed", "unsure"]:
        """Return the certain state, wherever the requests in the objective's bucket are."""
        if self.least >= self.target:
            return "met"
        return "missed" if self.most < self.target else "unsure"

    def burned(self, attained: float) -> float:
        """Return the used share of the error budget: (1 - attained) / (1 - target)."""
        return (1 - attained) / (1 - self.target)

    def spoken(self) -> str:
        """Describe it as text."""
        share = f"{self.about:.2%} within {self.within_s:g} s"
        if self.most - self.least > 0.0005:  # noqa: PLR2004  (less is not seen in print)
            share = f"{self.least:.2%} to {self.most:.2%} within {self.within_s:g} s"
        return f"{self.metric}: {share}, of {self.target:.2%} ({self.source})"


class InferenceService(msgspec.Struct, frozen=True):
    """A workload that serves, its levels, and why some are unknown."""

    subject: Subject
    until: datetime
    """End of the window."""
    levels: tuple[ServiceLevel, ...] = ()
    doubts: tuple[str, ...] = ()
    misread: bool = False

    @property
    def owner(self) -> Owner:
        """The key of its workload."""
        about = self.subject
        return about.cluster, about.namespace, about.workload_kind, about.workload

    @property
    def keeps(self) -> str | None:
        """Return why it must not be reduced, or None: a level is missed, or may be.

        A level without requests for `LAPSES` no longer protects the service.
        """
        if self.misread:
            return self.doubts[0]
        since = (self.until - LAPSES).astimezone(UTC).replace(tzinfo=None)
        recent = [level for level in self.levels if level.last_hour >= since]
        bad = [level for level in recent if level.state != "met"]
        if not bad:
            return None
        missed = any(level.state == "missed" for level in bad)
        text = "; ".join(level.spoken() for level in bad)
        return f"its service level is {'missed' if missed else 'not surely met'}: {text}"


@cache_query
def read_services(
    views: Views, window: Window, settings: ServicesSettings
) -> list[InferenceService]:
    """Return every workload whose latencies are known, judged where it has objectives."""
    requested: list[RequestedObjective] = []
    services: dict[Owner, InferenceService] = {}
    for row in read_latencies(views, window):
        about = Subject(*row.owner, team=row.team)
        try:
            ours = (
                parse_objectives(row.slo)
                if row.slo
                else find_objectives(settings.objectives, row.namespace, row.workload, row.metrics)
            )
        except UsageError as error:
            services[row.owner] = InferenceService(
                about, window.end, doubts=(error.message,), misread=True
            )
            continue
        doubts = tuple(
            f"its objective for {objective.metric} is of a latency that is not collected"
            for objective in ours
            if objective.metric not in row.metrics
        )
        if not ours:
            doubts = (NO_OBJECTIVE,)
        services[row.owner] = InferenceService(about, window.end, doubts=doubts)
        requested += [
            RequestedObjective(
                row.owner, objective.metric, objective.within.total_seconds(), objective.target
            )
            for objective in ours
        ]
    if requested:
        for attained in read_attained(views, window, requested):
            service = services[attained.owner]
            services[attained.owner] = _add_level(service, attained, settings.least_requests)
    return list(services.values())


def _add_level(
    service: InferenceService, row: AttainedObjective, least_requests: int
) -> InferenceService:
    if row.requests < least_requests:
        few = f"{row.requests:,.0f} observations of {row.metric} in the window: too few to judge"
        return msgspec.structs.replace(service, doubts=(*service.doubts, few))
    counts = {"least": row.least, "about": row.about, "most": row.most}
    shares = {name: min(1.0, max(0.0, n / row.requests)) for name, n in counts.items()}
    level = ServiceLevel(**{**msgspec.structs.asdict(row), **shares})
    return msgspec.structs.replace(service, levels=(*service.levels, level))

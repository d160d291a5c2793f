"""Find unusual spend and waste, by team and namespace, explained as price x quantity x mix.

ledger ─► series.py (hours with data) ─► control_chart.py (median, MAD, CUSUM) ─┐
                     effects.py (price, quantity, mix) ─► findings.py ◄─ changes.py ◄─┘
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from analyzers.anomalies.changes import SpendChange, find_changes
from analyzers.anomalies.control_chart import WEEK
from analyzers.anomalies.findings import build_finding, describe_change
from analyzers.anomalies.rows import WorkloadSpend, read_spend
from analyzers.anomalies.series import GPU_HOUR, SeriesGrid, read_series
from fallow.models import Finding, Subject, Unjudged
from fallow.protocols import Views
from fallow.settings.anomalies import AnomaliesSettings
from fallow.window import Window


class AnomaliesAnalyzer:
    """Find unexpected spend and waste (telemetry-and-waste.md#anomalies)."""

    def __init__(self, settings: AnomaliesSettings | None = None) -> None:
        self.settings = settings or AnomaliesSettings()

    def find(self, views: Views, window: Window) -> list[Finding]:
        """Return the rises of the window, the most dollars first; falls are in the summary."""
        grid = read_series(views, window, self.settings)
        rises = [c for c in _drop_repeats(grid, find_changes(grid, self.settings)) if c.change > 0]
        rises = [c for c in rises if not self._is_planned(c)]
        workloads = _read_workloads(views, rises)
        findings = [build_finding(rise, workloads[n]) for n, rise in enumerate(rises)]
        return sorted(findings, key=lambda f: (-(f.usd or 0), -f.gpu_hours, f.id))

    def summary(self, views: Views, window: Window) -> dict[str, Any]:
        """Return how much was judged, what fell, and the planned changes that were suppressed."""
        grid = read_series(views, window, self.settings)
        all_of = _drop_repeats(grid, find_changes(grid, self.settings))

        def listed(some: Iterable[SpendChange]) -> list[dict[str, Any]]:
            return [
                {"subject": c.key.name, "cluster": c.key.cluster, **describe_change(c)}
                for c in some
            ]

        return {
            "series": len(grid.keys),
            "falls": listed(c for c in all_of if c.change < 0),
            "planned": listed(c for c in all_of if c.change > 0 and self._is_planned(c)),
        }

    def unjudged(self, views: Views, window: Window) -> list[Unjudged]:
        """Return by cluster the hours with too little data, or with too little history."""
        grid = read_series(views, window, self.settings)
        begin, count = grid.hours.window - grid.hours.begin, grid.hours.width
        unjudged = []
        for cluster, blind in sorted(grid.blind.items()):
            allocated = grid.allocated[cluster]
            past = np.zeros(count, dtype=np.int64)
            for week in range(1, self.settings.weeks + 1):
                past[week * WEEK :] += ~blind[: count - week * WEEK]
            now = np.arange(count) >= begin
            dark = now & blind
            new = now & ~blind & (past < self.settings.least_weeks)
            for some, why in (
                (dark, "hours in which telemetry or the ledger has less than the usual fleet"),
                (new, f"fewer than {self.settings.least_weeks} weeks of history before them"),
            ):
                hours = float(allocated[some].sum()) / GPU_HOUR
                if some.any():
                    about = Subject(cluster, "", "Fleet", cluster)
                    reason = f"{int(some.sum())} of {int(now.sum())} hours: {why}"
                    unjudged.append(Unjudged(about, round(hours, 6), (reason,), window))
        return unjudged

    def _is_planned(self, change: SpendChange) -> bool:
        return any(
            planned.name == change.key.name
            and planned.start < change.end
            and planned.end > change.start
            for planned in self.settings.known_changes
        )


def _drop_repeats(grid: SeriesGrid, changes: Iterable[SpendChange]) -> list[SpendChange]:
    """Drop a namespace's change if its team has the same one, so that the team is notified once."""
    listed = list(changes)
    teams: dict[tuple[str, str, bool], list[SpendChange]] = defaultdict(list)
    for change in listed:
        if change.key.team:
            teams[change.key.cluster, change.measure, change.change > 0].append(change)
    pairs = set(grid.rows.select("cluster", "team", "namespace").unique().iter_rows())

    def repeats(change: SpendChange) -> bool:
        others = teams[change.key.cluster, change.measure, change.change > 0]
        return not change.key.team and any(
            (other.key.cluster, other.key.team, change.key.namespace) in pairs
            and other.start < change.end
            and other.end > change.start
            for other in others
        )

    return [change for change in listed if not repeats(change)]


def _read_workloads(views: Views, rises: Sequence[SpendChange]) -> dict[int, list[WorkloadSpend]]:
    """Return, for each rise, the spend and waste of its workloads in that time, largest first."""
    by_rise: dict[int, list[WorkloadSpend]] = defaultdict(list)
    for row in read_spend(views, rises) if rises else ():
        by_rise[row.span].append(row)
    return by_rise

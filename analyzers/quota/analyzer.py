"""Find quota that starves, hoards, strands or is unused, and the members that could give some."""

from datetime import timedelta
from typing import Any

from analyzers.query_cache import cache_query
from analyzers.quota.findings import find_waste, share_free_hours
from analyzers.quota.group_reader import read_groups
from analyzers.quota.groups import QuotaGroups
from analyzers.quota.measures import compute_shares, measure_group
from fallow.models import Finding, Unjudged
from fallow.protocols import Views
from fallow.settings.capacity import QuotaSettings
from fallow.window import Window

_SUMS = ("starved", "hoarded", "stranded", "blocked", "above", "unfair")


class QuotaAnalyzer:
    """Find nominal quotas that keep GPUs from waiting pods.

    Source: telemetry-and-waste.md#queues-and-quota.
    """

    def __init__(self, settings: QuotaSettings | None = None) -> None:
        self.settings = settings or QuotaSettings()

    def find(self, views: Views, window: Window) -> list[Finding]:
        """Return what quotas waste, the most GPU-hours first."""
        groups = self._gathered(views, window).groups
        findings = [
            finding for group in groups for finding in find_waste(group, window, self.settings)
        ]
        findings = share_free_hours(findings, groups)
        return sorted(findings, key=lambda f: (-f.gpu_hours, f.kind, f.id))

    def summary(self, views: Views, window: Window) -> dict[str, Any]:
        """Return each group's fairness, and its GPU-hours starved, hoarded and stranded."""
        by_group = {}
        for group in self._gathered(views, window).groups:
            measures = measure_group(group)
            hours = {f"{name}_gpu_hours": measures.total(name) for name in _SUMS}
            by_group[f"{group.cluster}/{group.name}"] = {
                "lends": group.lends,
                **hours,
                **compute_shares(group),
            }
        return {"groups": by_group}

    def unjudged(self, views: Views, window: Window) -> list[Unjudged]:
        """Return the quotas that cannot be judged, or only in part, and why."""
        gathered = self._gathered(views, window)
        unjudged = [Unjudged(subject, 0.0, (why,)) for subject, why in gathered.unjudged]
        for group in gathered.groups:
            unjudged += [
                Unjudged(group.subject(n), 0.0, group.notes)
                for n in range(len(group.members))
                if group.notes
            ]
        return unjudged

    @cache_query
    def _gathered(self, views: Views, window: Window) -> QuotaGroups:
        return read_groups(views, window, timedelta(days=self.settings.history_days))

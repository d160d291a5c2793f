"""Find stalled jobs: all ranks spin, or are idle, and the job makes no progress.

pod ─► ranks.sql ──► jobs ─┐
sample ─► quiet_stretches.sql ─► by device ─► of all ranks together ───────────┐
sample ─► five_minutes.sql ─► power above the idle band: no rest ──────────────┤
progress_sample ─► unchanged_progress.sql ─► does it progress? ────────────────┼─► judge.py
pod_sample ─► host_traffic.sql, bursts.sql ─► data, evaluation, checkpoints ───┘
"""

from datetime import UTC

from analyzers.query_cache import cache_query
from analyzers.stalled.findings import build_finding, build_subject
from analyzers.stalled.judge import StalledJob, UncertainStall
from analyzers.stalled.lookback import StallVerdict, judge_recent
from analyzers.work import read_costs
from fallow.models import Finding, Unjudged
from fallow.protocols import Views
from fallow.settings.idle import IdleSettings
from fallow.settings.reliability import StalledSettings
from fallow.window import Window


class StalledAnalyzer:
    """Find jobs that hang: their ranks spin or are idle, and nothing progresses.

    Source: telemetry-and-waste.md#signals.
    """

    shared_settings = ("idle",)

    def __init__(
        self, settings: StalledSettings | None = None, *, idle: IdleSettings | None = None
    ) -> None:
        self.settings = settings or StalledSettings()
        self._margin_w = (idle or IdleSettings()).power_margin_w

    def find(self, views: Views, window: Window) -> list[Finding]:
        """Return jobs that are, or were, stalled, the most GPU-hours first."""
        stalls = [v for v in self._judged(views, window) if isinstance(v, StalledJob)]
        if not stalls:
            return []
        costs = read_costs(views, window)
        findings = [build_finding(stall, costs, window) for stall in stalls]
        return sorted(findings, key=lambda f: (-f.gpu_hours, f.id))

    def unjudged(self, views: Views, window: Window) -> list[Unjudged]:
        """Return jobs that may be stalled, and why it is unknown."""
        return [
            Unjudged(
                build_subject(doubt.job, doubt.segment.quiet),
                sum(q.weight for q in doubt.segment.quiet) * doubt.segment.seconds / 3600,
                (doubt.why,),
                Window(
                    doubt.segment.start.replace(tzinfo=UTC), doubt.segment.end.replace(tzinfo=UTC)
                ),
            )
            for doubt in self._judged(views, window)
            if isinstance(doubt, UncertainStall)
        ]

    @cache_query
    def _judged(self, views: Views, window: Window) -> list[StallVerdict]:
        return judge_recent(views, window, self.settings, self._margin_w)

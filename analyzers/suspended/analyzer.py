"""Find jobs that Fallow suspended and that can run again.

action ─► suspensions ─► judge.py ─► finding (verb `resume`), or unjudged with its reason
"""

from analyzers.query_cache import cache_query
from analyzers.suspended.findings import build_finding, build_subject, find_window
from analyzers.suspended.judge import ResumeVerdict, SuspensionJudge
from capacity.queue.suspensions import read_suspensions
from fallow.models import Finding, Unjudged
from fallow.protocols import Views
from fallow.window import Window


class SuspendedAnalyzer:
    """Find jobs that Fallow suspended, whose reason ended, and that fit on free devices."""

    def find(self, views: Views, window: Window) -> list[Finding]:
        """Return the jobs that can run again, the most GPUs first."""
        findings = [build_finding(v, window) for v in self._judged(views, window) if not v.hold]
        return sorted(findings, key=lambda f: (-f.details["gpus"], f.id))

    def unjudged(self, views: Views, window: Window) -> list[Unjudged]:
        """Return the jobs that stay suspended, and why."""
        return [
            Unjudged(build_subject(v), 0.0, (v.hold,), find_window(v, window))
            for v in self._judged(views, window)
            if v.hold
        ]

    @cache_query
    def _judged(self, views: Views, window: Window) -> list[ResumeVerdict]:
        judge = SuspensionJudge(views, window.end)
        return [judge.judge(suspension) for suspension in read_suspensions(views, window.end)]

"""Explain an empty list of findings: nothing found, not analysed, or not judged."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from dashboards.figures.query import BY_HOUR, Filters, run_query
from fallow.plugins import find_installed
from fallow.protocols import Views
from fallow.window import Window

MOST = 3
"""Reasons that a sentence names, at most."""
NO_FILTERS = Filters()
UNJUDGED_IDLE = (*BY_HOUR, "analysis_runs/unjudged_idle")
LEAST_MISSED = 0.05
"""Share of the accounted hours: the newest wait for the next analysis, and are not worth a word."""


class LastPluginRun(msgspec.Struct, frozen=True):
    """The result of a plugin's last run; the window is what an analyzer judged."""

    cluster: str
    kind: str
    plugin: str
    start: datetime | None
    end: datetime | None
    result: str
    reason: str

    def touches(self, window: Window) -> bool:
        """Return whether it judged any part of a window."""
        if self.start is None or self.end is None:
            return False
        start, end = self.start.replace(tzinfo=UTC), self.end.replace(tzinfo=UTC)
        return start < window.end and end > window.start


class AnalysisGap(msgspec.Struct, frozen=True):
    """Accounted hours of a window, and those that the last run of an analyzer did not judge."""

    hours: int
    missed_hours: int
    """Not judged by every analyzer."""
    unseen_hours: int
    """Of them: judged by none."""
    start: datetime | None
    """Of the first missed hour, naive UTC; `end` of the last."""
    end: datetime | None
    idle_gpu_hours: float
    """Idle, in hours that the idle analyzer did not judge; a finding from before may have them."""

    @property
    def is_material(self) -> bool:
        """Return whether so many hours are missed that savings are at least what they are."""
        return self.missed_hours > LEAST_MISSED * self.hours

    @property
    def summary(self) -> str:
        """Return in words which hours were not judged; "" = (nearly) all were."""
        if not self.is_material:
            return ""
        who = "no analyzer" if self.unseen_hours == self.missed_hours else "not every analyzer"
        return (
            f"{who} judged {self.missed_hours:,} of {self.hours:,} h "
            f"({self.start:%Y-%m-%d %H:%M} to {self.end:%Y-%m-%d %H:%M} UTC)"
        )


class MissingFindings(msgspec.Struct, frozen=True):
    """Why a list of findings is empty; `summary` is "" if all was analysed and nothing found."""

    summary: str
    why: tuple[str, ...] = ()

    def sentence(self, none: str) -> str:
        """Return it as one sentence; `none` is the sentence for nothing found."""
        return " ".join(filter(None, (self.summary or none, *self.why)))


def read_runs(views: Views) -> tuple[LastPluginRun, ...]:
    """Return the result of each plugin's last run."""
    return tuple(
        LastPluginRun(**row) for row in run_query(views, ("data_health/plugins",), None).to_pylist()
    )


def measure_gap(views: Views, window: Window, filters: Filters = NO_FILTERS) -> AnalysisGap:
    """Return how much of a window the last runs of the analyzers did not judge."""
    (row,) = run_query(views, ("analysis_runs/gap",), window, filters).to_pylist()
    idle = 0.0
    if row["missed_hours"]:
        (hours,) = run_query(views, UNJUDGED_IDLE, window, filters).to_pylist()
        idle = hours["gpu_hours"]
    return AnalysisGap(**row, idle_gpu_hours=idle)


def read_faults(views: Views) -> tuple[LastPluginRun, ...]:
    """Return the plugins whose last run ended with an exception."""
    return tuple(run for run in read_runs(views) if run.result == "failed")


def read_fault(run: LastPluginRun) -> str:
    """Return a sentence about a plugin that failed; its names come from outside."""
    return f"The {run.kind} {run.plugin} of cluster {run.cluster} is left out: {run.reason}."


def explain_absence(views: Views, window: Window, analyzers: Sequence[str] = ()) -> MissingFindings:
    """Return why these analyzers (none = all installed) have nothing to show over a window.

    Not analysed: no run of it judged any part of the window. Not judged: it ran, but data were
    missing or it failed.
    """
    names = [*(analyzers or find_installed("analyzers"))]
    analyzer_runs = [r for r in read_runs(views) if r.kind == "analyzer" and r.plugin in names]
    recent_runs = [run for run in analyzer_runs if run.touches(window)]
    missing = [name for name in names if name not in {run.plugin for run in recent_runs}]
    unsure = {run.plugin: run.reason for run in recent_runs if run.result != "done"}
    why = []
    if missing:
        why.append(
            f"Not analysed: {', '.join(missing)} did not run over this window; `fallow up` runs "
            f"every analyzer, `fallow analyze {' '.join(missing)}` does it now."
        )
    if unsure:
        why.append(_describe_unsure(unsure))
    if not missing and (gap := measure_gap(views, window).summary):
        why.append(f"{gap[0].upper()}{gap[1:]}.")
    summary = ""
    if len(missing) + len(unsure) == len(names) and (missing or unsure):
        summary = "Cannot be judged." if unsure else "Not analysed."
    return MissingFindings(summary, tuple(why))


def _describe_unsure(unsure: Mapping[str, str]) -> str:
    named = [f"{name} ({reason})" for name, reason in [*unsure.items()][:MOST]]
    more = f", and {len(unsure) - MOST} more" if len(unsure) > MOST else ""
    return f"Cannot be judged: {'; '.join(named)}{more}."

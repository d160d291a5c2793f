"""Nothing found, not analysed, cannot be judged: what stands behind a list that is empty."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from dashboards.figures.asking import ask
from fallow.plugins import installed
from fallow.seams import Views
from fallow.window import Window

MOST = 3
"""Reasons that a sentence names."""


class Run(msgspec.Struct, frozen=True):
    """What came of the last run of a plugin; the window is what an analyzer judged."""

    cluster: str
    kind: str
    plugin: str
    start: datetime | None
    end: datetime | None
    result: str
    reason: str

    def touches(self, window: Window) -> bool:
        """Return whether it judged any of a window."""
        if self.start is None or self.end is None:
            return False
        start, end = self.start.replace(tzinfo=UTC), self.end.replace(tzinfo=UTC)
        return start < window.end and end > window.start


class Absence(msgspec.Struct, frozen=True):
    """Why a list of findings is empty; `what` is "" where all was analysed and none found."""

    what: str
    why: tuple[str, ...] = ()

    def said(self, none: str) -> str:
        """Return one sentence for it; `none` says that none was found."""
        return " ".join(filter(None, (self.what or none, *self.why)))


def runs(views: Views) -> tuple[Run, ...]:
    """Return what came of the last run of each plugin."""
    return tuple(Run(**row) for row in ask(views, ("standing/plugins",), None).to_pylist())


def faults(views: Views) -> tuple[Run, ...]:
    """Return the plugins whose last run ended with an exception."""
    return tuple(run for run in runs(views) if run.result == "failed")


def fault(run: Run) -> str:
    """Say of a plugin that failed; its names are a stranger's."""
    return f"The {run.kind} {run.plugin} of cluster {run.cluster} is left out: {run.reason}."


def absence(views: Views, window: Window, analyzers: Sequence[str] = ()) -> Absence:
    """Return why these analyzers (none = all installed) have nothing to show over a window.

    Not analysed: no run of it judged any of the window. Cannot be judged: it ran, and data were
    lacking or it failed.
    """
    names = [*(analyzers or installed("analyzers"))]
    mine = [r for r in runs(views) if r.kind == "analyzer" and r.plugin in names]
    ran = [run for run in mine if run.touches(window)]
    missing = [name for name in names if name not in {run.plugin for run in ran}]
    unsure = {run.plugin: run.reason for run in ran if run.result != "done"}
    why = []
    if missing:
        why.append(
            f"Not analysed: {', '.join(missing)} did not run over this window; `fallow up` runs "
            f"every analyzer, `fallow analyze {' '.join(missing)}` does it now."
        )
    if unsure:
        named = [f"{name} ({reason})" for name, reason in [*unsure.items()][:MOST]]
        more = f", and {len(unsure) - MOST} more" if len(unsure) > MOST else ""
        why.append(f"Cannot be judged: {'; '.join(named)}{more}.")
    if not missing and not unsure:
        return Absence("")
    if len(missing) == len(names):
        return Absence("Not analysed.", tuple(why))
    if len(missing) + len(unsure) == len(names):
        return Absence("Cannot be judged.", tuple(why))
    return Absence("", tuple(why))

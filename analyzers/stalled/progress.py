"""Read a job's reported progress: whether it stands still, and since when."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from analyzers.stalled.gangs import QuietSegment, TrainingJob
from analyzers.stalled.rows import PodKey, UnchangedStretch


class JobProgress(msgspec.Struct, frozen=True):
    """Since when a job's progress stands still."""

    metric: str
    value: float
    since: datetime
    """Since when no series of the job moved."""
    until: datetime
    """Until when every series had samples."""
    interval_s: float
    """Maximum seconds from one of its values to the next."""
    moved: bool
    """True: one of the series moved before."""


def find_progress(
    job: TrainingJob,
    unchanged: Mapping[PodKey, Sequence[UnchangedStretch]],
    within: QuietSegment,
) -> JobProgress | None:
    """Return since when a job's progress stands still while its devices do no work.

    Of an annotated job only the named metric counts. Every series must stand still; None = the job
    reports nothing, or a series ends before the stretch does.
    """
    named = job.metric()
    cluster, namespace = job.owner[:2]
    series: dict[tuple[str, str], UnchangedStretch] = {}
    for rank in job.ranks:
        for stretch in unchanged.get((cluster, namespace, rank.pod), ()):
            if (
                named in (None, stretch.metric)
                and stretch.start < within.end
                and stretch.end > within.start
            ):
                series[stretch.pod, stretch.metric] = (
                    stretch  # in order of time: the last one is used
                )
    if not series:
        return None
    last = [*series.values()]
    until = min(s.end for s in last)
    interval_s = max(s.interval_s for s in last)
    if until < within.end - timedelta(seconds=2 * interval_s):
        return None
    newest = max(last, key=lambda s: (s.start, s.metric, s.pod))
    moved = any(s.moved for s in last)
    return JobProgress(newest.metric, newest.value, newest.start, until, interval_s, moved)

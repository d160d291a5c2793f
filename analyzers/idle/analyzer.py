"""Find idle workloads: all devices allocated to the workload (or some of them) are unused.

`judge.judge_window` judges: here at one time, the window's end, and for back-tests at many times.
Windows of up to `samples.MOST_SAMPLES` raw samples are judged sample by sample, longer ones from
five-minute rollups: the results differ by at most a bucket at either end.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cached_property

import msgspec
import polars as pl
import pyarrow as pa

from analyzers.idle import samples as source
from analyzers.idle.holders import WorkloadBucket
from analyzers.idle.judge import SCHEMA, IdleJudgements, judge_window
from analyzers.idle.return_probability import HourReader
from analyzers.idle.rows import decode_stretch, list_stretches, read_unknown_hours
from fallow.case_identity import TOLERANCE
from fallow.errors import UsageError
from fallow.models import Finding, Subject, Unjudged
from fallow.protocols import Views
from fallow.settings.idle import IdleSettings
from fallow.window import Window, format_duration

LITTLE_LONGER = 2.0
"""Up to so many times the brief time, one judgement costs less than two."""


class IdleAnalyzer:
    """Find workloads that hold GPUs and do not use them (telemetry-and-waste.md#idle)."""

    def __init__(self, settings: IdleSettings | None = None) -> None:
        self.settings = settings or IdleSettings()

    def find(self, views: Views, window: Window) -> list[Finding]:
        """Return idle and partly idle workloads, the most GPU-hours first.

        Raises:
            UsageError: the window or the least duration is shorter than three samples of every
                device. A workload with slower devices is idle from three samples of theirs on.
        """
        return self._ranked(self._judged(views, window))

    def find_latest(self, views: Views, window: Window, brief: timedelta) -> list[Finding]:
        """Return the findings of the window's last hours, with the whole idle stretches.

        Only workloads that were idle for all of the `brief` time are judged over the window: a
        verdict needs the full length, to compare it with earlier idle stretches. A window that is
        little longer than that is judged once, with every workload.

        Raises:
            UsageError: the brief time is shorter than three samples.
        """
        since = max(window.start, window.end - brief)
        if window.seconds <= LITTLE_LONGER * brief.total_seconds():
            return [f for f in self.find(views, window) if f.window.end > since]
        recent, longer_from = Window(since, window.end), since + TOLERANCE
        hours = HourReader(views, window.end)
        findings = self._ranked(self._judged(views, recent, longer_from, hours))
        filled = {_format_name(f.subject) for f in findings if f.window.start <= longer_from}
        if not filled:
            return findings
        bucket = WorkloadBucket(workloads=tuple(sorted(filled)))
        judged = judge_window(
            views, window, [window.end], self.settings, over=True, bucket=bucket, hours=hours
        )
        whole = [f for f in self._ranked(judged) if f.window.end > since]
        rest = [f for f in findings if _format_name(f.subject) not in filled]
        return sorted([*whole, *rest], key=lambda f: (-f.gpu_hours, f.id))

    def _ranked(self, judged: IdleJudgements) -> list[Finding]:
        rows = judged.rows.filter(pl.col("evidence").is_not_null())
        findings = [judged.finding(row, self.settings) for row in list_stretches(rows)]
        return sorted(findings, key=lambda f: (-f.gpu_hours, f.id))

    def unjudged(self, views: Views, window: Window) -> list[Unjudged]:
        """Return vetoed idle workloads and those with unknown telemetry, with the reasons."""
        judged = self._judged(views, window)
        cases = [
            judged.case(row)
            for row in list_stretches(judged.rows.filter(pl.col("verdict") == "unknown"))
        ]
        vetoed = [Unjudged(c.subject, c.gpu_hours, c.judgement.reasons, c.window) for c in cases]
        # Frozen counters are unknown in the ledger, too: they are named once.
        stale = {_get_owner(c.subject) for c in cases if c.signals.stale}
        unseen = [
            Unjudged(
                Subject(*row.owner), row.gpu_hours, ("telemetry is missing or contradicts itself",)
            )
            for row in read_unknown_hours(views, window)
            if row.owner not in stale
        ]
        return [*vetoed, *unseen]

    def replay(self, views: Views, window: Window, times: Sequence[datetime]) -> "IdlePast":
        """Return what `find` would have returned at each time, for workloads idle until then.

        The replay differs where that time knew less: pods and nodes have the owners of today.

        Raises:
            UsageError: the times are not equally far apart.
        """
        return IdlePast(judge_window(views, window, times, self.settings), self.settings)

    def _judged(
        self,
        views: Views,
        window: Window,
        longer_from: datetime | None = None,
        hours: HourReader | None = None,
    ) -> IdleJudgements:
        self._check(views, window)
        return judge_window(
            views,
            window,
            [window.end],
            self.settings,
            over=True,
            longer_from=longer_from,
            hours=hours,
        )

    def _check(self, views: Views, window: Window) -> None:
        interval = source.read_shortest_interval_s(views, window)
        if interval is None:
            return
        least_s = source.LEAST_SAMPLES * interval
        for setting, seconds in (
            ("min_duration", self.settings.min_duration.total_seconds()),
            ("window", window.seconds),
        ):
            if seconds < least_s:
                raise UsageError(
                    f"idle {setting} {format_duration(seconds)} is shorter than "
                    f"{source.LEAST_SAMPLES} samples of {format_duration(interval)}",
                    hint=f"at least {format_duration(least_s)}",
                )


def _format_name(subject: Subject) -> str:
    """Return a workload's name in the format of `holders.WorkloadBucket`."""
    return "/".join(_get_owner(subject))


def _get_owner(subject: Subject) -> tuple[str, ...]:
    return subject.cluster, subject.namespace, subject.workload_kind, subject.workload


class IdlePast:
    """What was known of each idle workload at each time: see `fallow.protocols.PastFindings`."""

    def __init__(self, judged: IdleJudgements, settings: IdleSettings) -> None:
        rows = judged.rows.filter(pl.col("evidence").is_not_null())
        case = pl.col("case").rank("dense").cast(pl.Int64) - 1
        # Its rows are those below: both would be in memory.
        self._judged = msgspec.structs.replace(judged, rows=judged.rows.clear())
        self._settings = settings
        self._rows = rows.with_columns(case=case)

    @cached_property
    def rows(self) -> pa.Table:
        """Return a row per finding and time (`k`): see `fallow.protocols.PastFindings`."""
        columns = [n for n in SCHEMA if n in _COLUMNS]
        return self._rows.select(columns).to_arrow()

    def finding(self, row: int) -> Finding:
        """Return the finding of a row, as `find` would have returned it then."""
        stretch = decode_stretch(self._rows.row(row, named=True))
        return self._judged.finding(stretch, self._settings)


_COLUMNS = frozenset(
    {
        "case", "k", "mark", "cluster", "namespace", "workload_kind", "workload", "team", "kind",
        "evidence", "actionable", "confidence", "coverage", "gpu_hours", "usd", "start", "end",
        "wanted",
    }
)  # fmt: skip

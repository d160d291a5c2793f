"""Stalled jobs: all ranks spin, or rest, and the job gets no further.

pod ─► ranks.sql ──► jobs ─┐
sample ─► quiet.sql ─► stretches without work, by device ─► of all ranks together ─┐
progress_sample ─► progress.sql ─► does it get on? ────────────────────────────────┼─► judge.py
pod_sample ─► hosts.sql, bursts.sql ─► data, evaluation, checkpoint phases ────────┘
"""

from collections.abc import Sequence
from datetime import UTC, timedelta
from typing import Any

import msgspec
import polars as pl

from analyzers.checkpoints import WORKLOAD, Checkpoints, Owner, told, written_by
from analyzers.once import once
from analyzers.queries import LOOKED, rows_of, sql, steps
from analyzers.stalled.findings import found, subject_of
from analyzers.stalled.gangs import Job, Quiet, Segment, jobs, segments
from analyzers.stalled.judge import Doubt, Signals, Stall, judge
from analyzers.stalled.limits import limits
from analyzers.stalled.progress import stills
from analyzers.work import bill
from fallow.nouns import Finding, Unjudged
from fallow.seams import Views
from fallow.settings import StalledSettings
from fallow.window import Window

HOST_BACK = timedelta(hours=24)
"""How far back bursts of writing are read: three checkpoints of a slow job."""
Candidate = tuple[Job, Segment]


class StalledAnalyzer:
    """Find jobs that hang: their ranks spin or rest, and nothing gets on.

    Source: telemetry-and-waste.md#signals.
    """

    def __init__(self, settings: StalledSettings | None = None) -> None:
        self.settings = settings or StalledSettings()

    def find(self, views: Views, window: Window) -> list[Finding]:
        """Return jobs that are, or were, stalled, the most GPU-hours first."""
        stalls = [v for v in self._judged(views, window) if isinstance(v, Stall)]
        if not stalls:
            return []
        costs = bill(views, window)
        made = [found(stall, costs, window) for stall in stalls]
        return sorted(made, key=lambda f: (-f.gpu_hours, f.id))

    def unjudged(self, views: Views, window: Window) -> list[Unjudged]:
        """Return jobs that may be stalled, and why nobody can tell."""
        return [
            Unjudged(
                subject_of(doubt.job, doubt.segment.quiet),
                sum(q.weight for q in doubt.segment.quiet) * doubt.segment.seconds / 3600,
                (doubt.why,),
                Window(
                    doubt.segment.start.replace(tzinfo=UTC), doubt.segment.end.replace(tzinfo=UTC)
                ),
            )
            for doubt in self._judged(views, window)
            if isinstance(doubt, Doubt)
        ]

    @once
    def _judged(self, views: Views, window: Window) -> list[Stall | Doubt]:
        recent = Window(max(window.start, window.end - self.settings.lookback), window.end)
        least_s = self.settings.min_duration.total_seconds()
        asked: dict[str, Any] = {**recent.bounds(), "kinds": list(_kinds())}
        known = jobs(views.query(steps(LOOKED, "stalled/ranks"), asked).to_pylist())
        if not known:
            return []
        rows = views.query(
            steps(LOOKED, "stalled/ranks", "stalled/quiet"),
            {**asked, **_named("spin_engine", "spin_tensor", "spin_dram", "spin_sm", "link_bps",
                               "rest_engine", "most_gap"), "least_s": least_s},
        ).to_pylist()  # fmt: skip
        by_job: dict[Owner, list[Quiet]] = {}
        for row in rows:
            quiet = msgspec.convert(row, Quiet)
            by_job.setdefault(quiet.owner, []).append(quiet)
        candidates = [
            (job.within(segment.start, segment.end), segment)
            for owner, stretches in by_job.items()
            if (job := known.get(owner)) is not None
            for segment in segments(stretches, least_s)
        ]
        whole, found = self._whole(views, asked, candidates)
        return [*found, *self._beside(views, recent, whole, least_s)]

    def _whole(
        self, views: Views, asked: dict[str, Any], candidates: Sequence[Candidate]
    ) -> tuple[list[Candidate], list[Stall | Doubt]]:
        """Return the stretches in which every GPU of a job does no work; name those half seen."""
        few = [(j, s) for j, s in candidates if len(s.quiet) < round(sum(r.gpus for r in j.ranks))]
        whole = [
            (j, s) for j, s in candidates if len(s.quiet) >= round(sum(r.gpus for r in j.ranks))
        ]
        pods = sorted({rank.who for job, _ in few for rank in job.ranks})
        if not pods:
            return whole, []
        seen: dict[tuple[str, str, str], list[Any]] = {}
        bounds = {name: asked[name] for name in ("since", "until")}
        for row in views.query(sql("stalled/seen"), {**bounds, "pods": pods}).to_pylist():
            seen.setdefault((row["cluster"], row["namespace"], row["pod"]), []).append(row)
        doubts: list[Stall | Doubt] = []
        for job, segment in few:
            gpus = round(sum(rank.gpus for rank in job.ranks))
            there = {
                row["device"]
                for rank in job.ranks
                for row in seen.get((*job.owner[:2], rank.pod), ())
                if row["first_ts"] < segment.end and row["last_ts"] >= segment.start
            }
            spins = any(q.spins or q.blinds for q in segment.quiet)
            if len(there) == len(segment.quiet) and spins:
                why = f"{gpus - len(there)} of its {gpus} GPUs are not seen; the others spin"
                doubts.append(Doubt(job, segment, why))
        return whole, doubts

    def _beside(
        self, views: Views, recent: Window, candidates: Sequence[Candidate], least_s: float
    ) -> list[Stall | Doubt]:
        """Judge stretches by what is known beside the devices."""
        pods = sorted({rank.who for job, _ in candidates for rank in job.ranks})
        if not pods:
            return []
        long = Window(recent.end - HOST_BACK, recent.end)
        said = stills(
            views.query(
                sql("stalled/progress"),
                {**recent.bounds(), "pods": pods, **_named("most_gap")},
            ).to_pylist()
        )
        hosts = pl.DataFrame(views.query(sql("stalled/hosts"), {**recent.bounds(), "pods": pods}))
        loud = pl.DataFrame(
            views.query(sql("bursts"), {**long.bounds(), **_named("burst_bps")})
        ).filter(pl.col("who").is_in(pods))
        kept = _checkpoints([job for job, _ in candidates], loud)
        found = []
        for job, segment in candidates:
            mine = loud.filter(pl.col("who").is_in([rank.who for rank in job.ranks]))
            signals = Signals(said, hosts, kept.get(job.owner), mine["at_s"].to_list())
            verdict = judge(job, segment, signals, least_s)
            if verdict is not None:
                found.append(verdict)
        return found


def _named(*names: str) -> dict[str, float]:
    return {name: limits()[name] for name in names}


def _checkpoints(of: Sequence[Job], loud: pl.DataFrame) -> dict[Owner, Checkpoints]:
    """Return how often jobs save: by what their owners say, else by what their hosts wrote."""
    rows = {(*job.owner, rank.pod, rank.who) for job in of for rank in job.ranks}
    pods = pl.DataFrame(
        sorted(rows),
        schema={**dict.fromkeys((*WORKLOAD, "pod"), pl.String), "who": pl.UInt64},
        orient="row",
    )
    found = written_by(pods, loud)
    for job in of:
        for rank in job.ranks:
            said = told(rank.annotations, [])
            if said is not None:
                found[job.owner] = said
    return found


def _kinds() -> tuple[str, ...]:
    """Return the kinds whose pods are ranks of one job."""
    return tuple(r["workload_kind"] for r in rows_of("workload_kinds") if r["kind"] == "idle_job")

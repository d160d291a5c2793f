"""Judge the jobs of the last hours, and read further back where a hang began before them."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from analyzers.checkpoints import WORKLOAD, Checkpoints, find_write_bursts, parse_interval
from analyzers.rows import read_bursts
from analyzers.stalled.gangs import QuietSegment, TrainingJob, build_jobs, find_segments
from analyzers.stalled.judge import StalledJob, StallSignals, UncertainStall, judge_job
from analyzers.stalled.limits import read_limits
from analyzers.stalled.rows import (
    DevicePresence,
    PodKey,
    QuietStretch,
    UnchangedStretch,
    read_five_minutes,
    read_hosts,
    read_job_pods,
    read_presence,
    read_quiet,
    read_unchanged,
)
from analyzers.workload_rows import Owner
from capacity.workload_kinds import list_gang_kinds
from fallow.gpu_models import find_gpu_model
from fallow.protocols import Views
from fallow.settings.reliability import StalledSettings
from fallow.window import Window
from warehouse.signals.power_band import EnergyRows, is_above_band

HOST_LOOKBACK = timedelta(hours=24)
"""How far back bursts of writing are read: three checkpoints of a slow job."""
Candidate = tuple[TrainingJob, QuietSegment]
StallVerdict = StalledJob | UncertainStall


def judge_recent(
    views: Views, window: Window, settings: StalledSettings, margin_w: float
) -> list[StallVerdict]:
    """Judge the last hours.

    For jobs that hang longer, double the hours until the start is found. A device rests up to
    `margin_w` watts above the idle power of its model.
    """
    verdicts: list[StallVerdict] = []
    least_s = settings.min_duration.total_seconds()
    lookback, only = settings.lookback, frozenset[int]()
    while True:
        recent = Window(max(window.start, window.end - lookback), window.end)
        recent_verdicts, cut = _judge_hours(views, recent, only, least_s, margin_w)
        if not cut or recent.start <= window.start:
            return [*verdicts, *recent_verdicts]
        verdicts += [verdict for verdict in recent_verdicts if verdict.job.owner not in cut]
        lookback, only = (
            2 * lookback,
            frozenset(rank.who for job in cut.values() for rank in job.ranks),
        )


def _judge_hours(
    views: Views, recent: Window, only: frozenset[int], least_s: float, margin_w: float
) -> tuple[list[StallVerdict], dict[Owner, TrainingJob]]:
    """Judge some hours, of these pods only (none = all); return the jobs whose hang is cut off.

    For these, the start of the hang and the power at work are unknown.
    """
    parameters: dict[str, Any] = {
        **recent.bounds(), "kinds": list(list_gang_kinds()), "chosen": sorted(only) or [0],
        "all_pods": not only,
    }  # fmt: skip
    jobs = build_jobs(read_job_pods(views, parameters))
    if not jobs:
        return [], {}
    limits = _name_limits("spin_engine", "spin_tensor", "spin_dram", "spin_sm", "spin_bps",
                          "rest_engine", "most_gap", "still_readings", "still_s")  # fmt: skip
    by_job: dict[Owner, list[QuietStretch]] = {}
    for quiet in _read_quiet(views, {**parameters, **limits, "least_s": least_s}, margin_w):
        by_job.setdefault(quiet.owner, []).append(quiet)
    candidates = [
        (job.within(segment.start, segment.end), segment)
        for owner, stretches in by_job.items()
        if (job := jobs.get(owner)) is not None
        for segment in find_segments(stretches, least_s)
    ]
    whole, uncertain = _select_whole(views, parameters, candidates)
    progress = _read_progress(views, recent, whole)
    begin = recent.start.replace(tzinfo=None)
    cut = {
        job.owner: job
        for job, segment in whole
        if segment.cut(begin) and _may_hang(job, segment, progress)
    }
    return [*uncertain, *_judge_candidates(views, recent, whole, progress, least_s)], cut


def _read_quiet(views: Views, parameters: dict[str, Any], margin_w: float) -> list[QuietStretch]:
    """Return the stretches without work; five minutes of rest above the idle band are work."""
    stretches = read_quiet(views, parameters)
    resting = sorted({(q.cluster, q.device) for q in stretches if q.first_rest is not None})
    if not resting:
        return stretches
    rows = read_five_minutes(views, parameters, resting)
    above = rows.filter(pl.Series(_flag_above_band(rows, margin_w)))
    return stretches if above.is_empty() else read_quiet(views, parameters, above)


def _flag_above_band(rows: pl.DataFrame, margin_w: float) -> npt.NDArray[np.bool_]:
    """Return which five minutes have more power than an idle GPU of their model."""
    models = {name: find_gpu_model(name) for name in rows["model"].unique()}
    priors = {name: model.idle_context_w for name, model in models.items() if model is not None}
    prior_w = pl.col("model").replace_strict(priors, default=None, return_dtype=pl.Float64)
    numbers = rows.select(
        pl.col("power_w", "energy_mj").fill_null(np.nan),
        line=pl.struct("cluster", "device").rle_id().cast(pl.Int64),
        band_w=pl.coalesce("band_w", prior_w).fill_null(np.nan),
    )
    columns = {name: numbers[name].to_numpy() for name in numbers.columns}
    return is_above_band(
        columns["line"],
        columns["power_w"],
        EnergyRows(columns["energy_mj"], rows["seconds"].to_numpy(), rows["interval_s"].to_numpy()),
        columns["band_w"] + margin_w,
    )


def _select_whole(
    views: Views, parameters: dict[str, Any], candidates: Sequence[Candidate]
) -> tuple[list[Candidate], list[StallVerdict]]:
    """Return the stretches in which every GPU of a job is without work.

    Also return the jobs of which only some GPUs have samples, as uncertain.
    """
    partial = [(j, s) for j, s in candidates if len(s.quiet) < _count_gpus(j)]
    whole = [(j, s) for j, s in candidates if len(s.quiet) >= _count_gpus(j)]
    if not _list_pods(partial):
        return whole, []
    bounds = {name: parameters[name] for name in ("since", "until")}
    presence = read_presence(views, bounds, _list_pods(partial))
    return whole, [
        UncertainStall(job, segment, why)
        for job, segment in partial
        if (why := _explain_unseen_gpus(job, segment, presence)) is not None
    ]


def _read_progress(
    views: Views, recent: Window, candidates: Sequence[Candidate]
) -> dict[PodKey, list[UnchangedStretch]]:
    """Return the progress that jobs report, by cluster, namespace and pod."""
    pods = _list_pods(candidates)
    if not pods:
        return {}
    parameters = {**recent.bounds(), "pods": pods, **_name_limits("most_gap")}
    return read_unchanged(views, parameters)


def _judge_candidates(
    views: Views,
    recent: Window,
    candidates: Sequence[Candidate],
    progress: Mapping[PodKey, Sequence[UnchangedStretch]],
    least_s: float,
) -> list[StallVerdict]:
    """Judge stretches with the data besides the devices."""
    pods = _list_pods(candidates)
    if not pods:
        return []
    long = Window(min(recent.start, recent.end - HOST_LOOKBACK), recent.end)
    hosts = read_hosts(views, recent.bounds(), pods)
    loud = read_bursts(views, long.bounds(), read_limits()["burst_bps"]).filter(
        pl.col("who").is_in(pods)
    )
    checkpoints = _find_checkpoints([job for job, _ in candidates], loud)
    verdicts = []
    for job, segment in candidates:
        mine = loud.filter(pl.col("who").is_in([rank.who for rank in job.ranks]))
        signals = StallSignals(progress, hosts, checkpoints.get(job.owner), mine["at_s"].to_list())
        verdict = judge_job(job, segment, signals, least_s)
        if verdict is not None:
            verdicts.append(verdict)
    return verdicts


def _list_pods(candidates: Sequence[Candidate]) -> list[int]:
    return sorted({rank.who for job, _ in candidates for rank in job.ranks})


def _count_gpus(job: TrainingJob) -> int:
    return round(sum(rank.gpus for rank in job.ranks))


def _explain_unseen_gpus(
    job: TrainingJob, segment: QuietSegment, presence: Mapping[PodKey, Sequence[DevicePresence]]
) -> str | None:
    """Return how many GPUs have no samples while the others spin; None = the others do not."""
    cluster, namespace = job.owner[:2]
    devices = {
        device.device
        for rank in job.ranks
        for device in presence.get((cluster, namespace, rank.pod), ())
        if device.first_ts < segment.end and device.last_ts >= segment.start
    }
    spins = any(q.spins or q.blinds for q in segment.quiet)
    if len(devices) != len(segment.quiet) or not spins:
        return None
    gpus = _count_gpus(job)
    return f"{gpus - len(devices)} of its {gpus} GPUs are not seen; the others spin"


def _may_hang(
    job: TrainingJob, segment: QuietSegment, progress: Mapping[PodKey, Sequence[UnchangedStretch]]
) -> bool:
    """Return whether a stretch may be a hang: idle devices alone belong to the idle analyzer."""
    cluster, namespace = job.owner[:2]
    tells = any((cluster, namespace, rank.pod) in progress for rank in job.ranks)
    return tells or any(quiet.spins for quiet in segment.quiet)


def _name_limits(*names: str) -> dict[str, float]:
    return {name: read_limits()[name] for name in names}


def _find_checkpoints(of: Sequence[TrainingJob], loud: pl.DataFrame) -> dict[Owner, Checkpoints]:
    """Return how often jobs save: by their owners' annotations, else by writes of their hosts."""
    rows = {(*job.owner, rank.pod, rank.who) for job in of for rank in job.ranks}
    pods = pl.DataFrame(
        sorted(rows),
        schema={**dict.fromkeys((*WORKLOAD, "pod"), pl.String), "who": pl.UInt64},
        orient="row",
    )
    checkpoints = find_write_bursts(pods, loud)
    for job in of:
        for rank in job.ranks:
            annotated = parse_interval(rank.annotations, [])
            if annotated is not None:
                checkpoints[job.owner] = annotated
    return checkpoints

"""The judge of idleness: what was known of each idle stretch at each of several times.

    allocation, sample ─► idle runs ─► pieces, summed up to each time ─► stretches of workloads
         (samples.py, runs.py)              (pieces.py)                     (stretches.py)
      ─► parts without host activity ─► signals and vetoes ─► verdicts
             (quiescence.py)                (flags.py)        (evidence.py)

A live verdict is the same with one time: the window's end. An idle stretch only grows: one that
began at `s` is `[s, t)` at time `t`. So samples are read once, each sum is computed for every time,
and the verdict at a time uses only earlier rows. The judge is a pure function of tables, the
window, the times and a bucket of workloads.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl

from analyzers.idle import (
    flags,
    history,
    pieces,
    pods,
    quiescence,
    return_probability,
    spans,
    stretches,
)
from analyzers.idle import samples as source
from analyzers.idle.evidence import IdleSignals, Judgement, compute_confidence
from analyzers.idle.findings import IdleCase, build_case, build_finding
from analyzers.idle.holders import SPREAD, WorkloadBucket, join_overlapping, read_holders
from analyzers.idle.pods import HOLDS
from analyzers.idle.prices import CostMeter
from analyzers.idle.return_probability import HourReader
from analyzers.idle.rows import JudgedStretch, NumberedDevice, list_devices, read_idle_power
from analyzers.idle.signals import sum_by_device, sum_by_stretch
from fallow.errors import UsageError
from fallow.models import Finding
from fallow.protocols import Views
from fallow.settings.idle import IdleSettings
from fallow.window import Window
from warehouse.signals import power_band
from warehouse.signals.power_band import IdleBand
from warehouse.signals.runs import MICRO, Ints, find_idle_runs

PARTLY_S = 1800
"""Ranks that are idle this long while others compute are a finding.

Source: telemetry-and-waste.md#idle, multi-GPU."""

SLACK_S = 600
"""Seconds after its end at which a stretch is over: two samples, and at least two buckets."""

MOST_ROWS = 200_000
"""Rows that are judged at once: each has 0.5 kB, and several frames of them are in memory."""

Bands = Sequence[Mapping[str, IdleBand]]
"""Idle power by GPU model, for each time."""

SCHEMA: dict[str, Any] = {
    "case": pl.Int64, "k": pl.Int64, "mark": pl.Int64, "cluster": pl.String,
    "namespace": pl.String, "workload_kind": pl.String, "workload": pl.String, "team": pl.String,
    "kind": pl.String, "evidence": pl.String, "actionable": pl.Boolean, "confidence": pl.Float64,
    "coverage": pl.Float64,
    "gpu_hours": pl.Float64, "usd": pl.Float64, "start": pl.Int64, "end": pl.Int64,
    "at": pl.Int64, "state": pl.String, "verdict": pl.String,
    "gpu_us": pl.Float64, "samples": pl.Int64, "devices": pl.Int64, "power_w": pl.Float64,
    "band_w": pl.Float64, "band": pl.String, "processes": pl.Float64, "idle_clock": pl.Float64,
    "kernel_age_s": pl.Float64, "numbers": pl.List(pl.Int64), "judgement": pl.Int64,
    "gap": pl.String, "longest_rest_us": pl.Int64, "wanted": pl.Float64,
    "exposures": pl.Int64, "returns": pl.Int64, "own_days": pl.Int64, "own_returns": pl.Int64,
    "holds": HOLDS, "waiting": pl.Float64, "running": pl.Float64, "swapped": pl.Float64,
}  # fmt: skip
"""A row per stretch and time: `fallow.protocols.PastFindings.rows`, and the columns of a finding.
"""


class IdleJudgements(msgspec.Struct, frozen=True):
    """Every stretch at every time (`rows`, the columns of `SCHEMA`), with its verdict."""

    rows: pl.DataFrame
    judgements: tuple[tuple[IdleSignals, Judgement], ...]
    devices: tuple[NumberedDevice, ...]
    read_from: str
    """`sample` or `rollup_5m`."""

    def case(self, row: JudgedStretch) -> IdleCase:
        """Return a row as a case, judged."""
        signals, judgement = self.judgements[row.judgement]
        devices = [self.devices[n] for n in row.numbers]
        return build_case(row, devices, signals, judgement, source=self.read_from)

    def finding(self, row: JudgedStretch, settings: IdleSettings) -> Finding:
        """Return the finding of a row with evidence."""
        return build_finding(self.case(row), settings)


def judge_window(
    views: Views,
    window: Window,
    times: Sequence[datetime],
    settings: IdleSettings,
    *,
    over: bool = False,
    bucket: WorkloadBucket | None = None,
    bands: Bands | None = None,
    longer_from: datetime | None = None,
    hours: HourReader | None = None,
) -> IdleJudgements:
    """Return what was known at each time of the idle stretches that lasted until then.

    Those that only missing samples ended are known for the lookback of the settings, as a live
    verdict knows them: the next stretch may continue their case.

    With `over`, also of stretches that are over, of each part of them, and of workloads with some
    idle devices. Times are equally far apart; where there are too many samples and five-minute
    rollups are read, they should be multiples of five minutes. `bucket`: only these workloads;
    `bands`: the fleet's idle power at each time, learned from the bucket where not given.
    `longer_from`: workloads with a finding that began by then will be judged over a longer window.
    Here their earlier stretches are not read, which change no evidence but what may be acted upon.
    `hours`: those until this window's end, where others read them too.

    Raises:
        UsageError: the times are not equally far apart.
    """
    at = np.array([round(t.timestamp() * MICRO) for t in times], dtype=np.int64)
    if len(set(np.diff(at))) > 1:
        raise UsageError("the times of a replay must be equally far apart")
    named = (bucket or WorkloadBucket()).parameters()
    chosen = source.plan_query(views, window, settings, named, times=at)
    nothing = IdleJudgements(
        pl.DataFrame(schema=SCHEMA), (), tuple(list_devices(chosen.devices)), chosen.source
    )
    holds = read_holders(views, window, chosen, settings, bucket)
    if holds.is_empty() or not len(at):
        return nothing
    # What the rows were judged by ends with this call: the next steps need memory for all rows.
    rows, judgements = _judge_stretches(
        views, window, times, at, chosen, holds, settings, over, bands, longer_from
    )
    if rows.is_empty():
        return nothing
    rows = rows.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    hours = hours or HourReader(views, window.end)
    begin = window.start - settings.history
    rows = return_probability.add_return_probability(hours, begin, rows, settings)
    return msgspec.structs.replace(
        nothing, rows=_number_cases(rows, judgements), judgements=tuple(judgements)
    )


def _judge_stretches(  # noqa: PLR0917  (one caller)
    views: Views, window: Window, times: Sequence[datetime], at: Ints, chosen: source.SampleQuery,
    holds: pl.DataFrame, settings: IdleSettings, over: bool, bands: Bands | None,
    longer_from: datetime | None,
) -> tuple[pl.DataFrame, list[tuple[IdleSignals, Judgement]]]:  # fmt: skip
    """Return the judged rows without what needs all of them (`_judge_rows`), and the judgements."""
    merged = spans.merge_holds(holds)
    cut, learned = _scan_samples(views, chosen, merged, at, settings)
    if cut.whole.is_empty():
        return pl.DataFrame(), []
    least = {
        "idle": _convert_seconds(settings.min_duration.total_seconds()),
        "partly idle": _convert_seconds(PARTLY_S),
    }
    candidates = stretches.find_stretches(
        cut.whole, merged, least if over else {"idle": least["idle"]}
    )
    owner_times = _compute_owner_times(chosen, merged)
    candidates = candidates.join(
        owner_times.select("owner", "slack_us"), on="owner", how="left", maintain_order="left"
    )
    candidates = stretches.keep_beside_busy(views, chosen, candidates, cut.whole, merged)
    if not over:
        candidates = stretches.keep_before_silence(
            views, chosen, candidates, holds, settings.lookback
        )
    members = stretches.list_members(candidates, cut.whole)
    rows = stretches.list_at_times(candidates, members, cut.at, at, least=least, over=over)
    stretch_holds = join_overlapping(candidates.select("span", "owner", "start", "end"), holds)
    stretch_holds = stretch_holds.filter(pl.col("span").is_in(rows["span"].unique().implode()))
    repeats = members.join(cut.whole.filter("repeats").select("piece"), on="piece", how="semi")
    activity = pl.concat(
        [
            quiescence.read_activity(views, window, stretch_holds, settings),
            quiescence.find_repeats(repeats),
        ]
    )
    rows = quiescence.split_rows(rows, activity, least_us=least["idle"], over=over)
    rows = _drop_short_rows(rows, owner_times)
    if rows.is_empty():
        return pl.DataFrame(), []
    bands = _read_bands(views, times, learned) if bands is None else bands

    def read_ended(due: pl.DataFrame) -> pl.DataFrame:
        return history.read_ended_stretches(
            views, window, times[0], chosen, cut.whole, merged, holds, due, settings
        )

    parts = _cut_rows(rows)
    numbered = pods.number_pods(stretch_holds)
    evidence = RowEvidence(
        cut=cut,
        members=members,
        bands=bands,
        costs=CostMeter(views, window, chosen.devices),
        holds=holds,
        stretch_holds=stretch_holds,
        bursts=history.read_bursts(
            views,
            chosen,
            members.join(cut.whole.select("piece", "number"), on="piece"),
            cut.peaks,
            settings.power_margin_w,
        ),
        ended=read_ended(rows) if longer_from is None else pl.DataFrame(),
        read_ended=read_ended,
        longer_from=longer_from,
        numbered=numbered,
        readings=pods.read_readings(views, window, parts, numbered, at),
    )
    judgements: dict[IdleSignals, Judgement] = {}
    judged = [
        _judge_rows(views, window, part, evidence, at, settings, judgements) for part in parts
    ]
    return pl.concat(judged), [*judgements.items()]


class RowEvidence(NamedTuple):
    """By what all rows are judged, read once: whatever the part, a row's verdict is the same."""

    cut: pieces.RunPieces
    members: pl.DataFrame
    """The pieces of each stretch, of `stretches.list_members`."""
    bands: Bands
    costs: CostMeter
    holds: pl.DataFrame
    stretch_holds: pl.DataFrame
    bursts: pl.DataFrame
    """When devices worked for a moment, of `history.read_bursts`."""
    ended: pl.DataFrame
    """Stretches that ended by themselves, of `history.read_ended_stretches`; with `longer_from`
    none: each part reads those of the rows that it leaves."""
    read_ended: Callable[[pl.DataFrame], pl.DataFrame]
    longer_from: datetime | None
    numbered: pl.DataFrame
    """The pods of each stretch, of `pods.number_pods`."""
    readings: pods.PodReadings


def _cut_rows(rows: pl.DataFrame) -> list[pl.DataFrame]:
    """Cut rows, in order of their workloads, into equal parts of whole workloads.

    While a row is judged it has 90 columns: of 30 days of 10,000 GPUs, and of several such frames
    at once, that would be more memory than all of the rest.
    """
    owner = rows["owner"].to_numpy()
    count = -(-len(owner) // MOST_ROWS)
    begins = owner[np.arange(count) * len(owner) // count]
    edges = np.unique([*np.searchsorted(owner, begins), len(owner)]).tolist()
    return [rows[low:high] for low, high in itertools.pairwise(edges)]


def _judge_rows(  # noqa: PLR0917  (one caller)
    views: Views, window: Window, rows: pl.DataFrame, evidence: RowEvidence, at: Ints,
    settings: IdleSettings, judgements: dict[IdleSignals, Judgement],
) -> pl.DataFrame:  # fmt: skip
    """Judge a part of the rows: the columns of `SCHEMA` but for those that need all rows.

    `judgements`: those so far, in the order of their numbers; new ones are added.
    """
    of_part = pl.col("span").is_between(rows["span"][0], rows["span"][-1])
    members, stretch_holds = (
        frame.filter(of_part) for frame in (evidence.members, evidence.stretch_holds)
    )
    cut = evidence.cut
    grown = cut.at.join(members.select("piece"), on="piece", how="semi")
    rows = rows.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    inside = stretches.join_pieces(rows, members, cut.whole, grown)
    rows = _sum_devices(rows, inside, evidence.bands, settings)
    rows = rows.join(evidence.costs.dollars(inside), on="row", how="left")
    rows = _add_holders(rows, stretch_holds, evidence.holds, settings)
    named = evidence.numbered.filter(of_part)
    rows = pods.add_signals(views, window, rows, named, evidence.readings, at, settings)
    ended = evidence.ended
    if evidence.longer_from is not None:
        ended = evidence.read_ended(_drop_longer(rows, evidence.longer_from))
    rows = flags.add_recurrence(
        history.add_longest_rest(rows, ended, evidence.bursts.filter(of_part), settings)
    )
    rows = flags.add_judgements(rows, judgements)
    return rows.select("span", "slack_us", *(name for name in SCHEMA if name in rows.columns))


def _drop_longer(rows: pl.DataFrame, longer_from: datetime) -> pl.DataFrame:
    """Drop the rows of every workload with a finding that began by a time.

    Earlier stretches are a veto on acting only (`evidence.UNACTIONABLE`): the findings are known.
    """
    judgements: dict[IdleSignals, Judgement] = {}
    judged = flags.add_judgements(rows.with_columns(recurrent=False), judgements)
    findings = [n for n, each in enumerate(judgements.values()) if each.evidence is not None]
    longer = judged.filter(
        pl.col("judgement").is_in(findings)
        & (pl.col("start") <= round(longer_from.timestamp() * MICRO))
    )
    return rows.join(longer.select("owner").unique(), on="owner", how="anti", maintain_order="left")


def _scan_samples(
    views: Views, chosen: source.SampleQuery, merged: pl.DataFrame, at: Ints, settings: IdleSettings
) -> tuple[pieces.RunPieces, Bands]:
    """Read the samples once.

    Return the pieces of idle runs by holder, and the learned idle power.
    """
    models = sorted(set(chosen.devices["gpu_model"].drop_nulls()))
    number = {name: n for n, name in enumerate(models)}
    model_of = np.array([number.get(m, -1) for m in chosen.devices["gpu_model"]], dtype=np.int64)
    model_of[chosen.devices["parent"].is_not_null().to_numpy()] = -1
    held_from = np.zeros(chosen.devices.height, dtype=np.int64)
    first = merged.group_by("number").agg(pl.col("start").min())
    held_from[first["number"].to_numpy()] = first["start"].to_numpy()
    shortest = min(settings.min_duration.total_seconds(), PARTLY_S)
    taught: Any = 0
    whole, inside, peaks, count = [], [], [], 0
    for samples in source.read_parts(views, chosen, settings, merged):
        if not len(samples):
            continue
        taught = taught + pieces.count_learned(samples, model_of, held_from, len(models), at)
        runs = find_idle_runs(samples, exit_samples=settings.exit_samples, shortest_s=shortest)
        if not len(runs):
            continue
        run_pieces = pieces.cut_runs(samples, runs, merged, at, shortest_s=shortest)
        if run_pieces.whole.is_empty():
            continue
        whole.append(run_pieces.whole.with_columns(pl.col("piece") + count))
        inside.append(run_pieces.at.with_columns(pl.col("piece") + count))
        peaks.append(run_pieces.peaks)
        count += run_pieces.whole.height
    if not whole:
        return pieces.RunPieces(pl.DataFrame(), pl.DataFrame(), pl.DataFrame()), []
    facts = chosen.devices.select(
        "number", "weight", "gpu_model", instance=pl.col("parent").is_not_null()
    )
    cut = pl.concat(whole).join(facts, on="number", maintain_order="left")
    cut = cut.with_columns(gpus=pl.col("share") * pl.col("weight"))
    histograms = np.cumsum(taught, axis=0)
    bands = [dict(power_band.learn_band(models, histograms[k])) for k in range(len(at))]
    return pieces.RunPieces(cut, pl.concat(inside), pl.concat(peaks)), bands


def _read_bands(views: Views, times: Sequence[datetime], learned: Bands) -> Bands:
    """Return the bands that accounting had written by each time, else those learned here.

    A live verdict and the replay of its time read the same rows, whatever their windows are.
    """
    if not learned:
        return learned
    bands: list[dict[str, IdleBand]] = [{**by_model} for by_model in learned]
    for row in read_idle_power(views, times):
        bands[row.k][row.gpu_model] = IdleBand(row.band_w, row.band, 0)
    return bands


def _compute_owner_times(chosen: source.SampleQuery, merged: pl.DataFrame) -> pl.DataFrame:
    """Return `slack_us` and `least_us` by owner: from the longest interval of its own devices.

    A slow cluster, or one slow exporter, does not keep the stretches of others open, and its own
    are judged from `LEAST_SAMPLES` of its samples on.
    """
    intervals = chosen.devices.select("number", "interval_s")
    devices = merged.select("owner", "number").unique().join(intervals, on="number", how="left")
    slack_s = pl.max_horizontal(pl.lit(float(SLACK_S)), 2 * pl.col("interval_s").max())
    least_s = source.LEAST_SAMPLES * pl.col("interval_s").max().fill_null(0)
    return devices.group_by("owner").agg(
        slack_us=(slack_s * MICRO).round().cast(pl.Int64),
        least_us=(least_s * MICRO).round().cast(pl.Int64),
    )


def _drop_short_rows(rows: pl.DataFrame, owner_times: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that last at least as long as their owner's devices allow to judge."""
    least = owner_times.select("owner", "least_us")
    both = rows.join(least, on="owner", how="left", maintain_order="left")
    return both.filter(pl.col("end") - pl.col("start") >= pl.col("least_us")).select(rows.columns)


def _sum_devices(
    rows: pl.DataFrame, members: pl.DataFrame, bands: Bands, settings: IdleSettings
) -> pl.DataFrame:
    """Add the sums over the devices of each row."""
    named = members.drop("span", "k").rename({"row": "span"})
    devices = sum_by_device(named).join(rows.select(span="row", k="k"), on="span")
    devices = flags.add_physics(devices, bands, settings.power_margin_w)
    summed = rows.join(sum_by_stretch(devices).rename({"span": "row"}), on="row")
    # All devices of an idle workload are idle: devices allocated later are not counted.
    whole = pl.col("state") == "idle"
    return summed.with_columns(
        devices=pl.when(whole)
        .then(pl.col("numbers").list.len().cast(pl.Int64))
        .otherwise("devices")
    )


def _add_holders(
    rows: pl.DataFrame, stretch_holds: pl.DataFrame, holds: pl.DataFrame, settings: IdleSettings
) -> pl.DataFrame:
    """Add the owner of each row, and whether its allocations are estimated or divided."""
    owners = holds.unique("owner", maintain_order=True).select("owner", *spans.WORKLOAD)
    teams = holds.select("owner", "team", since="start").sort("since")
    guessed = stretch_holds.filter(pl.col("attribution") == "estimated")["span"].unique()
    doubtful = rows.filter(pl.col("span").is_in(guessed.implode())).select(
        "row", "span", "start", "end"
    )
    times = stretch_holds.select("span", "attribution", begin="start", finish="end")
    both = doubtful.join(times, on="span").with_columns(
        overlap=pl.min_horizontal("end", "finish") - pl.max_horizontal("start", "begin")
    )
    both = both.filter(pl.col("overlap") > 0)
    estimated = (pl.col("overlap") * (pl.col("attribution") == "estimated")).sum()
    unsure = both.group_by("row").agg(
        # An uncertain minute does not make a whole night uncertain.
        estimated=estimated > (1 - settings.coverage) * pl.col("overlap").sum()
    )
    spread = stretch_holds.filter(pl.col("rule") == SPREAD)["span"].unique()
    return (
        rows.join(owners, on="owner", how="left")
        .sort("end")
        .join_asof(
            teams,
            left_on="end",
            right_on="since",
            by="owner",
            allow_exact_matches=False,
            check_sortedness=False,
        )
        .sort("row")
        .drop("since")
        .join(unsure, on="row", how="left")
        .with_columns(
            pl.col("estimated").fill_null(False), spread=pl.col("span").is_in(spread.implode())
        )
    )


def _number_cases(
    rows: pl.DataFrame, judgements: Sequence[tuple[IdleSignals, Judgement]]
) -> pl.DataFrame:
    """Number the cases of all rows, and mark the changes in them."""
    verdicts = pl.DataFrame(
        {
            "judgement": range(len(judgements)),
            "verdict": [j.verdict for _, j in judgements],
            "evidence": [j.evidence for _, j in judgements],
            "actionable": [j.actionable for _, j in judgements],
            "certainty": [
                compute_confidence(
                    signals,
                    coverage=1.0,
                    exact=not signals.shared_estimated,
                    evidence=j.evidence or "suspected",
                )
                for signals, j in judgements
            ],
        },
        schema={
            "judgement": pl.Int64, "verdict": pl.String, "evidence": pl.String,
            "actionable": pl.Boolean, "certainty": pl.Float64,
        },
    )  # fmt: skip
    rows = rows.join(verdicts, on="judgement", how="left").with_columns(
        confidence=(pl.col("coverage").clip(0, 1) * pl.col("certainty")).round(4),
        gpu_hours=(pl.col("gpu_us") / (3600 * MICRO)).round(6),
        mark=pl.struct(
            "judgement", unknown=pl.col("wanted").is_null(), late=pl.col("at") - pl.col("end")
        )
        .rank("dense")
        .cast(pl.Int64),
        coverage=pl.col("coverage").round(4),
        case=pl.struct("span", "start", "kind").rank("dense").cast(pl.Int64) - 1,
    )
    return rows.sort("case", "k").select(
        pl.col(name).cast(kind, strict=False) for name, kind in SCHEMA.items()
    )


def _convert_seconds(seconds: float) -> int:
    return round(seconds * MICRO)

"""The one judge of idleness: what is known of each idle stretch at each of some times.

    allocation, sample ─► idle runs ─► pieces, summed up to each time ─► stretches of workloads
         (samples.py, runs.py)              (pieces.py)                     (stretches.py)
      ─► parts without activity beside the devices ─► signals and vetoes ─► verdicts
                    (parts.py)                            (flags.py)        (evidence.py)

A live verdict is the same at one time: the window's end. An idle stretch only grows: what began
at `s` is, at `t`, `[s, t)`. So samples are read once, each sum is taken at every time, and what
was known at a time rests on rows of before it. The judge is a pure function of tables, the window,
the times and a bucket of workloads.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import numpy as np
import polars as pl

from analyzers.idle import (
    flags,
    history,
    parts,
    pieces,
    pods,
    spans,
    stretches,
    wanted,
)
from analyzers.idle import samples as source
from analyzers.idle.evidence import Judgement, Signals, confidence
from analyzers.idle.findings import Case, finding, made, subject
from analyzers.idle.holders import SPREAD, Bucket, holders, overlapping
from analyzers.idle.prices import Meter
from analyzers.idle.signals import by_device, by_stretch
from analyzers.queries import sql
from fallow.errors import UsageError
from fallow.nouns import Finding
from fallow.seams import Views
from fallow.settings import IdleSettings
from fallow.window import Window
from warehouse.signals import frozen, power_band
from warehouse.signals.power_band import Band
from warehouse.signals.runs import MICRO, Ints, idle_runs

PARTLY_S = 1800
"""Ranks idle this long while others compute are a finding.

Source: telemetry-and-waste.md#idle, multi-GPU.
"""

SLACK_S = 600
"""What ended longer before a time is over: two samples, and never less than two buckets."""

Bands = Sequence[Mapping[str, Band]]
"""Idle power by GPU model, for each time."""

SCHEMA: dict[str, Any] = {
    "case": pl.Int64, "k": pl.Int64, "mark": pl.Int64, "cluster": pl.String,
    "namespace": pl.String, "workload_kind": pl.String, "workload": pl.String, "team": pl.String,
    "kind": pl.String, "evidence": pl.String, "actionable": pl.Boolean, "confidence": pl.Float64,
    "coverage": pl.Float64,
    "gpu_hours": pl.Float64, "usd": pl.Float64, "start": pl.Int64, "end": pl.Int64,
    "at": pl.Int64, "state": pl.String, "verdict": pl.String,
    "gpu_us": pl.Float64, "looks": pl.Int64, "devices": pl.Int64, "power_w": pl.Float64,
    "band_w": pl.Float64, "band": pl.String, "processes": pl.Float64, "idle_clock": pl.Float64,
    "kernel_age_s": pl.Float64, "numbers": pl.List(pl.Int64), "judgement": pl.Int64,
    "gap": pl.String, "longest_rest_us": pl.Int64, "wanted": pl.Float64,
    "exposures": pl.Int64, "returns": pl.Int64, "own_days": pl.Int64, "own_returns": pl.Int64,
}  # fmt: skip
"""A row per stretch and time: `fallow.seams.Past.rows`, and what a finding shows besides."""


class Judged(msgspec.Struct, frozen=True):
    """Every stretch at every time (`rows`, the columns of `SCHEMA`), with its verdict."""

    rows: pl.DataFrame
    judgements: tuple[tuple[Signals, Judgement], ...]
    devices: tuple[dict[str, Any], ...]
    read_from: str
    """`sample` or `rollup_5m`."""

    def case(self, row: Mapping[str, Any]) -> Case:
        """Return a row as a case, judged."""
        signals, judgement = self.judgements[row["judgement"]]
        devices = [self.devices[n] for n in row["numbers"]]
        return made(
            row,
            subject(row, devices),
            signals,
            judgement,
            kind=row["kind"],
            devices=[d["device"] for d in devices],
            usd=row["usd"],
            source=self.read_from,
        )

    def finding(self, row: Mapping[str, Any], settings: IdleSettings) -> Finding:
        """Return the finding of a row with evidence."""
        return finding(self.case(row), settings)


def judge(
    views: Views,
    window: Window,
    times: Sequence[datetime],
    settings: IdleSettings,
    *,
    over: bool = False,
    bucket: Bucket | None = None,
    bands: Bands | None = None,
) -> Judged:
    """Return what was known at each time of the idle stretches that lasted until then.

    With `over`, of stretches that are over as well, of each part of them, and of workloads of
    which only some devices idle. Times are equally far apart; where samples are too many and
    five-minute rollups are read, they should be multiples of five minutes. `bucket`: only these
    workloads; `bands`: the fleet's idle power at each time, learned from the bucket where not
    given.

    Raises:
        UsageError: the times are not equally far apart.
    """
    at = np.array([round(t.timestamp() * MICRO) for t in times], dtype=np.int64)
    if len(at) > 2 and len(set(np.diff(at))) > 1:  # noqa: PLR2004
        raise UsageError("the times of a replay must be equally far apart")
    chosen = source.plan(views, window, settings, (bucket or Bucket()).parameters())
    nothing = Judged(
        pl.DataFrame(schema=SCHEMA), (), tuple(chosen.devices.to_dicts()), chosen.source
    )
    holds = holders(views, window, chosen, bucket or Bucket())
    if holds.is_empty() or not len(at):
        return nothing
    merged = spans.merged_holds(holds)
    cut, learned = _scan(views, chosen, merged, at, settings)
    if cut.whole.is_empty():
        return nothing
    least = {"idle": _us(settings.min_duration.total_seconds()), "partly idle": _us(PARTLY_S)}
    slack = None if over else _us(_slack(chosen))
    found = stretches.stretches(cut.whole, merged, least if over else {"idle": least["idle"]})
    found = stretches.beside_busy(views, chosen, found, cut.whole, merged)
    members = stretches.members(found, cut.whole)
    rows = stretches.at_times(found, members, cut.at, at, least=least, slack_us=slack)
    held = overlapping(found.select("span", "owner", "start", "end"), holds)
    held = held.filter(pl.col("span").is_in(rows["span"].unique().implode()))
    repeats = members.join(cut.whole.filter("repeats").select("piece"), on="piece", how="semi")
    activity = pl.concat([parts.activity(views, window, held, settings), parts.repeats(repeats)])
    rows = parts.parted(rows, activity, least_us=least["idle"], slack_us=slack)
    if rows.is_empty():
        return nothing
    rows = rows.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    inside = stretches.pieces_of(rows, members, cut.whole, cut.at)
    rows = _sum(rows, inside, _known(views, window, learned) if bands is None else bands, settings)
    rows = rows.join(Meter(views, window, chosen.devices).dollars(inside), on="row", how="left")
    rows = _with_holders(rows, held, holds, settings)
    rests = history.rests(views, window, chosen, cut.whole, merged, holds, rows, settings)
    rows = history.with_history(rows, rests)
    rows = pods.with_signals(views, window, rows, held, at, settings)
    lasts = _us(_slack(chosen))
    rows = wanted.with_wanted(views, window, rows, settings, lasts_us=lasts)
    rows, judgements = flags.judged(rows)
    return msgspec.structs.replace(
        nothing, rows=_marked(rows, judgements), judgements=tuple(judgements)
    )


def _scan(
    views: Views, chosen: source.Plan, merged: pl.DataFrame, at: Ints, settings: IdleSettings
) -> tuple[pieces.Pieces, Bands]:
    """Read the samples once: pieces of idle runs by holder, and the idle power they teach."""
    models = sorted(set(chosen.devices["gpu_model"].drop_nulls()))
    number = {name: n for n, name in enumerate(models)}
    model_of = np.array([number.get(m, -1) for m in chosen.devices["gpu_model"]], dtype=np.int64)
    model_of[chosen.devices["parent"].is_not_null().to_numpy()] = -1
    held_from = np.zeros(chosen.devices.height, dtype=np.int64)
    first = merged.group_by("number").agg(pl.col("start").min())
    held_from[first["number"].to_numpy()] = first["start"].to_numpy()
    shortest = min(settings.min_duration.total_seconds(), PARTLY_S)
    taught: Any = 0
    whole, inside, count = [], [], 0
    for read in source.parts(views, chosen, settings):
        if not len(read):
            continue
        samples = msgspec.structs.replace(read, still=frozen.classify(read))
        taught = taught + pieces.taught(samples, model_of, held_from, len(models), at)
        runs = idle_runs(samples, exit_samples=settings.exit_samples, shortest_s=shortest)
        if not len(runs):
            continue
        found = pieces.pieces(samples, runs, merged, at, shortest_s=shortest)
        if found.whole.is_empty():
            continue
        whole.append(found.whole.with_columns(pl.col("piece") + count))
        inside.append(found.at.with_columns(pl.col("piece") + count))
        count += found.whole.height
    if not whole:
        return pieces.Pieces(pl.DataFrame(), pl.DataFrame()), []
    facts = chosen.devices.select(
        "number", "weight", "gpu_model", instance=pl.col("parent").is_not_null()
    )
    cut = pl.concat(whole).join(facts, on="number", maintain_order="left")
    cut = cut.with_columns(gpus=pl.col("share") * pl.col("weight"))
    known = np.cumsum(taught, axis=0)
    bands = [dict(power_band.learn(models, known[k])) for k in range(len(at))]
    return pieces.Pieces(cut, pl.concat(inside)), bands


def _known(views: Views, window: Window, learned: Bands) -> Bands:
    """Return the bands that the accounting step wrote at the window's end, else those learned here.

    Of the past each time has the band that was learned until then.
    """
    if len(learned) != 1:
        return learned
    written = views.query(sql("idle/bands"), window.bounds()).to_pylist()
    bands = {r["gpu_model"]: Band(r["band_w"], r["band"], 0) for r in written}
    return [{**learned[0], **bands}]


def _slack(chosen: source.Plan) -> float:
    interval = chosen.devices["interval_s"].max()
    return max(SLACK_S, 2 * interval) if isinstance(interval, float) else SLACK_S


def _sum(
    rows: pl.DataFrame, members: pl.DataFrame, bands: Bands, settings: IdleSettings
) -> pl.DataFrame:
    """Add what the devices of each row showed."""
    named = members.drop("span", "k").rename({"row": "span"})
    devices = by_device(named).join(rows.select(span="row", k="k"), on="span")
    devices = flags.with_physics(devices, bands, settings.power_margin_w)
    found = rows.join(by_stretch(devices).rename({"span": "row"}), on="row")
    # Of an idle workload all devices idle: those that it was given later are no part of this time.
    whole = pl.col("state") == "idle"
    return found.with_columns(
        devices=pl.when(whole)
        .then(pl.col("numbers").list.len().cast(pl.Int64))
        .otherwise("devices")
    )


def _with_holders(
    rows: pl.DataFrame, held: pl.DataFrame, holds: pl.DataFrame, settings: IdleSettings
) -> pl.DataFrame:
    """Add the owner of each row, and whether its devices' holders are guessed or spread."""
    owners = holds.unique("owner", maintain_order=True).select("owner", *spans.WORKLOAD, "team")
    guessed = held.filter(pl.col("attribution") == "estimated")["span"].unique()
    doubtful = rows.filter(pl.col("span").is_in(guessed.implode())).select(
        "row", "span", "start", "end"
    )
    times = held.select("span", "attribution", begin="start", finish="end")
    both = doubtful.join(times, on="span").with_columns(
        overlap=pl.min_horizontal("end", "finish") - pl.max_horizontal("start", "begin")
    )
    both = both.filter(pl.col("overlap") > 0)
    estimated = (pl.col("overlap") * (pl.col("attribution") == "estimated")).sum()
    unsure = both.group_by("row").agg(
        # What was uncertain for a minute is certain enough for a night.
        estimated=estimated > (1 - settings.coverage) * pl.col("overlap").sum()
    )
    spread = held.filter(pl.col("rule") == SPREAD)["span"].unique()
    return (
        rows.join(owners, on="owner", how="left")
        .join(unsure, on="row", how="left")
        .with_columns(
            pl.col("estimated").fill_null(False), spread=pl.col("span").is_in(spread.implode())
        )
    )


def _marked(rows: pl.DataFrame, judgements: Sequence[tuple[Signals, Judgement]]) -> pl.DataFrame:
    """Number the cases of all rows, and mark what changes about them."""
    known = pl.DataFrame(
        {
            "judgement": range(len(judgements)),
            "verdict": [j.verdict for _, j in judgements],
            "evidence": [j.evidence for _, j in judgements],
            "actionable": [j.actionable for _, j in judgements],
            "certainty": [
                confidence(
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
    rows = rows.join(known, on="judgement", how="left").with_columns(
        confidence=(pl.col("coverage").clip(0, 1) * pl.col("certainty")).round(4),
        gpu_hours=(pl.col("gpu_us") / (3600 * MICRO)).round(6),
        mark=pl.struct("judgement", "wanted", late=pl.col("at") - pl.col("end"))
        .rank("dense")
        .cast(pl.Int64),
        coverage=pl.col("coverage").round(4),
        case=pl.struct("span", "start", "kind").rank("dense").cast(pl.Int64) - 1,
    )
    return rows.sort("case", "k").select(
        pl.col(name).cast(kind, strict=False) for name, kind in SCHEMA.items()
    )


def _us(seconds: float) -> int:
    return round(seconds * MICRO)

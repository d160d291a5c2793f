"""The idle analyzer's past: what `find` would have returned at each moment, a finding on demand."""

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from analyzers import looks as source
from analyzers import power_band, spans
from analyzers.cases import finding, made, subject
from analyzers.evidence import Judgement, Witnesses, confidence
from analyzers.idle import PARTLY_S, SPREAD, holders, overlapping, weighed
from analyzers.power_band import Band
from analyzers.replay import rest, said, stretches, sums, witnessing
from analyzers.replay.pricing import Meter
from analyzers.runs import MICRO, Ints, idle_runs
from analyzers.witnesses import by_device, by_stretch
from fallow.errors import UsageError
from fallow.nouns import Finding
from fallow.seams import Views
from fallow.settings import IdleSettings
from fallow.window import Window

SLACK_S = 600
"""What ended longer before a moment is over: two looks, and never less than two buckets."""

_EMPTY = {
    "case": pl.Int64, "k": pl.Int64, "mark": pl.Int64, "cluster": pl.String,
    "namespace": pl.String, "workload_kind": pl.String, "workload": pl.String, "team": pl.String,
    "kind": pl.String, "evidence": pl.String, "actionable": pl.Boolean, "confidence": pl.Float64,
    "coverage": pl.Float64,
    "gpu_hours": pl.Float64, "usd": pl.Float64, "start": pl.Int64, "end": pl.Int64,
}  # fmt: skip


_SEEN = (
    "gpu_us", "looks", "devices", "power_w", "band_w", "band", "processes", "idle_clock",
    "kernel_age_s", "numbers", "verdict",
)  # fmt: skip
"""What a finding tells besides: the columns of `by_stretch` that `cases.made` reads."""


class IdlePast:
    """What was known of each idle workload at each moment."""

    def __init__(
        self,
        rows: pl.DataFrame,
        verdicts: Sequence[tuple[Witnesses, Judgement]],
        devices: Sequence[dict[str, Any]],
        read_from: str,
        settings: IdleSettings,
    ) -> None:
        self._rows, self._verdicts, self._devices = rows, verdicts, devices
        self._from, self._settings = read_from, settings

    @cached_property
    def rows(self) -> pa.Table:
        """Return a row per finding and moment (`k`): see `fallow.seams.Past`."""
        return self._rows.select(list(_EMPTY)).to_arrow()

    def finding(self, row: int) -> Finding:
        """Return the finding of a row, as `find` would have returned it then."""
        told = self._rows.row(row, named=True)
        seen, judgement = self._verdicts[told["verdict"]]
        devices = [self._devices[n] for n in told["numbers"]]
        case = made(
            told,
            subject(told, devices),
            seen,
            judgement,
            kind=told["kind"],
            devices=[d["device"] for d in devices],
            usd=told["usd"],
            source=self._from,
        )
        return finding(case, self._settings)


def past(
    views: Views, window: Window, moments: Sequence[datetime], settings: IdleSettings
) -> IdlePast:
    """Return what was known at each moment of the idle stretches that lasted until then.

    At moment `t` it is what `IdleAnalyzer.find` returns for `Window(window.start, t)`, of whole
    workloads at rest (no single ranks) whose stretch reaches to `t` but for the slack. Moments
    are equally far apart. Where many rows are read from rollups, they should be multiples of
    five minutes: a bucket tells of all of its looks.

    Differences, all of them in what `t` did not know better: inventory (owner, annotations) is
    today's, nodes were ready unless an event says not, a device's floor of PCIe traffic is the
    least it had shown by each look.

    Raises:
        UsageError: the moments are not equally far apart.
    """
    at = np.array([round(m.timestamp() * MICRO) for m in moments], dtype=np.int64)
    if len(at) > 2 and len(set(np.diff(at))) > 1:  # noqa: PLR2004
        raise UsageError("the moments of a replay must be equally far apart")
    chosen = source.plan(views, window, settings)
    devices = chosen.devices.to_dicts()
    holds = holders(views, window, chosen)
    if holds.is_empty() or not len(at):
        return _nothing(devices, chosen.source, settings)
    merged = spans.merged_holds(holds)
    pieces, bands = _scan(views, chosen, merged, at, settings)
    if pieces.whole.is_empty():
        return _nothing(devices, chosen.source, settings)
    least = stretches.microseconds(settings.min_duration.total_seconds())
    slack = stretches.microseconds(_slack(chosen))
    found = stretches.stretches(pieces.whole, merged, least)
    made_of = stretches.members(found, pieces.whole)
    rows = stretches.at_moments(found, made_of, pieces.at, at, least_us=least, slack_us=slack)
    held = overlapping(found, holds)
    held = held.filter(pl.col("span").is_in(rows["span"].unique().implode()))
    rows = rest.parted(views, window, rows, held, least_us=least, slack_us=slack)
    if rows.is_empty():
        return _nothing(devices, chosen.source, settings)
    rows = rows.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    members = stretches.pieces_of(rows, made_of, pieces.whole, pieces.at)
    told = _summed(rows, members, bands, settings)
    told = told.join(Meter(views, window, chosen.devices).dollars(members), on="row", how="left")
    told = _held(told, held, holds, settings)
    told = _witnessed(views, window, told, held, at, settings)
    told, verdicts = witnessing.judged(told)
    return IdlePast(_marked(told, verdicts), verdicts, devices, chosen.source, settings)


def _scan(
    views: Views, chosen: source.Plan, merged: pl.DataFrame, at: Ints, settings: IdleSettings
) -> tuple[sums.Pieces, list[dict[str, Band]]]:
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
    for looks in source.parts(views, chosen, settings):
        if not len(looks):
            continue
        taught = taught + sums.taught(looks, model_of, held_from, len(models), at)
        runs = idle_runs(looks, exit_samples=settings.exit_samples, shortest_s=shortest)
        if not len(runs):
            continue
        found = sums.pieces(looks, runs, merged, at, shortest_s=shortest)
        if found.whole.is_empty():
            continue
        whole.append(found.whole.with_columns(pl.col("piece") + count))
        inside.append(found.at.with_columns(pl.col("piece") + count))
        count += found.whole.height
    if not whole:
        return sums.Pieces(pl.DataFrame(), pl.DataFrame()), []
    cut = weighed(pl.concat(whole), chosen)
    known = np.cumsum(taught, axis=0)
    bands = [dict(power_band.learn(models, known[k])) for k in range(len(at))]
    return sums.Pieces(cut, pl.concat(inside)), bands


def _slack(chosen: source.Plan) -> float:
    interval = chosen.devices["interval_s"].max()
    return max(SLACK_S, 2 * interval) if isinstance(interval, float) else SLACK_S


def _summed(
    rows: pl.DataFrame, members: pl.DataFrame, bands: list[dict[str, Band]], settings: IdleSettings
) -> pl.DataFrame:
    named = members.drop("span", "k").rename({"row": "span"})
    devices = by_device(named).join(rows.select(span="row", k="k"), on="span")
    devices = witnessing.with_physics(devices, bands, settings.power_margin_w)
    return rows.join(by_stretch(devices).rename({"span": "row"}), on="row")


def _held(
    rows: pl.DataFrame, held: pl.DataFrame, holds: pl.DataFrame, settings: IdleSettings
) -> pl.DataFrame:
    """Add whose rows are, and whether holders are guessed or spread."""
    owners = holds.unique("owner", maintain_order=True).select("owner", *spans.WORKLOAD, "team")
    guessed = held.filter(pl.col("attribution") == "estimated")["span"].unique()
    doubtful = rows.filter(pl.col("span").is_in(guessed.implode())).select(
        "row", "span", "start", "end"
    )
    parts = held.select("span", "attribution", begin="start", finish="end")
    both = doubtful.join(parts, on="span").with_columns(
        overlap=pl.min_horizontal("end", "finish") - pl.max_horizontal("start", "begin")
    )
    both = both.filter(pl.col("overlap") > 0)
    estimated = (pl.col("overlap") * (pl.col("attribution") == "estimated")).sum()
    unsure = both.group_by("row").agg(
        estimated=estimated > (1 - settings.coverage) * pl.col("overlap").sum()
    )
    spread = held.filter(pl.col("rule") == SPREAD)["span"].unique()
    return (
        rows.join(owners, on="owner", how="left")
        .join(unsure, on="row", how="left")
        .with_columns(
            pl.col("estimated").fill_null(False),
            spread=pl.col("span").is_in(spread.implode()),
            state=pl.lit("idle"),
            devices=pl.col("numbers").list.len(),
        )
    )


def _witnessed(  # noqa: PLR0917  (one caller)
    views: Views,
    window: Window,
    rows: pl.DataFrame,
    held: pl.DataFrame,
    at: Ints,
    settings: IdleSettings,
) -> pl.DataFrame:
    named = said.numbered(held)
    pods = said.pods_of(rows, named)
    known = said.inventory(views, named["pod_uid"].unique().to_list())
    facts = pl.DataFrame(
        [_pod(uid, known.get(uid)) for uid in named["pod_uid"].unique(maintain_order=True)],
        schema=_POD,
        infer_schema_length=None,
    )
    facts = named.select("held", "pod_uid").join(facts, on="pod_uid")
    each = pods.select("row", "held").join(facts, on="held")
    summed = each.group_by("row").agg(
        known=pl.len().cast(pl.Int64),
        started_us=pl.col("started_us").max(),
        pending=pl.col("pending").all(),
        unresolved=pl.col("unresolved").any(),
        hard=pl.col("hard").any(),
        soft=pl.col("soft").any(),
        cores=pl.col("cores").mean(),
    )
    host, book = said.hosts(views, window, pods, named, at)
    away = said.unready(views, window, pods, facts.select("held", "cluster", "node"), at)
    return witnessing.flags(
        rows, settings, pods=summed, host=host, book=book, unready=away, until_us=pl.col("at")
    )


_POD = {
    "pod_uid": pl.String, "cluster": pl.String, "node": pl.String, "started_us": pl.Int64,
    "pending": pl.Boolean, "unresolved": pl.Boolean, "hard": pl.Boolean, "soft": pl.Boolean,
    "cores": pl.Float64,
}  # fmt: skip


def _pod(uid: str, pod: dict[str, Any] | None) -> dict[str, Any]:
    told = pod or {}
    return {
        "pod_uid": uid,
        "cluster": told.get("cluster"),
        "node": told.get("node"),
        "started_us": told.get("started_us"),
        "pending": told.get("phase") == "Pending",
        "unresolved": told.get("workload_kind") is None,
        "hard": bool(told.get("hard")),
        "soft": bool(told.get("soft")),
        "cores": (told.get("cpu_request_milli") or 1000) / 1000,
    }


def _marked(rows: pl.DataFrame, verdicts: Sequence[tuple[Witnesses, Judgement]]) -> pl.DataFrame:
    """Keep the rows that are findings; number the cases, and mark what changes about them."""
    told = pl.DataFrame(
        {
            "verdict": range(len(verdicts)),
            "evidence": [j.evidence for _, j in verdicts],
            "actionable": [j.actionable for _, j in verdicts],
            "sure": [
                confidence(
                    w, coverage=1.0, exact=not w.shared_estimated, evidence=j.evidence
                )
                for w, j in verdicts
            ],
        },
        schema={
            "verdict": pl.Int64, "evidence": pl.String, "actionable": pl.Boolean,
            "sure": pl.Float64,
        },
    )  # fmt: skip
    found = rows.join(told, on="verdict", how="left").filter(pl.col("evidence").is_not_null())
    found = found.with_columns(
        confidence=(pl.col("coverage").clip(0, 1) * pl.col("sure")).round(4),
        gpu_hours=(pl.col("gpu_us") / (3600 * MICRO)).round(6),
        mark=pl.struct("verdict", late=pl.col("at") - pl.col("end")).rank("dense").cast(pl.Int64),
        coverage=pl.col("coverage").round(4),
        case=pl.struct("span", "start", "kind").rank("dense").cast(pl.Int64) - 1,
    )
    return found.sort("case", "k").select(*_EMPTY, *_SEEN)


def _nothing(devices: Sequence[dict[str, Any]], read_from: str, settings: IdleSettings) -> IdlePast:
    return IdlePast(pl.DataFrame(schema=_EMPTY), (), devices, read_from, settings)

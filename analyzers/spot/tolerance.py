"""What a workload has shown of its patience with interruptions: owner, restarts, checkpoints."""

import csv
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec
import polars as pl

from analyzers.queries import sql
from analyzers.spot.market import bounds
from fallow.errors import UsageError
from fallow.seams import Views
from fallow.settings import SpotSettings
from fallow.window import Window, parse_duration

Tolerance = Literal["retried", "replicated", "never", "unknown"]
WORKLOAD = ["cluster", "namespace", "workload_kind", "workload"]
Owner = tuple[str, str, str, str]
OVERLAP_S = 300.0
"""A pod that begins so long before another ends may still replace it: inventories are late."""
RESUMED_S = 3600.0
"""A restart is survived when what follows runs for so long."""
LEAST_BURSTS, MOST_WRITING = 3, 0.3
"""Fewer bursts, or writing for more of the time, show no checkpoints."""
REGULAR = 0.3
"""Gaps whose 90th percentile is no more than this above the median are regular."""
LOCAL, CLAIMS = "fallow.local-volumes", "fallow.pvcs"
FORBIDS = {
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}
INTERVAL, DEADLINE, WORK = (
    "fallow.dev/checkpoint-interval",
    "fallow.dev/deadline",
    "fallow.dev/work-hours",
)
"""What owners may say: `30m`; RFC 3339; hours of work that are left when the pod starts."""


class Checkpoints(msgspec.Struct, frozen=True):
    """Work between two saved states, at most, and who says so."""

    interval_h: float
    source: Literal["annotation", "writes"]
    write_s: float | None = None
    bursts: int | None = None
    regular: bool = True


class Signals(msgspec.Struct, frozen=True):
    """What the window shows of one workload."""

    tolerance: Tolerance
    owner: str
    replicas: int
    """Most pods at once."""
    nodes: int
    """Most nodes at once: as many can be taken back."""
    pods: int
    run_hours: float
    """Longest life of one pod."""
    ended: bool
    """Did any of its pods end by itself?"""
    restarts_survived: int
    checkpoints: Checkpoints | None
    local_volumes: tuple[str, ...]
    claims: tuple[str, ...]
    forbidden: str | None
    start: datetime
    """Of its first pod that the window touches."""
    deadline: datetime | None
    work_hours: float | None
    misread: tuple[str, ...] = ()


def read(views: Views, window: Window, settings: SpotSettings) -> dict[Owner, Signals]:
    """Return the signals of every workload whose pods ask for GPUs."""
    pods = pl.DataFrame(views.query(sql("spot/pods"), bounds(window)))
    if pods.is_empty():
        return {}
    asked = {**bounds(window), "burst_bps": settings.burst_bps}
    bursts = pl.DataFrame(views.query(sql("spot/bursts"), asked))
    written = _written(pods, bursts)
    crowds = _crowds(pods)
    survived = _survived(pods)
    facts = pods.group_by(WORKLOAD, maintain_order=True).agg(
        pods=pl.len(),
        on_nodes=pl.col("node").n_unique(),
        run_hours=((pl.col("end") - pl.col("start")).dt.total_seconds() / 3600).max(),
        ended=(pl.col("phase") == "Succeeded").any(),
        start=pl.col("start").min(),
        annotations=pl.col("annotations").drop_nulls().unique(),
    )
    found: dict[Owner, Signals] = {}
    for row in facts.iter_rows(named=True):
        owner: Owner = tuple(row[name] for name in WORKLOAD)
        tolerance, why = _tolerances().get(row["workload_kind"], ("unknown", ""))
        said = _merged(row["annotations"])
        misread: list[str] = []
        found[owner] = Signals(
            tolerance=tolerance,
            owner=why,
            replicas=crowds.get(owner, 1),
            nodes=min(crowds.get(owner, 1), row["on_nodes"]),
            pods=row["pods"],
            run_hours=row["run_hours"],
            ended=row["ended"],
            restarts_survived=survived.get(owner, 0),
            checkpoints=_told(said, misread) or written.get(owner),
            local_volumes=tuple(said.get(LOCAL, ())),
            claims=tuple(said.get(CLAIMS, ())),
            forbidden=next((k for k, v in FORBIDS.items() if str(said.get(k)).lower() == v), None),
            start=row["start"].replace(tzinfo=UTC),
            deadline=_moment(said, misread),
            work_hours=_number(said, misread),
            misread=tuple(misread),
        )
    return found


def _crowds(pods: pl.DataFrame) -> dict[Owner, int]:
    """Return the most pods of each workload that lived at once."""
    steps = pl.concat(
        [
            pods.select(*WORKLOAD, at="start", step=pl.lit(1)),
            pods.select(*WORKLOAD, at="end", step=pl.lit(-1)),
        ]
    ).sort(*WORKLOAD, "at", "step")
    most = steps.with_columns(n=pl.col("step").cum_sum().over(WORKLOAD)).group_by(WORKLOAD)
    return {row[:4]: int(row[4]) for row in most.agg(pl.col("n").max()).iter_rows()}


def _survived(pods: pl.DataFrame) -> dict[Owner, int]:
    """Count the pods that ended without success and whose workload then ran on with another."""
    cut = pods.filter(pl.col("ended").is_not_null() & (pl.col("phase") != "Succeeded"))
    after = pods.filter((pl.col("end") - pl.col("start")).dt.total_seconds() >= RESUMED_S)
    both = cut.select(*WORKLOAD, "pod", cut_at="ended").join(
        after.select(*WORKLOAD, begun="start"), on=WORKLOAD
    )
    later = both.filter(pl.col("begun") >= pl.col("cut_at") - timedelta(seconds=OVERLAP_S))
    times = later.group_by(WORKLOAD).agg(pl.col("cut_at").n_unique())
    return {row[:4]: int(row[4]) for row in times.iter_rows()}


def _written(pods: pl.DataFrame, loud: pl.DataFrame) -> dict[Owner, Checkpoints]:
    """Return how far apart each workload's bursts of writing are, by the pod that has most.

    Looks that are far apart miss some, so that gaps are rather too long; what is written all the
    time is no checkpoint.
    """
    since = pl.col("at_s") - pl.col("at_s").shift(1).over("who")
    each = (
        loud.sort("who", "at_s")
        .with_columns(fresh=since.is_null() | (since > 1.5 * pl.col("interval_s")))
        .with_columns(loud_s=pl.col("interval_s").sum().over("who"))
        .with_columns(span_s=(pl.col("at_s").last() - pl.col("at_s").first()).over("who"))
        .filter("fresh")
        .with_columns(gap=pl.col("at_s") - pl.col("at_s").shift(1).over("who"))
        .group_by("who")
        .agg(
            pl.len().alias("bursts"),
            pl.col("gap").median().alias("gap_s"),
            pl.col("gap").quantile(0.9, "linear").alias("long_gap_s"),
            (pl.col("loud_s").first() / pl.len()).alias("write_s"),
            (pl.col("loud_s").first() / pl.col("span_s").first()).alias("share"),
        )
        .filter((pl.col("bursts") >= LEAST_BURSTS) & (pl.col("share") <= MOST_WRITING))
    )
    best = (
        pods.select(*WORKLOAD, "pod", "who")
        .unique()
        .join(each, on="who")
        .sort("bursts", "pod", descending=[True, False])
        .unique(WORKLOAD, keep="first", maintain_order=True)
    )
    return {
        tuple(row[name] for name in WORKLOAD): Checkpoints(
            interval_h=row["long_gap_s"] / 3600,
            source="writes",
            write_s=row["write_s"],
            bursts=row["bursts"],
            regular=row["long_gap_s"] <= (1 + REGULAR) * row["gap_s"],
        )
        for row in best.iter_rows(named=True)
    }


def _merged(texts: Sequence[str]) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for text in sorted(texts):
        noted = msgspec.json.decode(text)
        for name in (LOCAL, CLAIMS):
            noted[name] = sorted({*said.get(name, ()), *noted.get(name, ())})
        said |= noted
    return said


def _told(said: Mapping[str, Any], misread: list[str]) -> Checkpoints | None:
    if INTERVAL not in said:
        return None
    try:
        seconds = parse_duration(str(said[INTERVAL])).total_seconds()
    except UsageError:
        seconds = 0.0
    if seconds <= 0:
        misread.append(f"{INTERVAL} is {said[INTERVAL]!r}, not a duration such as 30m")
        return None
    return Checkpoints(interval_h=seconds / 3600, source="annotation")


def _moment(said: Mapping[str, Any], misread: list[str]) -> datetime | None:
    if DEADLINE not in said:
        return None
    try:
        moment = datetime.fromisoformat(str(said[DEADLINE]))
    except ValueError:
        misread.append(f"{DEADLINE} is {said[DEADLINE]!r}, not a moment such as 2026-12-01T00:00Z")
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _number(said: Mapping[str, Any], misread: list[str]) -> float | None:
    if WORK not in said:
        return None
    try:
        hours = float(said[WORK])
    except ValueError:
        hours = 0.0
    if not 0 < hours < float("inf"):
        misread.append(f"{WORK} is {said[WORK]!r}, not hours above zero")
        return None
    return hours


@cache
def _tolerances() -> dict[str, tuple[Tolerance, str]]:
    text = files("analyzers").joinpath("spot/tolerance.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {r["workload_kind"]: (r["tolerance"], r["why"]) for r in rows}  # type: ignore[misc]

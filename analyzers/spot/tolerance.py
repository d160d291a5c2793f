"""Estimate a workload's tolerance of interruptions: owner, restarts, checkpoints."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import polars as pl

from analyzers.checkpoints import WORKLOAD, Checkpoints, find_write_bursts, parse_interval
from analyzers.rows import decode_frame, read_bursts, read_lifetimes
from analyzers.spot.rows import WorkloadLifetimes
from analyzers.workload_rows import Owner
from fallow.protocols import Views
from fallow.settings.workloads import SpotSettings
from fallow.stored_annotations import CLAIMS, LOCAL_VOLUMES
from fallow.tolerances import Tolerance, read_tolerances
from fallow.window import Window
from warehouse.disruption_budgets import DisruptionBudgets

OVERLAP_S = 300.0
"""A pod that begins at most this long before another ends may replace it: inventories are late."""
RESUMED_S = 3600.0
"""A restart is survived when the next pod runs for this long."""
NO_BUDGET = "none"
FORBIDS = {
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}
DEADLINE, WORK = "fallow.dev/deadline", "fallow.dev/work-hours"
"""Formats of the owner's deadline: RFC 3339, or the hours of work left when the pod starts."""


class ToleranceSignals(msgspec.Struct, frozen=True):
    """The signals of one workload in the window."""

    tolerance: Tolerance
    owner: str
    replicas: int
    """Maximum number of pods at the same time."""
    nodes: int
    """Maximum number of nodes at the same time: all of them can be reclaimed."""
    pods: int
    run_hours: float
    """Longest lifetime of one pod."""
    ended: bool
    """True: one of its pods ended by itself."""
    restarts_survived: int
    checkpoints: Checkpoints | None
    local_volumes: tuple[str, ...]
    claims: tuple[str, ...]
    forbidden: str | None
    start: datetime
    """The start of its first pod in the window."""
    deadline: datetime | None
    work_hours: float | None
    misread: tuple[str, ...] = ()
    budget: str = "not collected"
    """Name and limit of its disruption budget, or why there is none to name."""


def read_signals(
    views: Views, window: Window, settings: SpotSettings
) -> dict[Owner, ToleranceSignals]:
    """Return the signals of every workload whose pods request GPUs."""
    pods = read_lifetimes(views, window.bounds())
    if pods.is_empty():
        return {}
    bursts = read_bursts(views, window.bounds(), settings.burst_bps)
    written = find_write_bursts(pods, bursts)
    crowds = _count_concurrent(pods)
    survived = _count_survived(pods)
    budgets = DisruptionBudgets.read(views, window)
    facts = pods.group_by(WORKLOAD, maintain_order=True).agg(
        pods=pl.len(),
        on_nodes=pl.col("node").n_unique(),
        run_hours=((pl.col("end") - pl.col("start")).dt.total_seconds() / 3600).max(),
        ended=(pl.col("phase") == "Succeeded").any(),
        start=pl.col("start").min(),
        annotations=pl.col("annotations").drop_nulls().unique(),
        labels=pl.col("labels").last(),
    )
    signals: dict[Owner, ToleranceSignals] = {}
    for row in decode_frame(facts, WorkloadLifetimes):
        owner = row.owner
        kind = read_tolerances().get(row.workload_kind)
        annotations = _merge_annotations(row.annotations)
        misread: list[str] = []
        signals[owner] = ToleranceSignals(
            tolerance=kind.tolerance if kind else "unknown",
            owner=kind.why if kind else "",
            replicas=crowds.get(owner, 1),
            nodes=min(crowds.get(owner, 1), row.on_nodes),
            pods=row.pods,
            run_hours=row.run_hours,
            ended=bool(row.ended),
            restarts_survived=survived.get(owner, 0),
            checkpoints=parse_interval(annotations, misread) or written.get(owner),
            local_volumes=tuple(annotations.get(LOCAL_VOLUMES, ())),
            claims=tuple(annotations.get(CLAIMS, ())),
            forbidden=next(
                (k for k, v in FORBIDS.items() if str(annotations.get(k)).lower() == v), None
            ),
            start=row.start.replace(tzinfo=UTC),
            deadline=_parse_timestamp(annotations, misread),
            work_hours=_parse_number(annotations, misread),
            misread=tuple(misread),
            budget=_describe_budget(budgets, owner, row.labels),
        )
    return signals


def _describe_budget(budgets: DisruptionBudgets, owner: Owner, labels: str | None) -> str:
    covering = budgets.of(owner[0], owner[1], labels)
    if covering:
        return "; ".join(f"{b.name}: {b.wants}" for b in covering)
    return NO_BUDGET if budgets.is_polled(owner[0]) else "not collected"


def _count_concurrent(pods: pl.DataFrame) -> dict[Owner, int]:
    """Return the maximum number of pods of each workload at the same time."""
    steps = pl.concat(
        [
            pods.select(*WORKLOAD, at="start", step=pl.lit(1)),
            pods.select(*WORKLOAD, at="end", step=pl.lit(-1)),
        ]
    ).sort(*WORKLOAD, "at", "step")
    most = steps.with_columns(n=pl.col("step").cum_sum().over(WORKLOAD)).group_by(WORKLOAD)
    return {row[:4]: int(row[4]) for row in most.agg(pl.col("n").max()).iter_rows()}


def _count_survived(pods: pl.DataFrame) -> dict[Owner, int]:
    """Count the pods that ended without success and whose workload then continued with another."""
    cut = pods.filter(pl.col("ended").is_not_null() & (pl.col("phase") != "Succeeded"))
    after = pods.filter((pl.col("end") - pl.col("start")).dt.total_seconds() >= RESUMED_S)
    both = cut.select(*WORKLOAD, "pod", cut_at="ended").join(
        after.select(*WORKLOAD, begun="start"), on=WORKLOAD
    )
    later = both.filter(pl.col("begun") >= pl.col("cut_at") - timedelta(seconds=OVERLAP_S))
    times = later.group_by(WORKLOAD).agg(pl.col("cut_at").n_unique())
    return {row[:4]: int(row[4]) for row in times.iter_rows()}


def _merge_annotations(texts: Sequence[str]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for text in sorted(texts):
        noted = msgspec.json.decode(text)
        for name in (LOCAL_VOLUMES, CLAIMS):
            names = noted.get(name)
            noted[name] = (
                sorted({*merged.get(name, ()), *map(str, names)})
                if isinstance(names, list)
                else merged.get(name, [])
            )
        merged |= noted
    return merged


def _parse_timestamp(annotations: Mapping[str, Any], misread: list[str]) -> datetime | None:
    if DEADLINE not in annotations:
        return None
    try:
        time = datetime.fromisoformat(str(annotations[DEADLINE]))
    except ValueError:
        misread.append(
            f"{DEADLINE} is {annotations[DEADLINE]!r}, not a time such as 2026-12-01T00:00Z"
        )
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _parse_number(annotations: Mapping[str, Any], misread: list[str]) -> float | None:
    if WORK not in annotations:
        return None
    try:
        hours = float(annotations[WORK])
    except ValueError:
        hours = 0.0
    if not 0 < hours < float("inf"):
        misread.append(f"{WORK} is {annotations[WORK]!r}, not hours above zero")
        return None
    return hours

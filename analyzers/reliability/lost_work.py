"""Compute the work that failures lost: what their ranks computed since the last checkpoint.

lives, events, XIDs ──► failures.py ──────────────┐
rollup_5m ─► rank_activity.sql ─► who stood still ─┼─► WorkLostRow ─► `work_lost` ─► `lost`
pod_sample ─► bursts.sql ─► written_by ────────────┤                            (ledger)
fallow.dev/checkpoint-interval ────────────────────┘

The ranks of a job go back together: those that worked until one of them failed and then stood, or
were started again, lose their work too. Ranks that worked on lose nothing.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from statistics import median
from typing import Any, Literal

import msgspec
import polars as pl

from analyzers.checkpoints import (
    MISSING,
    WORKLOAD,
    Checkpoints,
    find_write_bursts,
    parse_interval,
)
from analyzers.interruptions import read_causes
from analyzers.reliability.failures import (
    Cause,
    FailedPod,
    Failure,
    find_failures,
    sort_signs,
)
from analyzers.reliability.rows import (
    PodLifetime,
    RankActivity,
    list_lifetimes,
    read_events,
    read_rank_activity,
    read_xids,
)
from analyzers.rows import read_bursts, read_lifetimes
from analyzers.workload_rows import Owner
from capacity.workload_kinds import is_gang
from fallow.protocols import Views
from fallow.tables import Batch
from fallow.tolerances import read_tolerances
from fallow.window import Window

LOOKBACK = timedelta(hours=24)
"""Checkpoints are read from this long before a failure."""
LATE = timedelta(hours=1)
"""Failures up to this long before a window are computed again: the inventory gets some of them
late."""
SURVIVORS = {"retried"}
STEP = timedelta(minutes=5)
LEAST_STANDING_S = 60.0
"""A rank that is idle for less than this in the ten minutes after a failure works on."""
Basis = Literal["measured", "estimated"]


class WorkLostRow(msgspec.Struct, frozen=True):
    """Work of one pod that a failure lost (a row of `work_lost`); naive UTC."""

    cluster: str
    namespace: str
    pod: str
    end: datetime
    start: datetime
    workload_kind: str
    workload: str
    cause: Cause
    lost: float
    recovering: float | None
    basis: Basis


class RankRecord(msgspec.Struct, frozen=True):
    """What pods did around failures: five-minute rows by cluster, namespace and name."""

    rows: Mapping[tuple[str, str, str], Sequence[RankActivity]]

    def list_of(self, owner: Owner, pod: str) -> Sequence[RankActivity]:
        """Return the rows of a pod, the oldest first."""
        return self.rows.get((owner[0], owner[1], pod), ())

    def has_stopped(self, pod: PodLifetime, at: datetime) -> bool | None:
        """Return whether a pod worked until a time and then stood; None = it was not seen."""
        since = _floor_step(at)
        near = [
            r for r in self.list_of(pod.owner, pod.pod) if since - STEP <= r.bucket <= since + STEP
        ]
        before = [r for r in near if r.bucket < since]
        if not before or len(near) == len(before):
            return None
        idle_s = sum(r.idle_s for r in near if r.bucket >= since)
        return before[0].active_s > before[0].idle_s and idle_s >= LEAST_STANDING_S * pod.gpus

    def measure_wait(
        self, owner: Owner, pod: str, start: datetime, successor: FailedPod | None
    ) -> float | None:
        """Return the GPU-hours that a pod, and its successor, hold without work; None = no end."""
        if successor is not None and successor.pod != pod:
            rest = [r for r in self.list_of(owner, pod) if r.bucket >= _floor_step(start)]
            wait = self.measure_wait(owner, successor.pod, successor.start, None)
            return None if wait is None else wait + round(sum(r.idle_s for r in rest) / 3600, 6)
        rows = [r for r in self.list_of(owner, pod) if r.bucket >= _floor_step(start)]
        works = (r.bucket for r in rows if r.bucket >= start and r.active_s > r.idle_s)
        until = next(works, None)
        if until is None:
            return None
        return round(sum(r.idle_s for r in rows if r.bucket <= until) / 3600, 6)


def compute_work_lost(views: Views, window: Window, burst_bps: float) -> list[WorkLostRow]:
    """Return the work lost by failures from `LATE` before a window until its end.

    Read: pod, event, rollup_1h (XIDs), pod_sample, allocation, device, rollup_5m. Only kinds that
    resume from a checkpoint count. Where no checkpoint of a workload is seen, its loss is
    estimated with the median interval of the workloads whose checkpoints are; where there are none
    it has no row: its loss is unknown.
    `burst_bps`: bytes per second from which writing may be a checkpoint.
    """
    around = Window(window.start - LATE, window.end)
    bounds = around.bounds()
    pods = read_lifetimes(views, bounds)
    if pods.is_empty() or pods["ended"].is_null().all():
        return []
    signs = sort_signs(
        read_events(views, bounds, list(read_causes())),
        read_causes(),
        read_xids(views, bounds),
    )
    lifetimes = list_lifetimes(pods)
    failures, _ = find_failures(lifetimes, signs, {})
    since = around.start.astimezone(UTC).replace(tzinfo=None)
    going_on = {kind for kind, row in read_tolerances().items() if row.tolerance in SURVIVORS}
    struck = [f for f in failures if f.owner[2] in going_on and f.at >= since]
    if not struck:
        return []
    first = min(f.at for f in struck).replace(tzinfo=UTC)
    loud = read_bursts(views, Window(first - LOOKBACK, window.end).bounds(), burst_bps)
    usual = _find_usual_checkpoints(pods, loud)
    owners = {f.owner for f in struck}
    mine = [pod for pod in lifetimes if pod.owner in owners]
    record = _read_record(views, mine, Window(_floor_step(first) - STEP, window.end))
    return [
        row for failure in struck for row in _build_rows(failure, pods, mine, (loud, usual), record)
    ]


def _read_record(views: Views, pods: Sequence[PodLifetime], window: Window) -> RankRecord:
    rows: dict[tuple[str, str, str], list[RankActivity]] = {}
    for row in read_rank_activity(views, window.bounds(), sorted({pod.who for pod in pods})):
        rows.setdefault((row.cluster, row.namespace, row.pod), []).append(row)
    return RankRecord(rows)


def build_batch(rows: Sequence[WorkLostRow]) -> Batch:
    """Return lost work as rows of `work_lost`."""
    names = WorkLostRow.__struct_fields__
    return Batch.of("work_lost", {n: [getattr(row, n) for row in rows] for n in names})


def _find_usual_checkpoints(pods: pl.DataFrame, loud: pl.DataFrame) -> Checkpoints | None:
    """Return checkpoints with the median interval of all workloads that were seen to write some."""
    regular = [c.interval_h for c in find_write_bursts(pods, loud).values() if c.regular]
    return Checkpoints(median(regular), "peers") if regular else None


def _build_rows(
    failure: Failure,
    pods: pl.DataFrame,
    lifetimes: Sequence[PodLifetime],
    writes: tuple[pl.DataFrame, Checkpoints | None],
    record: RankRecord,
) -> list[WorkLostRow]:
    """Return the rows of a failure; `writes`: bursts of writing, and checkpoints of the peers."""
    at, (loud, usual) = failure.at, writes
    mine = _select_owner(pods, failure.owner)
    at_s = at.replace(tzinfo=UTC).timestamp()
    before = loud.filter(
        pl.col("who").is_in(mine["who"].unique().to_list()),
        pl.col("at_s") >= at_s - LOOKBACK.total_seconds(),
        pl.col("at_s") + pl.col("interval_s") <= at_s,
    )
    written = find_write_bursts(mine, before).get(failure.owner)
    checkpoints = (
        written if written is not None and written.regular else _read_annotated(mine) or written
    ) or usual
    if checkpoints is None:
        return []
    mates, is_seen = _list_mates(failure, lifetimes, record)
    after = chain(failure.replacements, repeat(None))
    ranks = chain(zip(failure.pods, after, strict=False), zip(mates, mates, strict=True))
    rows = []
    for pod, successor in ranks:
        start, basis = _find_loss_start(failure, pod.start, checkpoints, before)
        hours = round(pod.gpus * (at - start).total_seconds() / 3600, 6)
        if hours > 0:
            wait = None
            if successor is not None:
                wait = record.measure_wait(failure.owner, pod.pod, at, successor)
            rows.append(
                WorkLostRow(*failure.owner[:2], pod.pod, at, start, *failure.owner[2:],
                         failure.cause, hours, wait, basis if is_seen else "estimated")
            )  # fmt: skip
    return rows


def _list_mates(
    failure: Failure, lifetimes: Sequence[PodLifetime], record: RankRecord
) -> tuple[list[FailedPod], bool]:
    """Return the other ranks that went back with the failed ones, and whether all were seen."""
    if not is_gang(failure.owner[2]):
        return [], True
    mates, is_seen, names = [], True, {pod.pod for pod in failure.pods}
    for pod in lifetimes:
        ended = pod.ended or datetime.max  # noqa: DTZ901
        if pod.owner != failure.owner or pod.pod in names or not pod.start < failure.at < ended:
            continue
        stopped = record.has_stopped(pod, failure.at)
        is_seen = is_seen and stopped is not None
        if stopped:
            mates.append(FailedPod(pod.pod, pod.who, pod.gpus, pod.start))
    return mates, is_seen


def _find_loss_start(
    failure: Failure, begun: datetime, checkpoints: Checkpoints, written: pl.DataFrame
) -> tuple[datetime, Basis]:
    """Return the time from which a pod's work is lost, and the source of that time.

    A checkpoint saves the state at the beginning of the last burst of writing.
    """
    interval = timedelta(hours=checkpoints.interval_h)
    if checkpoints.source == "writes" and checkpoints.regular:
        saved = max(begun, _find_last_write(written) or begun)
        if failure.at - saved < MISSING * interval:
            return saved, "measured"
    return max(begun, failure.at - interval / 2), "estimated"


def _find_last_write(written: pl.DataFrame) -> datetime | None:
    """Return when the newest burst of writing began."""
    rows = written.sort("at_s", descending=True).select("at_s", "interval_s").rows()
    began: float | None = None
    for at_s, interval_s in rows:
        if began is not None and began - at_s > MISSING * interval_s:
            break
        began = at_s
    return None if began is None else datetime.fromtimestamp(began, UTC).replace(tzinfo=None)


def _floor_step(at: datetime) -> datetime:
    return at - (at - datetime.min.replace(tzinfo=at.tzinfo)) % STEP


def _select_owner(pods: pl.DataFrame, owner: Owner) -> pl.DataFrame:
    return pods.filter(*(pl.col(n) == v for n, v in zip(WORKLOAD, owner, strict=True)))


def _read_annotated(pods: pl.DataFrame) -> Checkpoints | None:
    for text in pods["annotations"].drop_nulls().to_list():
        notes: Mapping[str, Any] = msgspec.json.decode(text)
        if (checkpoints := parse_interval(notes, [])) is not None:
            return checkpoints
    return None

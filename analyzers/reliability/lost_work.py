"""Compute the work that failures lost: what their pods computed since the last checkpoint.

lives, events, XIDs ──► failures.py ─┐
pod_sample ─► bursts.sql ─► written_by ─┼─► WorkLostRow, for `work_lost` ──► the ledger's `lost`
fallow.dev/checkpoint-interval ─────────┘
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
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
from analyzers.reliability.failures import Cause, Failure, find_failures, sort_signs
from analyzers.reliability.rows import (
    list_lifetimes,
    read_events,
    read_xids,
)
from analyzers.rows import read_bursts, read_lifetimes
from analyzers.workload_rows import Owner
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
    gpu_hours: float
    basis: Literal["measured", "estimated"]


def compute_work_lost(views: Views, window: Window, burst_bps: float) -> list[WorkLostRow]:
    """Return the work lost by failures from `LATE` before a window until its end.

    Read: pod, event, rollup_1h (XIDs), pod_sample. Only kinds that resume from a checkpoint count.
    Where no checkpoint of a workload is seen, its loss is estimated with the median interval of the
    workloads whose checkpoints are; where there are none it has no row: its loss is unknown.
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
    failures, _ = find_failures(list_lifetimes(pods), signs, {})
    since = around.start.astimezone(UTC).replace(tzinfo=None)
    going_on = {kind for kind, row in read_tolerances().items() if row.tolerance in SURVIVORS}
    struck = [f for f in failures if f.owner[2] in going_on and f.at >= since]
    if not struck:
        return []
    first = min(f.at for f in struck).replace(tzinfo=UTC)
    loud = read_bursts(views, Window(first - LOOKBACK, window.end).bounds(), burst_bps)
    usual = _find_usual_checkpoints(pods, loud)
    return [row for failure in struck for row in _build_rows(failure, pods, loud, usual)]


def build_batch(rows: Sequence[WorkLostRow]) -> Batch:
    """Return lost work as rows of `work_lost`."""
    names = WorkLostRow.__struct_fields__
    return Batch.of("work_lost", {n: [getattr(row, n) for row in rows] for n in names})


def _find_usual_checkpoints(pods: pl.DataFrame, loud: pl.DataFrame) -> Checkpoints | None:
    """Return checkpoints with the median interval of all workloads that were seen to write some."""
    regular = [c.interval_h for c in find_write_bursts(pods, loud).values() if c.regular]
    return Checkpoints(median(regular), "peers") if regular else None


def _build_rows(
    failure: Failure, pods: pl.DataFrame, loud: pl.DataFrame, usual: Checkpoints | None
) -> list[WorkLostRow]:
    at = failure.at
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
    rows = []
    for pod in failure.pods:
        start, basis = _find_loss_start(failure, pod.start, checkpoints, before)
        hours = round(pod.gpus * (at - start).total_seconds() / 3600, 6)
        if hours > 0:
            rows.append(
                WorkLostRow(*failure.owner[:2], pod.pod, at, start, *failure.owner[2:],
                         failure.cause, hours, basis)
            )  # fmt: skip
    return rows


def _find_loss_start(
    failure: Failure, begun: datetime, checkpoints: Checkpoints, written: pl.DataFrame
) -> tuple[datetime, Literal["measured", "estimated"]]:
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


def _select_owner(pods: pl.DataFrame, owner: Owner) -> pl.DataFrame:
    return pods.filter(*(pl.col(n) == v for n, v in zip(WORKLOAD, owner, strict=True)))


def _read_annotated(pods: pl.DataFrame) -> Checkpoints | None:
    for text in pods["annotations"].drop_nulls().to_list():
        notes: Mapping[str, Any] = msgspec.json.decode(text)
        if (checkpoints := parse_interval(notes, [])) is not None:
            return checkpoints
    return None

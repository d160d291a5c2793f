"""Roll up as a stage: whole hours of a part of the devices are one slice.

The slices run the SQL of `warehouse.rollup`. What is small, or needs archived days, is rolled up
there, in this process.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from fallow.settings import Settings
from warehouse import dirty, ingest, tiers
from warehouse.eras import store_places
from warehouse.failures import FAULTS
from warehouse.owner_hours import reduce_hours
from warehouse.rollup import (
    BUCKET,
    HOUR,
    LONGEST_REACH,
    BucketRange,
    ceil_time,
    describe_devices,
    floor_time,
    list_due,
    list_places,
    read_interval,
    roll_stretch,
    roll_up,
    select_samples,
)
from warehouse.runners.choice import is_sliced, map_slices
from warehouse.runners.slices import Runner, StageError, StageSlice
from warehouse.stages.fence import StaleStageError, refuse_changed
from warehouse.stages.files import (
    StageFile,
    correct_partitions,
    cut_days,
    register_files,
    remove_files,
    write_sorted,
)
from warehouse.stages.lease import StageLease, hold_stage
from warehouse.stages.pinned import open_snapshot, read_snapshot
from warehouse.statements import count_threads
from warehouse.steps import load_step
from warehouse.views.tiers import TierState

if TYPE_CHECKING:
    import duckdb

    from warehouse.lake import Warehouse

log = logging.getLogger("fallow.rollup")

SLICE_SAMPLES = 1_500_000
"""Samples of one slice: 2.5 hours of 10,000 GPUs every 60 s take less than 1 GB."""
MOST_PARTS = 64
MERGE_DEVICES = 500_000
"""Rows of devices that one statement merges at least: a bounded memory however many slices."""


class RollupOutput(msgspec.Struct, frozen=True):
    """What one slice wrote, and the devices that it saw."""

    files: tuple[StageFile, ...]
    devices: pa.Table
    places: pa.Table
    rejections: pa.Table | None = None


def roll_up_stage(
    warehouse: "Warehouse", runner: Callable[[Settings], Runner] | None = None
) -> int:
    """Refresh the rollups and devices of all dirty buckets; return how many were refreshed.

    With workers (`warehouse.workers`, `warehouse.processes`) whole hours are slices; else, and for
    what is less than two slices, this is `roll_up`; so it is where another writer rolled up
    meanwhile, and for the hours of a slice whose samples cannot be rolled up.

    Raises:
        FallowError: as `roll_up`.
        StageError: a worker ended three times: nothing of the stage is stored.
        TemporaryError: as `roll_up`; the workers cannot be reached; another driver runs the stage.
    """
    if runner is None and not is_sliced(warehouse.settings):
        return roll_up(warehouse)
    slices = plan_slices(warehouse, list_due(warehouse))
    if len(slices) <= 1:
        return roll_up(warehouse)
    with hold_stage(warehouse, "rollup") as lease:
        snapshot = read_snapshot(warehouse)
        task = partial(roll_up_slice, warehouse.settings, snapshot)
        written = map_slices(warehouse.settings, task, slices, runner)
        slices, outputs = _keep_whole_hours(slices, written)
        try:
            commit_rollup(warehouse, lease, snapshot, slices, outputs)
        except (StageError, StaleStageError) as error:
            # After any other error the catalog may have the commit, and with it these files.
            remove_files(file for output in outputs for file in output.files)
            if isinstance(error, StageError):
                raise
            log.info("dirty buckets are rolled up here", extra={"why": error.message})
            return roll_up(warehouse)
    correct_partitions(warehouse)
    hours = set(map(_get_hours, slices))
    refreshed = sum(round((end - start) / BUCKET) for _, start, end in hours)
    return roll_up(warehouse, refreshed=refreshed)


def _keep_whole_hours(
    slices: Sequence[StageSlice], outputs: Sequence[RollupOutput | str]
) -> tuple[list[StageSlice], list[RollupOutput]]:
    """Return the slices of hours of which no part failed, and what they wrote; log the others."""
    pairs = list(zip(slices, outputs, strict=True))
    failed = set[tuple[str, datetime, datetime]]()
    for part, output in pairs:
        if isinstance(output, str):
            failed.add(_get_hours(part))
            log.warning("a slice is rolled up here", extra={"slice": str(part), "why": output})
    whole = [(s, o) for s, o in pairs if isinstance(o, RollupOutput)]
    remove_files(file for s, o in whole if _get_hours(s) in failed for file in o.files)
    complete = [(s, o) for s, o in whole if _get_hours(s) not in failed]
    return [s for s, _ in complete], [o for _, o in complete]


def _get_hours(part: StageSlice) -> tuple[str, datetime, datetime]:
    return part.cluster, part.start, part.end


def plan_slices(warehouse: "Warehouse", due: Sequence[BucketRange]) -> list[StageSlice]:
    """Return the slices of the due buckets, widened to whole hours; without archived days."""
    with warehouse.snapshot() as cursor:
        state = tiers.read_state(warehouse, cursor)
    slices = []
    for stretch in _join_hours(due):
        if state.overlap("sample", stretch.start - LONGEST_REACH, stretch.end) or any(
            state.overlap(table, stretch.start, stretch.end) for table in tiers.ROLLED
        ):
            continue
        hours, parts = _choose_size(warehouse, stretch)
        for start, end in cut_days(stretch.start, stretch.end, hours * HOUR):
            slices += [StageSlice(stretch.cluster, start, end, n, parts) for n in range(parts)]
    return slices


def roll_up_slice(settings: Settings, snapshot: int, part: StageSlice) -> RollupOutput | str:
    """Write the rollups of one slice as files, from one snapshot; the catalog stays as it is.

    Returns why where its samples cannot be rolled up: that is no fault of the worker.
    """
    with open_snapshot(settings, snapshot) as warehouse:
        try:
            return _write_slice(warehouse, part)
        except FAULTS as error:
            return str(error)


def _write_slice(warehouse: "Warehouse", part: StageSlice) -> RollupOutput:
    with warehouse.snapshot() as cursor:
        where = {"cluster": part.cluster, "first": part.start, "last": part.end}
        seen = TierState()
        longest_s = read_interval(cursor, part.cluster)
        only = f" WHERE hash(device) % {part.parts:d} = {part.part:d}" if part.parts > 1 else ""
        samples = f"FROM ({select_samples(seen)}){only}"
        ledger = warehouse.settings.ledger
        rolled = roll_stretch(cursor, samples, where, ledger, longest_s=longest_s)
        files = write_sorted(cursor, warehouse.place, "rollup_5m", rolled.rows)
        hours = reduce_hours(rolled.rows, count_threads(cursor))
        files += write_sorted(cursor, warehouse.place, "rollup_1h", hours)
        devices = describe_devices(cursor, rolled.devices)
        places = list_places(rolled.rows)
        return RollupOutput(tuple(files), devices, places, rolled.rejections)


def commit_rollup(
    warehouse: "Warehouse",
    lease: StageLease,
    snapshot: int,
    slices: Sequence[StageSlice],
    outputs: Sequence[RollupOutput],
) -> None:
    """Replace the rollups of the slices' hours by their files, in one transaction.

    A bucket with samples that came after the snapshot keeps its mark: it is rolled up again.

    Raises:
        StageError: a file is gone or has another size; nothing is stored.
        StaleStageError: another writer changed rollups since the snapshot; nothing is stored.
        TemporaryError: another driver took the stage over; nothing is stored.
    """
    with warehouse.transaction() as cursor:
        lease.check()
        refuse_changed(cursor, "rollup", frozenset(tiers.ROLLED), snapshot)
        for part in slices:
            warehouse.late.forget(part.cluster, part.start, part.end)
        hours = sorted(set(map(_get_hours, slices)), key=lambda h: h[1])
        for cluster, start, end in reversed(hours):
            where = {"cluster": cluster, "first": start, "last": end}
            for table in tiers.ROLLED:
                cursor.execute(
                    f'DELETE FROM {table} WHERE "cluster" = $cluster'
                    " AND bucket >= $first AND bucket < $last",
                    where,
                )
        register_files(cursor, [file for output in outputs for file in output.files])
        late = cursor.execute(load_step("stages/late_samples"), {"snapshot": snapshot}).fetchall()
        _merge_devices(warehouse, cursor, outputs)
        for output in outputs:
            if output.rejections is not None:
                ingest.upsert_rows(cursor, "rejection", output.rejections)
        for cluster, start, end in hours:
            _clear_marks(cursor, cluster, start, end, late)
            dirty.mark_hours(cursor, start - HOUR, end)


def _merge_devices(
    warehouse: "Warehouse", cursor: "duckdb.DuckDBPyConnection", outputs: Sequence[RollupOutput]
) -> None:
    """Store the devices of slices, and mark the hours that their lifetimes now have."""
    waiting: list[RollupOutput] = []
    for n, output in enumerate(outputs, start=1):
        waiting.append(output)
        count = sum(part.devices.num_rows for part in waiting)
        if not count or (count < MERGE_DEVICES and n < len(outputs)):
            continue
        incoming = pa.concat_tables(part.devices for part in waiting)
        places = pa.concat_tables(part.places for part in waiting)
        store_places(cursor, warehouse.hosts.resolve(cursor, places))
        waiting.clear()
        cursor.register("incoming", incoming)
        gaps = cursor.execute(load_step("stages/lifetime_gaps")).fetchall()
        cursor.unregister("incoming")
        for start, end in gaps:
            dirty.mark_hours(cursor, start, end)
        ingest.upsert_rows(cursor, "device", warehouse.hosts.resolve(cursor, incoming))


def _clear_marks(
    cursor: "duckdb.DuckDBPyConnection",
    cluster: str,
    start: datetime,
    end: datetime,
    late: Sequence[tuple[datetime | None, datetime | None]],
) -> None:
    """Clear the marks of buckets, but those that samples after the snapshot may have set."""
    exceptions = [
        f"(bucket > TIMESTAMP '{first - BUCKET}' AND bucket <= TIMESTAMP '{last + BUCKET}')"
        if first is not None and last is not None
        else "true"
        for first, last in late
    ]
    dirty.clear_buckets(cursor, cluster, start, end, but=" OR ".join(exceptions) or "false")


def _join_hours(due: Sequence[BucketRange]) -> list[BucketRange]:
    """Return due buckets widened to whole hours, those that touch joined."""
    joined: list[BucketRange] = []
    for stretch in sorted(due, key=lambda s: (s.cluster, s.start)):
        start, end = floor_time(stretch.start, HOUR), ceil_time(stretch.end, HOUR)
        last = joined[-1] if joined else None
        if last is not None and last.cluster == stretch.cluster and start <= last.end:
            joined[-1] = BucketRange(last.cluster, last.start, max(end, last.end))
        else:
            joined.append(BucketRange(stretch.cluster, start, end))
    return joined


def _choose_size(warehouse: "Warehouse", stretch: BucketRange) -> tuple[int, int]:
    """Return how many hours one slice has, and in how many parts its devices are divided."""
    samples = warehouse.query(
        "SELECT count(*) AS n FROM sample"
        ' WHERE "cluster" = $cluster AND ts >= $start AND ts < $end',
        {"cluster": stretch.cluster, "start": stretch.start, "end": stretch.end},
    )["n"][0].as_py()
    per_hour = max(1, samples * HOUR / (stretch.end - stretch.start))
    parts = min(MOST_PARTS, -(-int(per_hour) // SLICE_SAMPLES))
    return max(1, min(24, int(SLICE_SAMPLES * parts / per_hour))), parts

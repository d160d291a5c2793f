"""Write the signals and the ledger as stages: some hours of the whole fleet are one slice."""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, timedelta
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fallow.errors import UnreadableDaysError
from fallow.settings import Settings
from fallow.window import Window
from warehouse import signals
from warehouse.ledger import (
    LAST_STEP,
    STEPS,
    align_window,
    build_parameters,
    compute_stride,
    widen_to_startups,
    write_ledger,
)
from warehouse.runners.choice import is_sliced, open_runner
from warehouse.runners.slices import Runner, StageError, StageSlice
from warehouse.stages.fence import StaleStageError, refuse_changed
from warehouse.stages.files import (
    StageFile,
    correct_partitions,
    cut_days,
    register_files,
    remove_files,
    write_rows,
    write_sorted,
)
from warehouse.stages.lease import StageLease, hold_stage
from warehouse.stages.pinned import open_snapshot, read_snapshot
from warehouse.steps import compose_query, load_step
from warehouse.tiers import ROLLED
from warehouse.totals import follow_changes

if TYPE_CHECKING:
    import pyarrow as pa

    from warehouse.lake import Warehouse

log = logging.getLogger("fallow.ledger")

INPUTS = {
    "signal": frozenset({"signal", *ROLLED, "allocation"}),
    "ledger": frozenset({"ledger", "signal", *ROLLED, "allocation", "work_lost"}),
}
"""Tables of the accounting step that a stage writes or reads, by its own table."""

Task = Callable[[StageSlice], tuple[StageFile, ...]]


def write_ledger_stage(
    warehouse: "Warehouse", window: Window, runner: Callable[[Settings], Runner] | None = None
) -> int:
    """Write the ledger's hours that the window touches, and their signals; return the rows.

    With workers a slice is as many hours as one statement processes; else, and where that is one
    slice, this is `write_ledger`. Where pods, nodes, events or prices of the window change while
    the slices run, or another writer accounts, the hours are written again in this process; so they
    are while archived days are away, which a worker cannot judge.

    Raises:
        StageError: a slice failed three times: nothing of that stage is stored.
        TemporaryError: the workers cannot be reached; another driver runs the stage.
    """
    if runner is None and not is_sliced(warehouse.settings):
        return write_ledger(warehouse, window)
    whole = align_window(window, "1h")
    fleet = signals.read_fleet(warehouse)
    slices = cut_window(whole, compute_stride(fleet))
    if len(slices) <= 1:
        return write_ledger(warehouse, window)
    before = read_inputs(warehouse, whole)
    early = widen_to_startups(warehouse.settings, whole)
    signal_slices = [
        replace(hours, part=n, parts=parts)
        for hours in cut_window(early, signals.compute_stride(fleet))
        for parts in [signals.count_parts(fleet, _get_window(hours))]
        for n in range(parts)
    ]
    try:
        if runner is None:
            with open_runner(warehouse.settings) as workers:
                count = _run_stages(warehouse, workers, signal_slices, slices)
        else:
            count = _run_stages(warehouse, runner(warehouse.settings), signal_slices, slices)
    except (StaleStageError, UnreadableDaysError) as error:
        log.info("the ledger's hours are written here", extra={"why": error.message})
        return write_ledger(warehouse, window)
    if read_inputs(warehouse, whole) == before:
        return count
    log.info("inputs of the ledger changed while its slices ran: its hours are written again")
    return write_ledger(warehouse, window)


def cut_window(window: Window, step: timedelta) -> list[StageSlice]:
    """Return slices of at most `step` that do not cross a midnight: a file has one partition."""
    start, end = (m.astimezone(UTC).replace(tzinfo=None) for m in (window.start, window.end))
    return [StageSlice("", first, last) for first, last in cut_days(start, end, step)]


def derive_signal_slice(
    settings: Settings, snapshot: int, part: StageSlice
) -> tuple[StageFile, ...]:
    """Write the signals of one slice as files, from one snapshot: some hours of some devices."""
    with open_snapshot(settings, snapshot) as warehouse:
        devices = signals.list_device_ranges(warehouse, part.parts)
        if part.part >= len(devices):  # fewer devices than parts
            return ()
        rows = signals.derive_signals(warehouse, _get_window(part), devices[part.part])
        with warehouse.snapshot() as cursor:
            return tuple(write_sorted(cursor, warehouse.place, "signal", rows))


def derive_ledger_slice(
    settings: Settings, snapshot: int, part: StageSlice
) -> tuple[StageFile, ...]:
    """Write the ledger of one slice as files, from one snapshot."""
    with open_snapshot(settings, snapshot) as warehouse:
        parameters = build_parameters(_get_window(part), settings)
        with warehouse.reading_views() as cursor:
            sql = compose_query(STEPS)
            return tuple(write_rows(cursor, warehouse.place, "ledger", sql, parameters))


def _run_stages(
    warehouse: "Warehouse",
    runner: Runner,
    signal_slices: Sequence[StageSlice],
    slices: Sequence[StageSlice],
) -> int:
    _run_stage(warehouse, runner, "signal", derive_signal_slice, signal_slices)
    return _run_stage(warehouse, runner, "ledger", derive_ledger_slice, slices)


def _run_stage(
    warehouse: "Warehouse",
    runner: Runner,
    table: str,
    derive: Callable[[Settings, int, StageSlice], tuple[StageFile, ...]],
    slices: Sequence[StageSlice],
) -> int:
    with hold_stage(warehouse, table) as lease:
        snapshot = read_snapshot(warehouse)
        task: Task = partial(derive, warehouse.settings, snapshot)
        outputs = runner.map(task, slices)
        try:
            rows = commit_rows(warehouse, lease, table, slices, outputs, snapshot=snapshot)
        except (StageError, StaleStageError):
            # After any other error the catalog may have the commit, and with it these files.
            remove_files(file for output in outputs for file in output)
            raise
        correct_partitions(warehouse)
        return rows


def commit_rows(
    warehouse: "Warehouse",
    lease: StageLease,
    table: str,
    slices: Sequence[StageSlice],
    outputs: Sequence[Sequence[StageFile]],
    *,
    snapshot: int,
) -> int:
    """Replace a table's rows of the slices' hours by their files, in one transaction.

    The slices are in order of time, without gaps, and none crosses a midnight. The ledger's totals
    follow its rows day by day, so that a long window needs no more memory than a day.

    Raises:
        StageError: a file is gone or has another size; nothing is stored.
        StaleStageError: another writer changed the table or what it is derived from since the
            snapshot; nothing is stored.
        TemporaryError: another driver took the stage over; nothing is stored.
    """
    rows = 0
    with warehouse.transaction() as cursor:
        lease.check()
        refuse_changed(cursor, table, INPUTS[table], snapshot)
        pairs = zip(slices, outputs, strict=True)
        for _, day in groupby(pairs, key=lambda pair: pair[0].start.date()):
            parts, files = zip(*day, strict=True)
            span = {"since": parts[0].start, "until": parts[-1].end}
            with follow_changes(cursor, table, LAST_STEP, span):
                cursor.execute(f'DELETE FROM "{table}" WHERE {LAST_STEP}', span)
                rows += register_files(cursor, [file for output in files for file in output])
    return rows


def read_inputs(warehouse: "Warehouse", window: Window) -> "pa.Table":
    """Return a checksum of each table that others than the accounting write, over a window."""
    return warehouse.query(load_step("stages/ledger_inputs"), window.bounds())


def _get_window(part: StageSlice) -> Window:
    return Window(part.start.replace(tzinfo=UTC), part.end.replace(tzinfo=UTC))

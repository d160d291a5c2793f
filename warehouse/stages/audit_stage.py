"""Audit written hours as a stage: the hours of one day are one slice."""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from fallow.errors import UnreadableDaysError
from fallow.settings import Settings
from fallow.window import Window
from warehouse import audit_results, audits
from warehouse.audit_results import DAY, audit_hours
from warehouse.runners.choice import is_sliced, map_slices
from warehouse.runners.slices import Runner, StageSlice
from warehouse.stages.fence import StaleStageError, refuse_changed
from warehouse.stages.files import cut_days
from warehouse.stages.lease import hold_stage
from warehouse.stages.ledger_stage import read_inputs
from warehouse.stages.pinned import open_snapshot, read_snapshot
from warehouse.tiers import ROLLED

if TYPE_CHECKING:
    from warehouse.audits import AuditFailure
    from warehouse.lake import Warehouse

log = logging.getLogger("fallow.ledger")

INPUTS = frozenset({"ledger", "ledger_1h", "ledger_1d", "audit", *ROLLED})
"""Tables of the accounting that the stage reads or writes."""


def audit_stage(
    warehouse: "Warehouse",
    window: Window,
    runner: Callable[[Settings], Runner] | None = None,
    *,
    marked: bool = False,
) -> "list[AuditFailure]":
    """Audit the hours that a window touches, store the results, return the failures.

    With workers a day is a slice; else, and within one day, this is `audit_hours`; so it is where
    audited rows or prices change meanwhile, or archived days are away. `marked`: as `audit_hours`.

    Raises:
        StageError: a slice failed three times: nothing is stored.
        TemporaryError: the workers cannot be reached; another driver runs the stage.
    """
    whole = window.whole()
    since, until = audits.find_hours(warehouse, whole)
    slices = [StageSlice("", *day) for day in cut_days(since, until, DAY)] if since < until else []
    if (runner is None and not is_sliced(warehouse.settings)) or len(slices) <= 1:
        return audit_hours(warehouse, window, marked=marked)
    try:
        _store_slices(warehouse, slices, [whole], runner, marked=marked)
    except (StaleStageError, UnreadableDaysError) as error:
        log.info("hours are audited here", extra={"why": error.message})
        return audit_hours(warehouse, window, marked=marked)
    return audit_results.read_failures(warehouse, whole, marked=marked)


def audit_due(
    warehouse: "Warehouse", runner: Callable[[Settings], Runner] | None = None
) -> "list[AuditFailure]":
    """Audit hours without a result, and again those audited long ago; return the failures.

    One call audits at most `audit_results.MOST_DUE_HOURS`. With workers a day is a slice; else, and
    where audited rows or prices change meanwhile, one day after another is audited here. Hours
    whose archived days are away are left out.

    Raises: as `audit_stage`.
    """
    spans = audit_results.list_due(warehouse)
    slices = [StageSlice("", *day) for span in spans for day in cut_days(*span, DAY)]
    if (runner is None and not is_sliced(warehouse.settings)) or len(slices) <= 1:
        return _audit_days(warehouse, spans)
    try:
        windows = [_build_window(*span) for span in spans]
        _store_slices(warehouse, slices, windows, runner, marked=False)
    except (StaleStageError, UnreadableDaysError) as error:
        log.info("hours are audited here", extra={"why": error.message})
        return _audit_days(warehouse, spans)
    days = [_build_window(part.start, part.end) for part in slices]
    return [f for day in days for f in audit_results.read_failures(warehouse, day)]


def _audit_days(
    warehouse: "Warehouse", spans: Sequence[tuple[datetime, datetime]]
) -> "list[AuditFailure]":
    """Audit the days of time ranges, naive UTC, one after another; return the failures."""
    failures: list[AuditFailure] = []
    for span in spans:
        for day in cut_days(*span, DAY):
            try:
                failures += audit_hours(warehouse, _build_window(*day))
            except UnreadableDaysError as error:
                log.warning(
                    "hours are not audited: their archived days are away",
                    extra={"start": day[0], "end": day[1], "why": error.message},
                )
    return failures


def _store_slices(
    warehouse: "Warehouse",
    slices: Sequence[StageSlice],
    windows: Sequence[Window],
    runner: Callable[[Settings], Runner] | None,
    *,
    marked: bool,
) -> None:
    """Audit slices, and store all results or none; `windows` are the hours that they have.

    Raises:
        StaleStageError: what is audited changed meanwhile; nothing is stored.
        UnreadableDaysError: a slice needs archived days, and their store is away.
        Others: as `audit_stage`.
    """
    with hold_stage(warehouse, "audit") as lease:
        before = [read_inputs(warehouse, window) for window in windows]
        snapshot = read_snapshot(warehouse)
        task = partial(audit_slice, warehouse.settings, snapshot, warehouse.clock(), marked)
        results = map_slices(warehouse.settings, task, slices, runner)
        with warehouse.transaction() as cursor:
            lease.check()
            refuse_changed(cursor, "audit", INPUTS, snapshot)
            if [read_inputs(warehouse, window) for window in windows] != before:
                raise StaleStageError("prices or owners changed while the stage audit ran")
            audit_results.store_results(cursor, pa.concat_tables(results), marked=marked)


def _build_window(since: datetime, until: datetime) -> Window:
    return Window(since.replace(tzinfo=UTC), until.replace(tzinfo=UTC))


def run_audits_stage(
    warehouse: "Warehouse", runner: Callable[[Settings], Runner] | None = None
) -> "list[AuditFailure]":
    """Run every audit over all rows and store nothing; return what `audits.run_audits` returns.

    With workers a day is a slice of the audits whose rows are of one hour or one day. What a slice
    refuses is read again here, and so are days whose archived rows are away.

    Raises: as `audit_stage`.
    """
    slices = [StageSlice("", *day) for day in cut_days(*audits.find_hours(warehouse, None), DAY)]
    if (runner is None and not is_sliced(warehouse.settings)) or len(slices) <= 1:
        return audits.run_audits(warehouse)
    snapshot = read_snapshot(warehouse)
    task = partial(find_refusing_audits, warehouse.settings, snapshot, warehouse.clock())
    try:
        refusing = map_slices(warehouse.settings, task, slices, runner)
    except UnreadableDaysError as error:
        log.info("audits run here", extra={"why": error.message})
        return audits.run_audits(warehouse)
    without = set(audit_results.SEPARABLE).difference(*refusing)
    return audits.run_audits(warehouse, without=without)


def find_refusing_audits(
    settings: Settings, snapshot: int, now: datetime, part: StageSlice
) -> frozenset[str]:
    """Return which audits refuse rows of a day, at a snapshot."""
    with open_snapshot(settings, snapshot, lambda: now) as warehouse:
        return frozenset(
            name
            for name in audit_results.SEPARABLE
            if audits.run_audit(warehouse, name, part.start, part.end).num_rows
        )


def audit_slice(
    settings: Settings, snapshot: int, now: datetime, marked: bool, part: StageSlice
) -> pa.Table:
    """Return the results (`audit` rows) of some hours of a day, and of the day, at a snapshot."""
    with open_snapshot(settings, snapshot, lambda: now) as warehouse:
        return audit_results.compute_results(warehouse, part.start, part.end, marked=marked)

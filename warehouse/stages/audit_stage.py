"""Audit written hours as a stage: the hours of one day are one slice."""

import logging
from collections.abc import Callable
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
    from datetime import datetime

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
    with hold_stage(warehouse, "audit") as lease:
        before = read_inputs(warehouse, whole)
        snapshot = read_snapshot(warehouse)
        task = partial(audit_slice, warehouse.settings, snapshot, warehouse.clock(), marked)
        try:
            results = map_slices(warehouse.settings, task, slices, runner)
            with warehouse.transaction() as cursor:
                lease.check()
                refuse_changed(cursor, "audit", INPUTS, snapshot)
                _refuse_other_inputs(read_inputs(warehouse, whole), before)
                audit_results.store_results(cursor, pa.concat_tables(results), marked=marked)
        except (StaleStageError, UnreadableDaysError) as error:
            log.info("hours are audited here", extra={"why": error.message})
            return audit_hours(warehouse, window, marked=marked)
    return audit_results.read_failures(warehouse, whole, marked=marked)


def _refuse_other_inputs(now: pa.Table, before: pa.Table) -> None:
    if now != before:
        raise StaleStageError("prices or owners changed while the stage audit ran")


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
    settings: Settings, snapshot: int, now: "datetime", part: StageSlice
) -> frozenset[str]:
    """Return which audits refuse rows of a day, at a snapshot."""
    with open_snapshot(settings, snapshot, lambda: now) as warehouse:
        return frozenset(
            name
            for name in audit_results.SEPARABLE
            if audits.run_audit(warehouse, name, part.start, part.end).num_rows
        )


def audit_slice(
    settings: Settings, snapshot: int, now: "datetime", marked: bool, part: StageSlice
) -> pa.Table:
    """Return the results (`audit` rows) of some hours of a day, and of the day, at a snapshot."""
    with open_snapshot(settings, snapshot, lambda: now) as warehouse:
        return audit_results.compute_results(warehouse, part.start, part.end, marked=marked)

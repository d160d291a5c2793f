"""`fallow warehouse ...`: show its contents, maintain, move, check and query it."""

from typing import Annotated, Any

import typer

from fallow.errors import UsageError
from runtime.cli.options import CommandRun
from runtime.cli.query_limits import limit_query
from runtime.operations.accounting.idle_hours import keep_idle_hours
from runtime.operations.accounting.ledger_totals import verify_warehouse
from runtime.operations.accounting.restatement import (
    list_open_months,
    price_ended_months,
    restate_months,
)
from warehouse import maintenance
from warehouse.audits import format_banner
from warehouse.backup import copy_catalog
from warehouse.lake import Warehouse
from warehouse.place_marks import KINDS, read_mark
from warehouse.relocation import RelocatedPart, relocate_warehouse
from warehouse.restatements import Restatement, list_due_months
from warehouse.schema import UpgradeStep
from warehouse.stages.audit_stage import audit_due
from warehouse.text_repair import TextRepair, repair_texts
from warehouse.tiers import move_to_cold


def status(run: CommandRun) -> None:
    """Show the tiers: rows, bytes, oldest and newest moment."""
    with run.warehouse(run.settings()) as warehouse:
        run.data(maintenance.read_status(warehouse), noun="status")


def compact(
    run: CommandRun,
    *,
    remove_orphans: Annotated[
        bool,
        typer.Option("--remove-orphans", help="also remove the files that wait for a person"),
    ] = False,
) -> None:
    """Move old rows to their tier, merge small files, drop unreferenced ones, audit due hours."""
    with run.warehouse(run.settings(), write=True) as warehouse:
        try:
            moved = move_to_cold(warehouse, run.now())
            run.say(f"moved {moved.files} days ({moved.rows:,} rows) to the cold tier")
        finally:  # the lake is compacted while the cold tier is away, too
            result = maintenance.compact_warehouse(warehouse, removes_orphans=remove_orphans)
            run.say(str(result))
        if fault := format_banner(audit_due(warehouse)):
            run.say(fault)
        run.data(maintenance.read_status(warehouse), noun="status")


def upgrade(
    run: CommandRun,
    check: Annotated[
        bool, typer.Option("--check", help="only list what it would change; exit 1 if anything")
    ] = False,
    restate: Annotated[
        bool, typer.Option("--restate", help="account months that have ended anew, too")
    ] = False,
) -> int:
    """Bring an older Fallow's warehouse up to date: its tables whole or not, texts, the ledger.

    The catalog is copied first. Texts that no source may write (a NUL in a name) are repaired: see
    the table `rejection`. Hours that older rules accounted are accounted anew from what is stored,
    and what that changed is listed by cause (table `restatement`).
    """
    settings = run.settings()
    steps = Warehouse.list_upgrade_steps(settings)
    months = [step.name for step in steps if step.kind == "account"]
    repairs: list[TextRepair] = []
    changed: list[Restatement] = []
    if steps and not check:
        run.say(f"the catalog of before is {copy_catalog(settings, run.now())}")
    if not (check and steps):
        with run.warehouse(settings, write=not check) as warehouse:
            repairs = repair_texts(warehouse, changes=not check)
            if not check:
                changed = _restate(run, warehouse, is_restating=restate)
            months = [f"{month.start:%Y-%m}" for month in list_due_months(warehouse)]
    ended = [] if restate else [month for month in months if month < f"{run.now():%Y-%m}"]
    if ended:
        run.say(f"{len(ended)} ended months keep their figures: --restate changes them")
    due = [month for month in months if check and month not in ended]
    rows = _list_changes(steps, repairs, due, changed)
    if changed:
        run.say("findings are those of before, until `fallow analyze` or the service judges anew")
    if not rows:
        run.say("the warehouse is up to date")
    run.data(rows, noun="upgrade")
    return 1 if check and rows else 0


def _list_changes(
    steps: list[UpgradeStep],
    repairs: list[TextRepair],
    due: list[str],
    changed: list[Restatement],
) -> list[dict[str, str]]:
    changes = [
        *((step.kind, step.name) for step in steps if step.kind != "account"),
        *(("texts", f"{r.table}: {r.removed} rows removed, {r.cleaned} cleaned") for r in repairs),
        *(("account", month) for month in due),
        *(("restatement", row.describe()) for row in changed),
    ]
    return [{"change": change, "name": name} for change, name in changes]


def _restate(run: CommandRun, warehouse: Warehouse, *, is_restating: bool) -> list[Restatement]:
    if is_restating:
        price_ended_months(warehouse, run.now())
    due = list_open_months(warehouse, run.now(), is_restating=is_restating)
    restated = restate_months(warehouse, due, run.say)
    if hours := keep_idle_hours(warehouse, most_hours=None):
        run.say(f"the idle rows of {hours} hours are kept")
    return restated


def relocate(run: CommandRun) -> int:
    """Store where data and archived files lie now, after a move to another path or bucket.

    A moved home opens by itself; a catalog in PostgreSQL, a bucket and an archive whose old folder
    still exists need this command. Exit 1 where archived files are in neither place.
    """
    parts = relocate_warehouse(run.settings())
    if not parts:
        run.say("every file is where the catalog says")
    run.data([_describe_part(part) for part in parts], noun="relocation")
    return 1 if any(part.missing for part in parts) else 0


def _describe_part(part: RelocatedPart) -> dict[str, Any]:
    return {
        "part": part.part,
        "from": part.source,
        "to": part.target,
        "files": part.files,
        "missing": part.missing,
    }


def adopt(
    run: CommandRun,
    places: Annotated[
        list[str],
        typer.Argument(metavar="PLACE...", help="data, cold or queue, of the settings"),
    ],
    *,
    source: Annotated[
        str, typer.Option("--from", metavar="ID", help="the warehouse whose mark a place has")
    ] = "",
) -> None:
    """Take places with files of another or an unknown warehouse for this one.

    A place with another warehouse's mark needs its id: it must not be in use any more. Files that
    this catalog does not name are listed for seven days (`orphan_file`), and many of them are
    removed only by `fallow warehouse compact --remove-orphans`.
    """
    kinds = [kind for kind in KINDS if kind in places]
    if unknown := sorted(set(places) - set(kinds)):
        raise UsageError(f"{unknown[0]!r} is no place", hint=f"write one of {', '.join(KINDS)}")
    settings = run.settings()
    with Warehouse.open(
        settings, write=True, clock=run.now, adopted=kinds, claimed=source
    ) as warehouse:
        rows = [
            {"place": kind, "path": warehouse.marks.stores[kind].root, "warehouse": mark.warehouse}
            for kind in kinds
            if (mark := read_mark(warehouse.marks.stores[kind]))
        ]
    run.data(rows, noun="places")


def verify(run: CommandRun) -> int:
    """Read everything back and run the audits; exit with 1 where something is wrong.

    Hours that a service has not accounted yet are named ("not checked") and fail nothing.
    """
    with run.warehouse(run.settings()) as warehouse:
        rows = verify_warehouse(warehouse)
    run.data(rows, noun="checks")
    return 1 if any(row["status"] == "failed" for row in rows) else 0


def query(
    run: CommandRun,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="one SELECT over the views")],
) -> None:
    """Run one read-only statement over the views: one view per noun, over all tiers."""
    settings = run.settings()
    within = settings.warehouse.query_within.total_seconds()
    with (
        run.warehouse(settings) as warehouse,
        limit_query(within, warehouse.read_memory_limit()),
    ):
        run.data(warehouse.query(sql), noun="rows")

"""Run all checks of `fallow doctor` in the order of the data: sources, money, storage, pages."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from collectors.doctor import CheckRow
from fallow.errors import (
    EmptyWarehouseError,
    FallowError,
    ForeignWarehouseError,
    TemporaryError,
    UsageError,
    WarehouseError,
)
from fallow.settings import Settings
from runtime.operations.analysis import analyzer_runs
from runtime.operations.doctor import (
    channels,
    cluster,
    nodes,
    pages,
    prices,
    rejections,
    shards,
    source_checks,
    storage,
    unknown_names,
)
from runtime.operations.doctor.fault import build_fault_row
from runtime.operations.ingestion import collection, plugin_runs

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

NO_ROWS = "rows"
"""The check of a warehouse that has no telemetry."""
OpenWarehouse = Callable[[], "AbstractContextManager[Warehouse]"]


def run_checks(
    settings: Settings,
    *,
    now: datetime,
    opening: OpenWarehouse,
    window: str | None = None,
    only: str | None = None,
) -> list[dict[str, Any]]:
    """Return one row per check; a source that does not respond is a row like any other.

    `window` narrows what analyzers withhold, `only` (a cluster) what is checked of rows.

    Raises:
        UsageError: the settings, or the window, cannot be used at all.
    """
    rows = _list_source_rows(settings, now)
    rows += storage.check_storage(settings)
    rows += _check_warehouse(settings, now=now, opening=opening, window=window, only=only)
    rows += channels.check_channels(settings)
    rows += pages.check_pages(settings)
    status = {row.check: row.status for row in rows}
    has_rows = status.get("warehouse") == "ok" and NO_ROWS not in status
    rows[:0] = check_sources(settings, has_rows=has_rows)
    return [msgspec.structs.asdict(row) for row in rows]


def check_sources_and_prices(settings: Settings, now: datetime) -> list[dict[str, Any]]:
    """Return what the sources and prices of settings have, one row per check, before any row."""
    rows = [*check_sources(settings, has_rows=False), *_list_source_rows(settings, now)]
    return [msgspec.structs.asdict(row) for row in rows]


def _list_source_rows(settings: Settings, now: datetime) -> list[CheckRow]:
    rows = [*(_check_prometheus(settings, now) if settings.prometheus.url else ())]
    rows += source_checks.check_exporters(settings, now)
    rows += source_checks.check_notebooks(settings, now)
    rows += cluster.check_cluster(settings)
    rows += prices.check_prices(settings, now)
    return rows


def fold_withheld(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with one for all that analyzers withhold, in place of the first."""
    prefix = analyzer_runs.WITHHELD
    names = [r["check"].removeprefix(prefix) for r in rows if r["check"].startswith(prefix)]
    folded = [r for r in rows if not r["check"].startswith(prefix)]
    if names:
        counts = ", ".join(f"{name} {count}" for name, count in Counter(names).most_common())
        place = next(n for n, row in enumerate(rows) if row["check"].startswith(prefix))
        text = f"analyzers do not judge everything; reasons by analyzer: {counts}"
        folded.insert(place, {
            "check": "withheld", "status": "warn", "finding": text,
            "next_step": "fallow doctor -o csv lists each with its GPU-hours and what it needs",
        })  # fmt: skip
    return folded


def exit_code(rows: Sequence[dict[str, Any]]) -> int:
    """Return 1 if a check is bad, 75 if a source only did not respond, else 0."""
    statuses = {row["status"] for row in rows}
    if "bad" in statuses:
        return FallowError.exit_code
    return TemporaryError.exit_code if "away" in statuses else 0


def check_sources(settings: Settings, *, has_rows: bool) -> Iterator[CheckRow]:
    """Return whether any source is configured; `has_rows`: the warehouse has rows already."""
    wanted = [
        name
        for name, source in collection.SOURCES.items()
        if getattr(getattr(settings, source.section), source.wanted_by)
    ]
    if wanted:
        yield CheckRow("sources", "ok", f"configured: {', '.join(wanted)}")
        return
    keys = ", ".join(f"{s.section}.{s.wanted_by}" for s in collection.SOURCES.values())
    step = f"fallow doctor --prometheus http://host:9090, or set one of {keys}"
    yield CheckRow("sources", "warn" if has_rows else "bad", "no source is configured", step)


def _check_prometheus(settings: Settings, now: datetime) -> Iterator[CheckRow]:
    try:
        yield from collection.examine_prometheus(settings, now=now)
    except UsageError:
        raise
    except FallowError as error:
        yield build_fault_row(
            "server", error, "does its URL answer from here, and may we ask? prometheus.*"
        )


def _check_warehouse(
    settings: Settings,
    *,
    now: datetime,
    opening: OpenWarehouse,
    window: str | None,
    only: str | None,
) -> Iterator[CheckRow]:
    try:
        with opening() as warehouse:
            yield storage.check_warehouse(warehouse)
            yield from storage.check_places(warehouse)
            yield from storage.check_archive(warehouse)
            yield from storage.check_rules(warehouse)
            yield from shards.check_shards(warehouse, only)
            yield from prices.check_conflict(warehouse, settings, now)
            yield from prices.check_unpriced(warehouse, now, only)
            yield from nodes.check_nodes(warehouse, now, only)
            yield from unknown_names.check_unknown_names(warehouse, now, only)
            yield from rejections.check_rejections(warehouse, now, only)
            yield from plugin_runs.check_plugins(warehouse, cluster=only)
            yield from analyzer_runs.check_unjudged(
                warehouse, settings, window, now=now, cluster=only
            )
    except EmptyWarehouseError as error:
        yield CheckRow(NO_ROWS, "warn", error.message, error.hint or "fallow collect --once")
    except UsageError as error:
        if window is not None:
            raise
        yield CheckRow(NO_ROWS, "warn", error.message, error.hint or "fallow collect --once")
    except WarehouseError as error:
        is_new = not (isinstance(error, ForeignWarehouseError) or storage.has_catalog(settings))
        yield build_fault_row("warehouse", error, "fallow warehouse status", missing=is_new)
    except TemporaryError as error:
        yield build_fault_row("warehouse", error, "try again")

"""All checks of `fallow doctor` in the order of the path: sources, money, storage, pages."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from collectors.doctor import Row
from fallow.errors import FallowError, TemporaryError, UsageError, WarehouseError
from fallow.settings import Settings
from runtime import analyzing, collecting, plugin_runs
from runtime.doctor import channels, cluster, looks, nodes, pages, prices, storage
from runtime.doctor.fault import fault

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

Opening = Callable[[], "AbstractContextManager[Warehouse]"]


def examine(
    settings: Settings,
    *,
    now: datetime,
    opening: Opening,
    window: str | None = None,
    only: str | None = None,
) -> list[dict[str, Any]]:
    """Return one row per check; what cannot be asked is a row like any other.

    `window` and `only` (a cluster) narrow what analyzers withhold.

    Raises:
        UsageError: the settings, or the window, cannot be used at all.
    """
    rows: list[Row] = []
    if settings.prometheus.url:
        rows += _prometheus(settings, now)
    rows += looks.exporters(settings, now)
    rows += looks.notebooks(settings, now)
    rows += cluster.reading(settings)
    rows += prices.known(settings, now)
    rows += storage.places(settings)
    rows += _stored(settings, now=now, opening=opening, window=window, only=only)
    rows += channels.reachable(settings)
    rows += pages.ready(settings)
    there = any(row.check == "warehouse" and row.status == "ok" for row in rows)
    rows[:0] = sources(settings, there=there)
    return [msgspec.structs.asdict(row) for row in rows]


def exit_code(rows: Sequence[dict[str, Any]]) -> int:
    """Return 1 where a check is bad, 75 where something only did not answer, else 0."""
    found = {row["status"] for row in rows}
    if "bad" in found:
        return FallowError.exit_code
    return TemporaryError.exit_code if "away" in found else 0


def sources(settings: Settings, *, there: bool) -> Iterator[Row]:
    """Say whether anything is looked at; `there`: a warehouse holds rows already."""
    wanted = [
        name
        for name, source in collecting.SOURCES.items()
        if getattr(getattr(settings, source.section), source.wanted_by)
    ]
    if wanted:
        yield Row("sources", "ok", f"configured: {', '.join(wanted)}")
        return
    keys = ", ".join(f"{s.section}.{s.wanted_by}" for s in collecting.SOURCES.values())
    step = f"fallow doctor --prometheus http://host:9090, or set one of {keys}"
    yield Row("sources", "warn" if there else "bad", "no source is configured", step)


def _prometheus(settings: Settings, now: datetime) -> Iterator[Row]:
    try:
        yield from collecting.examine(settings, now=now)
    except UsageError:
        raise
    except FallowError as error:
        yield fault("server", error, "does its URL answer from here, and may we ask? prometheus.*")


def _stored(
    settings: Settings, *, now: datetime, opening: Opening, window: str | None, only: str | None
) -> Iterator[Row]:
    try:
        with opening() as warehouse:
            yield storage.opened(warehouse)
            yield from prices.missing(warehouse, now)
            yield from nodes.unresolved(warehouse)
            yield from plugin_runs.faults(warehouse, cluster=only)
            yield from analyzing.doubts(warehouse, settings, window, now=now, cluster=only)
    except (UsageError, WarehouseError) as error:
        if window is not None:
            raise
        there = storage.holds(settings)
        yield fault("warehouse", error, "fallow warehouse status", missing=not there)
    except TemporaryError as error:
        yield fault("warehouse", error, "try again")

"""Query the warehouse: opened once for reading, every figure cached and limited.

Readers see snapshots and never block a writer. A result is valid for `TTL`; while it is read again
in the background, people see the previous result.
"""

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any, ParamSpec, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
import streamlit as st

from dashboards.active_settings import get_now, get_settings
from fallow.system.container_limits import read_cpu_limit
from warehouse.lake import Warehouse
from warehouse.readable import ReadableViews

TTL = timedelta(seconds=60)
SELDOM = timedelta(minutes=30)
MOST_ANSWERS = 512
MOST_BYTES = "256MB"
MEMORY = "2GB"
"""Memory limit of the engine without a setting: the writer is on the same machine."""

P = ParamSpec("P")
T = TypeVar("T")


def query(figure: Callable[..., T], *args: Any) -> T:
    """Return `figure(views, *args)` from the cache or from the warehouse.

    Arguments are frozen structs and plain values: their printed form identifies them.

    Raises:
        WarehouseError: there is no warehouse, or it is damaged.
        UnreadableDaysError: it needs archived days, and their store is away; `page.guard` shows
            "unknown: N days not readable" in the place of the figure.
        TemporaryError: it is not reachable or in use, or a query took longer than
            `warehouse.query_within`: try again.
    """
    key = f"{figure.__module__}.{figure.__qualname__}"
    return cast(T, _answer(str(_find_home()), key, repr(args), figure, args))


def query_by_time(
    figure: Callable[..., pa.Table], column: str, *args: Any
) -> tuple[pa.Table, tuple[date, ...]]:
    """Return a figure's rows by time of the readable days, and the days that are not readable.

    `column`: the rows' time (UTC); a row may not span two days. All rows of a day that is not
    readable are left out: those that are still hot are only a part of it.

    Raises: as `query`.
    """
    key = f"{figure.__module__}.{figure.__qualname__}"
    arguments = (figure, column, *args)
    rows = _answer(str(_find_home()), f"{key} by {column}", repr(args), _read_by_time, arguments)
    return cast(tuple[pa.Table, tuple[date, ...]], rows)


def _read_by_time(
    warehouse: Warehouse, figure: Callable[..., pa.Table], column: str, *args: Any
) -> tuple[pa.Table, tuple[date, ...]]:
    views = ReadableViews(warehouse)
    rows = figure(views, *args)
    if views.days:
        missing = pa.array(sorted(views.days), pa.date32())
        row_days = pc.cast(pc.floor_temporal(rows[column], unit="day"), pa.date32())
        rows = rows.filter(pc.invert(pc.is_in(row_days, value_set=missing)))
    return rows, tuple(sorted(views.days))


def query_rarely(figure: Callable[..., T], *args: Any) -> T:
    """Return the result of `ask`, read again once per `SELDOM`: for data that change hourly."""
    key = f"{figure.__module__}.{figure.__qualname__}"
    return cast(T, _cache_answer(str(_find_home()), key, repr(args), figure, args))


def forget() -> None:
    """Remove every cached result: after a write, people expect to see it."""
    _answer.clear()
    _cache_answer.clear()


@st.cache_data(
    ttl=TTL,
    max_entries=MOST_ANSWERS,
    max_size=MOST_BYTES,
    show_spinner=False,
    refresh_mode="background",
)
def _answer(
    home: str, key: str, arguments: str, _figure: Callable[..., Any], _args: tuple[Any, ...]
) -> Any:
    del key, arguments  # they are the key of the cached result
    return _figure(_open_warehouse(home), *_args)


@st.cache_data(
    ttl=SELDOM,
    max_entries=MOST_ANSWERS,
    max_size=MOST_BYTES,
    show_spinner=False,
    refresh_mode="background",
)
def _cache_answer(
    home: str, key: str, arguments: str, _figure: Callable[..., Any], _args: tuple[Any, ...]
) -> Any:
    del key, arguments
    return _figure(_open_warehouse(home), *_args)


@st.cache_resource(
    max_entries=4, show_spinner=False, on_release=lambda warehouse: warehouse.close()
)
def _open_warehouse(home: str) -> Warehouse:
    del home
    active = get_settings()
    engine = active.warehouse
    bounds = {
        "memory_limit": engine.memory_limit or MEMORY,
        # The cards of a page query at the same time, and a browser may be on this machine.
        "threads": engine.threads or max(1, read_cpu_limit() // 2),
    }
    bounded = engine.model_copy(update=bounds)
    return Warehouse.open(
        active.model_copy(update={"warehouse": bounded}),
        clock=get_now,
        within=engine.query_within,
    )


def _find_home() -> str:
    active = get_settings()
    return f"{active.home} {active.warehouse.catalog}"

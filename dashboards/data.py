"""The one door to the warehouse: opened once for reading, every figure cached and bounded.

Readers see snapshots and never hold what a writer waits for. An answer lives `TTL`; while it is
read again in the background people see the one before.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar, cast

import streamlit as st

from dashboards.active_settings import settings
from warehouse.lake import Warehouse

TTL = timedelta(seconds=60)
SELDOM = timedelta(minutes=30)
MOST_ANSWERS = 512
MOST_BYTES = "256MB"
MEMORY = "2GB"
"""What the engine may take where the settings do not say: the writer is on the same machine."""

P = ParamSpec("P")
T = TypeVar("T")


def query(figure: Callable[..., T], *args: Any) -> T:
    """Return `figure(views, *args)` from the cache or from the warehouse.

    Arguments are frozen records and plain values: what they print is what they are.

    Raises:
        WarehouseError: there is no warehouse, or it is damaged.
        TemporaryError: it is away or in use: try again.
    """
    key = f"{figure.__module__}.{figure.__qualname__}"
    return cast(T, _answer(str(_home()), key, repr(args), figure, args))


def query_rarely(figure: Callable[..., T], *args: Any) -> T:
    """Return what `ask` does, read again once in `SELDOM`: for what changes by the hour."""
    key = f"{figure.__module__}.{figure.__qualname__}"
    return cast(T, _cached_answer(str(_home()), key, repr(args), figure, args))


def forget() -> None:
    """Drop every cached answer: after a write, people want to see it."""
    _answer.clear()
    _cached_answer.clear()


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
    del key, arguments  # they are what the cache knows the answer by
    return _figure(_open_warehouse(home), *_args)


@st.cache_data(
    ttl=SELDOM,
    max_entries=MOST_ANSWERS,
    max_size=MOST_BYTES,
    show_spinner=False,
    refresh_mode="background",
)
def _cached_answer(
    home: str, key: str, arguments: str, _figure: Callable[..., Any], _args: tuple[Any, ...]
) -> Any:
    del key, arguments
    return _figure(_open_warehouse(home), *_args)


@st.cache_resource(
    max_entries=4, show_spinner=False, on_release=lambda warehouse: warehouse.close()
)
def _open_warehouse(home: str) -> Warehouse:
    del home
    active = settings()
    engine = active.warehouse
    bounded = engine.model_copy(update={"memory_limit": engine.memory_limit or MEMORY})
    return Warehouse.open(active.model_copy(update={"warehouse": bounded}))


def _home() -> str:
    active = settings()
    return f"{active.home} {active.warehouse.catalog}"

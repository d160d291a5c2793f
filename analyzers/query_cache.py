"""A cache of what an analyzer reads: its findings and its summary share the rows."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import pyarrow as pa

from fallow.protocols import Views

P = ParamSpec("P")
T = TypeVar("T")


class CachedViews:
    """Views that keep what functions under `cache_query` returned for them.

    Nothing is dropped while the object lives. One object serves one analyzer's findings and summary
    of one window, which are then of the same rows too.
    """

    def __init__(self, views: Views) -> None:
        self._views = views
        self.results: dict[tuple[Any, ...], tuple[tuple[Any, ...], Any]] = {}

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Ask the views themselves."""
        return self._views.query(sql, parameters)


def cache_query(read: Callable[P, T]) -> Callable[P, T]:
    """Cache what a function of views returns for the same arguments, per `CachedViews`.

    Only positional arguments count; with other views the function runs at each call. Its callers
    share what it returns: they read it only.
    """

    @wraps(read)
    def cached(*arguments: P.args, **named: P.kwargs) -> T:
        views = next((value for value in arguments if isinstance(value, CachedViews)), None)
        if views is None or named:
            return read(*arguments, **named)
        key = (read, *map(id, arguments))
        if key not in views.results:
            # What is kept beside the answer cannot give its identity to another object.
            views.results[key] = arguments, read(*arguments, **named)
        result: T = views.results[key][1]
        return result

    return cached

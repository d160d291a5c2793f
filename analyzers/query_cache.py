"""Cache the rows that an analyzer reads, for its findings and its summary."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import pyarrow as pa

from fallow.protocols import Views

P = ParamSpec("P")
T = TypeVar("T")


class CachedViews:
    """Views that cache the results of functions under `cache_query`.

    Nothing is dropped while the object lives. One object serves one analyzer's findings and summary
    of one window, which are then computed from the same rows.
    """

    def __init__(self, views: Views) -> None:
        self._views = views
        self.results: dict[tuple[Any, ...], tuple[tuple[Any, ...], Any]] = {}

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Query the views without the cache."""
        return self._views.query(sql, parameters)


def cache_query(read: Callable[P, T]) -> Callable[P, T]:
    """Cache the result of a function of views for the same arguments, per `CachedViews`.

    Only positional arguments count; with other views the function runs at each call. Its callers
    share the result and must not change it.
    """

    @wraps(read)
    def cached(*arguments: P.args, **named: P.kwargs) -> T:
        views = next((value for value in arguments if isinstance(value, CachedViews)), None)
        if views is None or named:
            return read(*arguments, **named)
        key = (read, *map(id, arguments))
        if key not in views.results:
            # The arguments are stored with the result, so that no other object can get their
            # identity.
            views.results[key] = arguments, read(*arguments, **named)
        result: T = views.results[key][1]
        return result

    return cached

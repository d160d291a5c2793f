"""What an analyzer reads for its findings serves its summary too."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import pyarrow as pa

from fallow.seams import Views

P = ParamSpec("P")
T = TypeVar("T")


class Once:
    """Views for one look: what functions under `once` made of them is not made again.

    A look is short. Nothing is forgotten while it lasts, so one object serves one analyzer's
    findings and summary of one window, which are then of the same rows too.
    """

    def __init__(self, views: Views) -> None:
        self._views = views
        self.made: dict[tuple[Any, ...], tuple[tuple[Any, ...], Any]] = {}

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Ask the views themselves."""
        return self._views.query(sql, parameters)


def once(read: Callable[P, T]) -> Callable[P, T]:
    """Let a function of views, given by position, run once per `Once`; of others always anew.

    Its callers share what it returns: they read it only.
    """

    @wraps(read)
    def asked(*given: P.args, **named: P.kwargs) -> T:
        views = next((value for value in given if isinstance(value, Once)), None)
        if views is None or named:
            return read(*given, **named)
        key = (read, *map(id, given))
        if key not in views.made:
            # What is kept beside the answer cannot give its identity to another object.
            views.made[key] = given, read(*given, **named)
        made: T = views.made[key][1]
        return made

    return asked

"""Find the rows that exist at a time: between two of their edges these are the same rows."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")
S = TypeVar("S")


class ActiveRows(Generic[T]):
    """Rows that each exist for a time, and those that exist just before any given time.

    A replay asks for hundreds of times; the rows between two edges are selected once.
    """

    def __init__(self, rows: Sequence[T], spans: Sequence[tuple[int, int]]) -> None:
        """`spans` holds the start and the end of each row."""
        self._rows, self._spans = rows, spans
        self._edges = sorted({edge for span in spans for edge in span})
        self._active: dict[int, tuple[T, ...]] = {}
        self._summaries: dict[tuple[int, Callable[[tuple[T, ...]], Any]], Any] = {}

    def at(self, at: int) -> tuple[T, ...]:
        """Return the rows that started before a time and did not end before it, in their order."""
        index = bisect_left(self._edges, at)
        active = self._active.get(index)
        if active is None:
            both = zip(self._rows, self._spans, strict=True)
            active = tuple(row for row, (start, end) in both if start < at <= end)
            self._active[index] = active
        return active

    def summarize(self, at: int, summarize: Callable[[tuple[T, ...]], S]) -> S:
        """Return what a pure function makes of the rows at a time; the same rows, the same object.

        Nobody changes the object: its readers share it.
        """
        key = bisect_left(self._edges, at), summarize
        if key not in self._summaries:
            self._summaries[key] = summarize(self.at(at))
        summary: S = self._summaries[key]
        return summary

"""Schedule actions at later times, each under a key; of several times the earliest counts."""

import heapq
from collections.abc import Callable, Hashable, Iterator

Act = Callable[[], None]


class Timers:
    """A queue of actions by time; those of one time in the order in which they were set."""

    def __init__(self) -> None:
        self._queue: list[tuple[float, int, Hashable]] = []
        self._set: dict[Hashable, tuple[float, int, Act]] = {}
        self._number = 0

    def set(self, at_s: float, key: Hashable, act: Act) -> None:
        """Do something at a time, unless it is set for an earlier time already."""
        entry = self._set.get(key)
        if entry is not None and entry[0] <= at_s:
            return
        self._number += 1
        self._set[key] = (at_s, self._number, act)
        heapq.heappush(self._queue, (at_s, self._number, key))

    def clear(self, key: Hashable) -> None:
        """Cancel it."""
        self._set.pop(key, None)

    def due(self, now_s: float) -> Iterator[Act]:
        """Yield the actions that are due now, oldest first."""
        while self.next() <= now_s:
            _, _, key = heapq.heappop(self._queue)
            yield self._set.pop(key)[2]

    def next(self) -> float:
        """Return the time of the next action; infinite for none."""
        while self._queue:
            at_s, number, key = self._queue[0]
            entry = self._set.get(key)
            if entry is not None and entry[1] == number:
                return at_s
            heapq.heappop(self._queue)
        return float("inf")

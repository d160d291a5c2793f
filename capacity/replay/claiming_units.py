"""Keep the units that wait for quota, by queue, and where the current cycle is in each queue."""

from bisect import bisect_left, insort

from capacity.replay.records import ReplayUnit
from capacity.replay.waiting_units import Key, build_key


class ClaimingUnits:
    """Units by queue: highest priority first, then the earliest arrival, then the name.

    A cycle judges the head of each queue. A refused head lets the next one of its queue be the
    head; it is judged again once something was freed.
    """

    def __init__(self) -> None:
        self._queues: dict[str, list[tuple[Key, ReplayUnit]]] = {}
        self._heads: dict[str, int] = {}
        """By queue: the place of its head."""
        self._names: set[str] = set()

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def add(self, unit: ReplayUnit) -> None:
        """Add a unit."""
        entry = build_key(unit), unit
        units = self._queues.setdefault(unit.queue, [])
        place = bisect_left(units, entry[0], key=_get_key)
        insort(units, entry, key=_get_key)
        self._heads[unit.queue] = min(self._heads.get(unit.queue, 0), place)
        self._names.add(unit.name)

    def remove(self, unit: ReplayUnit) -> None:
        """Remove a unit."""
        units = self._queues[unit.queue]
        place = bisect_left(units, build_key(unit), key=_get_key)
        del units[place]
        if place < self._heads[unit.queue]:
            self._heads[unit.queue] -= 1
        self._names.remove(unit.name)

    def list_heads(self) -> list[ReplayUnit]:
        """Return the head of each queue."""
        return [
            units[self._heads[queue]][1]
            for queue, units in self._queues.items()
            if self._heads[queue] < len(units)
        ]

    def get_head(self, queue: str) -> ReplayUnit:
        """Return the head of a queue."""
        return self._queues[queue][self._heads[queue]][1]

    def pass_over(self, unit: ReplayUnit) -> ReplayUnit | None:
        """Let the unit after a queue's head be its head, and return it; None = there is none."""
        self._heads[unit.queue] += 1
        units, head = self._queues[unit.queue], self._heads[unit.queue]
        return units[head][1] if head < len(units) else None

    def try_again(self) -> None:
        """Let each queue's first unit be its head."""
        self._heads = dict.fromkeys(self._heads, 0)


def _get_key(entry: tuple[Key, ReplayUnit]) -> Key:
    return entry[0]

"""Keep the waiting units by form, so that of many equal ones only the first is tried.

Units are of one form if they fail for the same reason: the same queue, priority and requests.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator

from capacity.replay.records import ReplayUnit

Key = tuple[int, float, str]


class WaitingUnits:
    """The waiting units: highest priority first, then the earliest arrival, then the name."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        self._forms: dict[str, int] = {}
        self._by_form: dict[int, list[tuple[Key, ReplayUnit]]] = {}
        self._refused: dict[int, int] = {}
        """Forms that cannot start, with their priority, until something is freed."""

    def __contains__(self, name: object) -> bool:
        return name in self._forms

    def add(self, unit: ReplayUnit) -> None:
        """Add a unit."""
        sizes = tuple(sorted(pod.form for pod in unit.members))
        form = self._numbers.setdefault((unit.queue, unit.priority, sizes), len(self._numbers))
        self._forms[unit.name] = form
        insort(self._by_form.setdefault(form, []), (build_key(unit), unit), key=_get_key)

    def remove(self, unit: ReplayUnit) -> None:
        """Remove a unit."""
        form = self._forms.pop(unit.name)
        units = self._by_form[form]
        del units[bisect_left(units, build_key(unit), key=_get_key)]
        if not units:
            del self._by_form[form]

    def list_heads(self) -> Iterator[tuple[int, ReplayUnit]]:
        """Yield the first unit of each form that may start."""
        for form, units in self._by_form.items():
            if form not in self._refused:
                yield form, units[0][1]

    def refuse(self, form: int, unit: ReplayUnit) -> None:
        """Try the units of a form no more until something is freed."""
        self._refused[form] = unit.priority

    def try_again(self) -> None:
        """Try every form again."""
        self._refused.clear()

    def try_above(self, priority: int) -> None:
        """Try the forms above a priority again."""
        self._refused = {form: p for form, p in self._refused.items() if p <= priority}


def build_key(unit: ReplayUnit) -> Key:
    """Return the key by which waiting units are ordered."""
    return -unit.priority, unit.arrival_s, unit.name


def _get_key(entry: tuple[Key, ReplayUnit]) -> Key:
    return entry[0]

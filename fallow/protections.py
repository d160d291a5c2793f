"""What must not be stopped, by one table: `protections.csv`.

Collectors store every annotation and label that it names, of a pod, of the owners above it and of
its namespace; analyzers, plans, notices and back-tests read what was stored; the guard before a
write reads the objects themselves. Columns: `where` the key stands (annotation or label: both
count; note: says something and forbids nothing; priority class; kind; namespace), `value` (`set`
unless it says false, `until` a moment, else this very value), `veto` (what the analyzers withhold:
the verdict, or only acting; a moment is weighed by the gate `kept`, which knows what time it is).
"""

import csv
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

OWNERS = "fallow.owner-annotations"
"""Of a stored pod: what the table names on the owners above it."""
NAMESPACE = "fallow.namespace-annotations"
"""Of a stored pod: what the table names on its namespace."""
_FALSE = frozenset({"false", "no", "0", "off"})
_EVER = datetime.max.replace(tzinfo=UTC)


class Protection(msgspec.Struct, frozen=True):
    """One row of the table."""

    where: str
    key: str
    value: str
    veto: str
    why: str

    def protects(self, said: str, now: datetime | None = None) -> bool:
        """Tell whether a value protects; without `now` a moment protects for ever."""
        text = said.strip()
        if self.value == "set":
            return text.lower() not in _FALSE
        if self.value == "until":
            end = moment(text)
            return now is None or end is None or end > now
        return text.lower() == self.value


@cache
def protections() -> tuple[Protection, ...]:
    """Return the rows of the table."""
    text = files("fallow").joinpath("protections.csv").read_text(encoding="utf-8")
    return tuple(Protection(**row) for row in csv.DictReader(text.splitlines()))


@cache
def annotations() -> Mapping[str, Protection]:
    """Return the annotations and labels that protect, by their key."""
    return {row.key: row for row in protections() if row.where == "annotation"}


@cache
def notes() -> frozenset[str]:
    """Return the annotations by which owners say something and forbid nothing."""
    return frozenset(row.key for row in protections() if row.where == "note")


def named(*words: Mapping[str, Any] | None) -> dict[str, str]:
    """Return what the table names among annotations and labels of one or several objects.

    Of two values of one key the one that protects counts, or protects for longer.
    """
    found: dict[str, str] = {}
    for each in words:
        for key, said in (each or {}).items():
            if isinstance(said, str) and (key in annotations() or key in notes()):
                found[key] = said if key not in found else _stronger(key, found[key], said)
    return found


def stored(notes_of_pod: Mapping[str, Any]) -> dict[str, str]:
    """Return what a stored pod's annotations say: its own, its owners' and its namespace's."""
    inherited = (notes_of_pod.get(OWNERS), notes_of_pod.get(NAMESPACE))
    maps = [each for each in inherited if isinstance(each, Mapping)]
    own = {k: str(v) for k, v in notes_of_pod.items() if "/" in k and not isinstance(v, list)}
    return {**own, **named(own, *maps)}


def moment(text: str) -> datetime | None:
    """Read a moment; without an offset it is UTC; None = it is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _stronger(key: str, one: str, other: str) -> str:
    row = annotations().get(key)
    if row is None:
        return one
    if row.value == "until":
        ends = {said: moment(said.strip()) or _EVER for said in (one, other)}
        return max((one, other), key=lambda said: ends[said])
    return one if row.protects(one) else other

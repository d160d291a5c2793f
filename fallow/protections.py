"""Decide what must not be stopped, by one table: `protections.csv`.

Collectors store every annotation and label that the table names, of a pod, of the owners above it
and of its namespace. Analyzers, plans, notices and backtests read what was stored; the guard before
a write reads the objects themselves. Columns: `where` the key is (annotation or label: both count;
note: information that forbids nothing; priority class; kind; namespace); `value` (`set`: any value
but false; `until`: a timestamp; else exactly this value); `limit` (characters of a value: what is
longer protects still and is cut, a longer note is not read); `veto` (what the analyzers withhold:
the verdict, or only the action; the gate `kept` evaluates a timestamp, because it has the current
time).
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec

from fallow.resources import read_table

OWN_DOMAIN = "fallow.dev/"
"""Domain of the keys by which owners speak to Fallow."""
OWNERS = "fallow.owner-annotations"
"""In a stored pod: what the table names on the owners above it."""
NAMESPACE = "fallow.namespace-annotations"
"""In a stored pod: what the table names on its namespace."""
UNREADABLE = "fallow.dev/unreadable"
"""In a stored object: the fields that Fallow could not read; nobody else can set it."""
_FALSE = frozenset({"false", "no", "0", "off"})
_EVER = datetime.max.replace(tzinfo=UTC)


class Protection(msgspec.Struct, frozen=True):
    """One row of the table."""

    where: str
    key: str
    value: str
    limit: str
    veto: str
    why: str

    def protects(self, value: str, now: datetime | None = None) -> bool:
        """Return whether a value protects; without `now`, a timestamp protects without end."""
        text = value.strip()
        if self.value == "set":
            return text.lower() not in _FALSE
        if self.value == "until":
            end = parse_timestamp(text)
            return now is None or end is None or end > now
        return text.lower() == self.value


@cache
def read_protections() -> tuple[Protection, ...]:
    """Return the rows of the table."""
    return tuple(Protection(**row) for row in read_table("fallow", "protections.csv"))


@cache
def read_annotations() -> Mapping[str, Protection]:
    """Return the annotations and labels that protect, by their key."""
    return {row.key: row for row in read_protections() if row.where == "annotation"}


@cache
def read_notes() -> Mapping[str, Protection]:
    """Return the annotations by which owners give information that forbids nothing."""
    return {row.key: row for row in read_protections() if row.where == "note"}


@cache
def _read_keys() -> Mapping[str, Protection]:
    return {**read_annotations(), **read_notes()}


def select_protections(*mark_sets: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the table's keys among the annotations and labels of one or several objects.

    Of two values of one key the result has the one that protects, or that protects for longer.
    """
    selected: dict[str, str] = {}
    table = _read_keys()
    for marks in mark_sets:
        for key, whole in (marks or {}).items():
            row = table.get(key)
            if row is None or not isinstance(whole, str):
                continue
            value = whole.strip()[: int(row.limit)] if row.limit else whole
            if value == whole.strip() or row.where == "annotation":
                selected[key] = (
                    value if key not in selected else _choose_stronger(key, selected[key], value)
                )
    return selected


def read_stored_pod(notes_of_pod: Mapping[str, Any]) -> dict[str, str]:
    """Return the stored annotations of a pod: its own, its owners' and its namespace's."""
    inherited = (notes_of_pod.get(OWNERS), notes_of_pod.get(NAMESPACE))
    maps = [mapping for mapping in inherited if isinstance(mapping, Mapping)]
    own = {k: str(v) for k, v in notes_of_pod.items() if "/" in k and not isinstance(v, list)}
    return {**own, **select_protections(own, *maps)}


def parse_timestamp(text: str) -> datetime | None:
    """Return a timestamp; without an offset it is UTC; None = the text is not a timestamp."""
    try:
        timestamp = datetime.fromisoformat(text)
        return timestamp.astimezone(UTC) if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # an offset at the end of the calendar leads beyond it
        return None


def _choose_stronger(key: str, value: str, other_value: str) -> str:
    row = read_annotations().get(key)
    if row is None:
        return value
    if row.value == "until":
        ends = {
            candidate: parse_timestamp(candidate.strip()) or _EVER
            for candidate in (value, other_value)
        }
        return max((value, other_value), key=lambda candidate: ends[candidate])
    return value if row.protects(value) else other_value

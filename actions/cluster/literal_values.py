"""Find and hide literal values of an object that may be secrets: no file of ours stores them.

A value stands in `env` (or a field like it, `secret_fields.csv`), or `redact` finds a secret in
the text: the password of a URL or of a connection string, in `args` as anywhere else.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from fallow.redaction import STARS, redact
from fallow.resources import read_table

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@cache
def _list_forms() -> dict[str, str]:
    """Return how each field of the table holds its values: list, map or text."""
    rows = read_table("actions.cluster", "secret_fields.csv")
    return {row["field"]: row["form"] for row in rows}


def find_literals(obj: Any) -> list[str]:
    """Return where an object has literal values that may be secrets, never the values.

    A place reads `containers main: env TOKEN`, or `containers main: args`. `valueFrom` is no
    literal value. The copy of an object that kubectl keeps in an annotation is not searched: it
    repeats the object.
    """
    return list(dict.fromkeys(_find(obj, "", "")))


def hide_literals(obj: Any) -> Any:
    """Return a copy of an object with stars in the place of literal values; names stay."""
    if isinstance(obj, str):
        return redact(obj)
    if isinstance(obj, Mapping):
        return {key: _hide(key, value) for key, value in obj.items()}
    if isinstance(obj, list | tuple):
        return [hide_literals(item) for item in obj]
    return obj


def drop_last_applied(marks: Mapping[str, str]) -> dict[str, str]:
    """Return annotations without kubectl's copy of the whole object."""
    return {key: value for key, value in marks.items() if key != _LAST_APPLIED}


def _find(value: Any, place: str, field: str) -> Iterator[str]:
    if isinstance(value, str):
        if value and redact(value) != value:
            yield f"{place}{field}"
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key == _LAST_APPLIED:
                continue
            if key in _list_forms():
                yield from (f"{place}{key} {name}".strip() for name in _list_names(key, item))
            else:
                yield from _find(item, place, key)
    elif isinstance(value, list | tuple):
        for item in value:
            name = item.get("name") if isinstance(item, Mapping) else None
            yield from _find(item, f"{field} {name}: " if name else place, field)


def _list_names(field: str, value: Any) -> Iterator[str]:
    """Yield the names of the literal values that a field of the table has."""
    form = _list_forms()[field]
    if form == "list" and isinstance(value, list | tuple):
        for item in value:
            if isinstance(item, Mapping) and item.get("value"):
                yield str(item.get("name") or "")
    elif form == "map" and isinstance(value, Mapping):
        yield from (str(key) for key, item in value.items() if item)
    elif value:
        yield ""


def _hide(key: str, value: Any) -> Any:
    form = _list_forms().get(key)
    if form is None or not value:
        return hide_literals(value)
    if form == "list" and isinstance(value, list | tuple):
        return [_hide_value(item) for item in value]
    if form == "map" and isinstance(value, Mapping):
        return dict.fromkeys(value, STARS)
    return STARS


def _hide_value(item: Any) -> Any:
    if not isinstance(item, Mapping):
        return STARS
    return {**item, "value": STARS} if item.get("value") else hide_literals(item)

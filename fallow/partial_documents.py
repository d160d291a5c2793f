"""Merge what a source that shows some labels or annotations says into what is known of an object.

kube-state-metrics shows those of its allow-lists. A document of such a source bears a mark; in it a
null says that the object has lost the key. Of the others it speaks of those that it shows of any
object of the batch; what else was known stays.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from fallow.protections import UNREADABLE

_MARK = "fallow.partial"
_IN_TEXT = f'"{_MARK}":null'
_LETTERS = re.compile(r"[^a-z0-9]")
_encoder = msgspec.json.Encoder(order="sorted")
_Path = tuple[str, ...]


def mark_partial(document: str | None, lost: Iterable[str]) -> str | None:
    """Return a document with its mark, and with the keys that the object has lost."""
    if document is None:
        return None
    values = msgspec.json.decode(document)
    deleted = dict.fromkeys(key for key in lost if key not in values)
    return _encoder.encode({_MARK: None, **deleted, **values}).decode()


def is_partial(document: str | None) -> bool:
    """Return whether a document has the mark."""
    return document is not None and _IN_TEXT in document


def list_visible(documents: Iterable[str | None]) -> frozenset[_Path]:
    """Return the keys of which documents of one source speak."""
    paths = {path for text in documents if is_partial(text) for path in _flatten(text)}
    return frozenset({*paths, (UNREADABLE,)} - {(_MARK,)})


def complete(document: str, stored: str | None, visible: frozenset[_Path]) -> str:
    """Return a partial document with what is stored of the keys that its source does not show.

    A key that the source spells with other signs is the known one.
    """
    base = _flatten(stored)
    names = {_spell(path): path for path in base}
    newer = {names.get(_spell(path), path): value for path, value in _flatten(document).items()}
    hidden = base.keys() - {names.get(_spell(path), path) for path in visible}
    merged = {path: base[path] for path in hidden} | newer
    whole: dict[str, Any] = {}
    for path, value in merged.items():
        if value is not None and path != (_MARK,):
            (whole if len(path) == 1 else whole.setdefault(path[0], {}))[path[-1]] = value
    return _encoder.encode(whole).decode()


def _flatten(document: str | None) -> dict[_Path, Any]:
    values: Mapping[str, Any] = msgspec.json.decode(document) if document else {}
    flat: dict[_Path, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= {(key, name): part for name, part in value.items()}
        else:
            flat[key,] = value
    return flat


def _spell(path: _Path) -> _Path:
    return tuple(_LETTERS.sub("", part.lower()) for part in path)

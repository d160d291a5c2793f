"""Mark texts that come from a cluster as data, and bound the size of a document.

An assistant reads a document as text. A name that a cluster's user chose may be written to seem
like an instruction, so every text is wrapped: `{"untrusted_text": "..."}`. Bare texts are only
those that can carry no sentence of somebody else: Fallow's own words, ids, and times.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from fallow.models import STATES
from fallow.texts import make_printable

MARK = "untrusted_text"
OWN_WORDS = frozenset({
    *STATES,
    *("busy", "partly_idle", "partly idle", "wasteful", "yes", "no", "USD", "loaded", "gpu"),
    *("confirmed", "suspected", "capacity", "cash", "commitment", "low", "medium", "high"),
    *("quick win", "advanced", "continuous", "total"),
})  # fmt: skip
"""Texts that stay bare wherever they are: a workload with such a name says nothing by it."""
_OWN_FORMS = re.compile(r"[0-9a-f]{12}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|\+00:00)?")
"""Ids and times."""
OPEN = frozenset({"details"})
"""Fields whose values have keys that Fallow does not know."""
EVERY_LEVEL = 100
MOST_CHARACTERS = 40_000
"""Characters of a document as JSON."""
MOST_TEXT = 1_000
"""Characters of one text."""


class LeftOut:
    """Counts what does not fit into a document."""

    def __init__(self) -> None:
        self.rows = 0
        self.characters = 0

    def cut_rows(self, rows: Sequence[Any], limit: int) -> Sequence[Any]:
        """Return the first rows, and count the others."""
        self.rows += max(len(rows) - limit, 0)
        return rows[:limit]

    def cut_text(self, text: str, limit: int) -> str:
        """Return the beginning of a text, and count the characters after it."""
        self.characters += max(len(text) - limit, 0)
        return text[:limit]


def mark_document(
    body: Mapping[str, Any], *, rows: int, levels: int = EVERY_LEVEL
) -> tuple[dict[str, Any], LeftOut]:
    """Return a document with marked texts that is small enough, and what was left out of it.

    `rows`: of each list at most. `levels`: how deep the keys of mappings are Fallow's own; what is
    deeper becomes one marked text of JSON, since keys can carry a text too.
    """
    limit, most_text = rows, MOST_TEXT
    while True:
        left_out = LeftOut()
        marked: dict[str, Any] = _Marking(limit, most_text, left_out).mark(body, levels)
        if len(json.dumps(marked)) <= MOST_CHARACTERS or not limit:
            return marked, left_out
        limit, most_text = limit // 2, max(most_text // 2, 50)


def mark_text(text: str) -> dict[str, str]:
    """Return a text as data, without control characters."""
    return {MARK: make_printable(text)}


class _Marking:
    """Marks the texts of one document."""

    def __init__(self, rows: int, characters: int, left_out: LeftOut) -> None:
        self._rows, self._characters, self._left_out = rows, characters, left_out

    def mark(self, value: Any, levels: int) -> Any:
        if isinstance(value, Mapping):
            return self._mark_mapping(value, levels)
        if isinstance(value, list | tuple):
            bounded = self._left_out.cut_rows(value, self._rows)
            return [self.mark(item, levels) for item in bounded]
        if isinstance(value, str):
            return self._mark_string(value)
        return _to_json(value)

    def _mark_mapping(self, value: Mapping[str, Any], levels: int) -> Any:
        if levels <= 0:
            return self._wrap(json.dumps(value, default=_to_json))
        return {
            key: self.mark(part, 1 if key in OPEN else levels - 1) for key, part in value.items()
        }

    def _mark_string(self, text: str) -> Any:
        if not text or text in OWN_WORDS or _OWN_FORMS.fullmatch(text):
            return text
        return self._wrap(text)

    def _wrap(self, text: str) -> dict[str, str]:
        return mark_text(self._left_out.cut_text(text, self._characters))


def _to_json(value: Any) -> Any:
    """Return a value as JSON has it: money a number, a time RFC 3339, unknown types their text."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, datetime) else mark_text(str(value))

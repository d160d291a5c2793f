"""Write the details of a finding as sentences.

An analyzer's `kinds.toml` and `detail_words.csv`, for all of them, have a sentence and a unit per
key. Keys are paths (`devices[].node`; `[]`: the rows of a list; `{}`: an object in one line; `.*`:
any name; `*_usd`: the end of an unknown name). The analyzer's own sentence comes first; an empty
one is not shown.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import cache
from typing import Any

from dashboards.text import format_three_digits
from fallow.errors import UsageError
from fallow.finding_kinds import DetailWords, read_declarations, read_kinds
from fallow.resources import read_table
from fallow.window import format_duration, parse_timestamp

LONGEST = 400
"""Characters of a sentence."""
UNKNOWN = "unknown"
_GIB = 2.0**30
_LONG_S = 1e9


def describe_kind(kind: str) -> str:
    """Return a finding's kind in words; an unknown kind is shown as a readable name."""
    return read_kinds().get(kind) or kind.replace("_", " ")


def describe_verb(verb: str | None) -> str | None:
    """Return what a finding recommends in words: some analyzers write it with hyphens."""
    return verb if verb is None or " " in verb else verb.replace("-", " ")


def describe_details(analyzer: str, details: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the details of a finding as sentences, none longer than `LONGEST`."""
    return tuple(_cut(text) for text in _write_object(analyzer, "", details))


def _write_object(analyzer: str, above: str, values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        path = f"{above}.{name}" if above else str(name)
        match value:
            case dict() if value:
                yield from _write_dict(analyzer, path, value)
            case list() if value and all(isinstance(row, dict) for row in value):
                words = _find_words(analyzer, f"{path}[]")
                if _is_hidden(words) and _is_hidden(_find_words(analyzer, path)):
                    continue
                label = words.sentence if words else _read_name(name)
                for row in value:
                    yield f"{label}: {'; '.join(_write_object(analyzer, f'{path}[]', row))}"
            case _:
                yield from _write_value(analyzer, path, str(name), value)


def _write_dict(analyzer: str, path: str, value: Mapping[str, Any]) -> Iterator[str]:
    line = _find_words(analyzer, f"{path}{{}}")
    if line and line.sentence:
        lists = {name: part for name, part in value.items() if isinstance(part, list | dict)}
        rest = {name: part for name, part in value.items() if name not in lists}
        yield f"{line.sentence}: {', '.join(_write_object(analyzer, path, rest))}"
        yield from _write_object(analyzer, path, lists)
    elif not _is_hidden(_find_words(analyzer, path)):
        yield from _write_object(analyzer, path, value)


def _write_value(analyzer: str, path: str, name: str, value: Any) -> Iterator[str]:
    words = _find_words(analyzer, path) or _find_suffix(name)
    if _is_hidden(words) or value in ([], {}):
        return
    readable = _read_name(name)
    if words is None:
        yield f"{readable}: {_write(value, '')}"
        return
    yield words.sentence.format(_write(value, words.unit), name=readable)


def _is_hidden(words: DetailWords | None) -> bool:
    return words is not None and not words.sentence


def _find_words(analyzer: str, path: str) -> DetailWords | None:
    table = _read_words()
    above = path.rpartition(".")[0]
    for key in (path, f"{above}.*"):
        for owner in (analyzer, ""):
            if (owner, key) in table:
                return table[owner, key]
    return None


def _find_suffix(name: str) -> DetailWords | None:
    table = _read_words()
    ends = (name[at:] for at in range(len(name)) if name[at] == "_")
    return next((table["", f"*{end}"] for end in ends if ("", f"*{end}") in table), None)


def _read_name(name: str) -> str:
    return re.sub(r"[_\s]+", " ", name).strip()


def _write(value: Any, unit: str) -> str:
    match value:
        case [int() | float() | None, int() | float() | None]:
            return " to ".join(_write(item, unit) for item in value)
        case list():
            items = [_write(item, unit) for item in value]
            return ("; " if any(" " in item for item in items) else ", ").join(items)
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return UNITS.get(unit, format_three_digits)(float(value))
        case dict():
            return ", ".join(f"{_read_name(str(k))} {_write(v, '')}" for k, v in value.items())
        case _:
            return UNKNOWN if value is None else _write_text(str(value), unit)


def _write_text(text: str, unit: str) -> str:
    if unit == "time":
        return _write_time(text)
    is_number = unit in UNITS and re.fullmatch(r"-?\d+(\.\d+)?", text)
    return UNITS[unit](float(text)) if is_number else text


def _write_time(text: str) -> str:
    try:
        timestamp = parse_timestamp(text, now=datetime.min)  # noqa: DTZ901  (not read: no `now`)
    except UsageError:
        return text
    return f"{timestamp:%Y-%m-%d %H:%M} UTC"


UNITS: Mapping[str, Callable[[float], str]] = {
    "share": lambda v: f"{format_three_digits(100 * v)} %",
    "count": format_three_digits,
    "gpu_hours": lambda v: f"{format_three_digits(v)} GPU-h",
    "hours": lambda v: f"{format_three_digits(v)} h",
    "seconds": lambda v: format_duration(v) if 1 <= v < _LONG_S else f"{format_three_digits(v)} s",
    "usd": lambda v: f"{'-' if v < 0 else ''}${format_three_digits(abs(v))}",
    "watts": lambda v: f"{format_three_digits(v)} W",
    "celsius": lambda v: f"{format_three_digits(v)} °C",
    "mhz": lambda v: f"{format_three_digits(v)} MHz",
    "gib": lambda v: f"{format_three_digits(v)} GiB",
    "bytes": lambda v: f"{format_three_digits(v / _GIB)} GiB",
    "bytes_per_s": lambda v: f"{format_three_digits(v / 1e6)} MB/s",
    "gb_per_s": lambda v: f"{format_three_digits(v)} GB/s",
    "millicores": lambda v: f"{format_three_digits(v / 1000)} cores",
    "times": lambda v: f"{format_three_digits(v)} times",
}
"""How a number is written, by its unit; three significant digits."""


@cache
def _read_words() -> dict[tuple[str, str], DetailWords]:
    common = {
        ("", row["key"]): DetailWords(row["sentence"], row["unit"])
        for row in read_table("dashboards", "detail_words.csv")
    }
    return common | {
        (analyzer, key): words
        for analyzer, declaration in read_declarations().items()
        for key, words in declaration.details.items()
    }


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"

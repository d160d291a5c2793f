"""The shapes of a policy key's value: parsing, description in words, and JSON schema."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime, time, timedelta
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, Generic, TypeVar
from zoneinfo import ZoneInfo, available_timezones

import msgspec
import yaml

from actions.policy.model import PolicyAmount
from actions.policy.tree import Location, Node, describe_node, is_null, read_pairs, to_plain
from fallow.crontab import parse_triggers
from fallow.errors import UsageError
from fallow.renamed import read_renames
from fallow.window import format_duration, parse_duration

T = TypeVar("T")
RENAMED_KEYS = read_renames("policy")
"""Keys of before 0.1.0 and their present names."""

_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?")
_NUMBERS = {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}
_FIRST = re.compile(r"first ([1-9]\d{0,5})")


class InvalidValue(Exception):  # noqa: N818  (it is no error of ours: it becomes a line of the report)
    """An error in a node, or in one inside it."""

    node: Node | None = None


class ValueShape(ABC, Generic[T]):
    """Read one kind of value."""

    words: str = ""
    schema: Mapping[str, Any] = {}

    @abstractmethod
    def read(self, node: Node, location: Location) -> T | None:
        """Return the value; record an error and return None where it is wrong."""


class SingleValueShape(ValueShape[T]):
    """Read a value with at most one error."""

    @abstractmethod
    def of(self, node: Node) -> T:
        """Return the value of a node, or raise InvalidValue."""

    def read(self, node: Node, location: Location) -> T | None:
        """Return the value; record an error and return None where it is wrong."""
        try:
            return self.of(node)
        except InvalidValue as bad:
            location.report(bad.node or node, f"{bad}; legal: {self.words}")
            return None


class TextShape(SingleValueShape[str]):
    """A text of a given form."""

    def __init__(self, words: str, pattern: str = r".+") -> None:
        self.words, self.pattern = words, re.compile(pattern, re.DOTALL)
        self.schema = {"type": "string", "pattern": f"^{pattern}$"}

    def of(self, node: Node) -> str:
        """Return a node that YAML reads as text."""
        text = _text(node)
        if not self.pattern.fullmatch(text):
            raise InvalidValue(f"{text!r} is not legal")
        return text


class ChoiceShape(SingleValueShape[str]):
    """One of a list of words."""

    def __init__(self, *choices: str) -> None:
        self.choices, self.words = choices, ", ".join(choices)
        self.schema = {"enum": list(choices)}

    def of(self, node: Node) -> str:
        """Return the word."""
        text = _raw(node)
        if text not in self.choices:
            raise InvalidValue(f"{text!r} is not legal{suggest_word(text, self.choices)}")
        return text


class FlagShape(SingleValueShape[bool]):
    """True or false, in these words only: YAML's yes, on and y are error-prone."""

    words = "true, false"
    schema: Mapping[str, Any] = {"type": "boolean"}

    def of(self, node: Node) -> bool:
        """Return true or false."""
        text = _raw(node)
        if text not in {"true", "false"} or node.tag != "tag:yaml.org,2002:bool":
            raise InvalidValue(f"{text!r} is neither")
        return text == "true"


class NumberShape(SingleValueShape[Decimal]):
    """A number in plain digits."""

    def __init__(self, low: int = 0, high: int | None = None, *, whole: bool = False) -> None:
        self.low, self.high, self.whole = low, high, whole
        top = f" to {high}" if high is not None else " or more"
        self.words = f"a {'whole ' if whole else ''}number, {low}{top}"
        ends = {"minimum": low} | ({"maximum": high} if high is not None else {})
        self.schema = {"type": "integer" if whole else "number", **ends}

    def of(self, node: Node) -> Decimal:
        """Return the number."""
        value = _number(node)
        high = value if self.high is None else Decimal(self.high)
        if not self.low <= value <= high or (self.whole and value != int(value)):
            raise InvalidValue(f"{value} is not legal")
        return value


class PercentShape(SingleValueShape[Decimal]):
    """A percentage, as a share of one."""

    words = "a percentage, 0% to 100%"
    schema: Mapping[str, Any] = {"type": "string", "pattern": r"^\d+(\.\d+)?%$"}

    def of(self, node: Node) -> Decimal:
        """Return the share."""
        text = _raw(node)
        if not text.endswith("%") or not _NUMBER.fullmatch(text[:-1]):
            raise InvalidValue(f"{text!r} is none")
        value = Decimal(text[:-1]) / 100
        if value > 1:
            raise InvalidValue(f"{text} is more than all")
        return value


class AmountShape(SingleValueShape[PolicyAmount]):
    """A number, or a percentage of the fleet."""

    def __init__(self, *, whole: bool) -> None:
        self.number, self.share = NumberShape(whole=whole), PercentShape()
        self.words = f"{self.number.words}, or a percentage such as 5%"
        self.schema = {"anyOf": [self.number.schema, self.share.schema]}

    def of(self, node: Node) -> PolicyAmount:
        """Return the amount."""
        if isinstance(node, yaml.ScalarNode) and node.value.endswith("%"):
            return PolicyAmount(self.share.of(node), share=True)
        return PolicyAmount(self.number.of(node))


class DurationShape(SingleValueShape[timedelta]):
    """A duration."""

    def __init__(self, least: timedelta, most: timedelta, *, zero: bool = False) -> None:
        self.least, self.most, self.zero = least, most, zero
        ends = " to ".join(format_duration(d.total_seconds()) for d in (least, most))
        self.words = f"a duration such as 30m, 24h or 7d, {ends}{', or 0s' if zero else ''}"
        self.schema = {"type": "string", "pattern": r"^(\d+(\.\d+)?(ms|s|m|h|d|w))+$"}

    def of(self, node: Node) -> timedelta:
        """Return the duration."""
        text = _raw(node)
        if self.zero and text == "0s":
            return timedelta(0)
        try:
            value = parse_duration(text)
        except UsageError:
            raise InvalidValue(f"{text!r} is no duration") from None
        if not self.least <= value <= self.most:
            raise InvalidValue(f"{text} is too {'short' if value < self.least else 'long'}")
        return value


class TimeZoneShape(SingleValueShape[str]):
    """A time zone by its name."""

    words = "a name of the IANA time zones such as UTC or Europe/Berlin"
    schema: Mapping[str, Any] = {"type": "string"}

    def of(self, node: Node) -> str:
        """Return its name."""
        text = _text(node)
        zones = available_timezones()
        if text not in zones:
            raise InvalidValue(f"{text!r} is no time zone{suggest_word(text, sorted(zones))}")
        ZoneInfo(text)
        return text


class CronShape(SingleValueShape[str]):
    """A cron expression."""

    words = "minute, hour, day of month, month, day of week, such as '0 9 * * mon-fri'"
    schema: Mapping[str, Any] = {"type": "string"}

    def of(self, node: Node) -> str:
        """Return the expression."""
        text = _text(node)
        try:
            parse_triggers(text)
        except ValueError as error:
            raise InvalidValue(str(error)) from error
        return text


class TimestampShape(SingleValueShape[datetime]):
    """A day or a time, without a zone where none is written; `last` = the day's end."""

    words = "a day such as 2026-12-24, or a moment such as 2026-12-24T18:00"
    schema: Mapping[str, Any] = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\d"}

    def __init__(self, *, last: bool) -> None:
        self.last = last

    def of(self, node: Node) -> datetime:
        """Return the time."""
        text = _raw(node)
        try:
            parsed = datetime.fromisoformat(text)
        except ValueError:
            raise InvalidValue(f"{text!r} is neither") from None
        day = re.fullmatch(r"\d{4}-\d\d-\d\d", text) is not None
        if parsed.year not in range(2000, 2200):
            raise InvalidValue(f"the year of {text} is not of this century or the next")
        return datetime.combine(parsed + timedelta(days=1), time()) if day and self.last else parsed


class ApprovalShape(SingleValueShape[tuple[str, int]]):
    """Which actions need approval."""

    words = "none, first N (such as first 10), always"
    schema: Mapping[str, Any] = {"type": "string", "pattern": r"^(none|always|first [1-9]\d*)$"}

    def of(self, node: Node) -> tuple[str, int]:
        """Return the word and the number."""
        text = _raw(node)
        if text in {"none", "always"}:
            return text, 0
        parsed = _FIRST.fullmatch(text)
        if parsed is None:
            raise InvalidValue(f"{text!r} is not legal")
        return "first", int(parsed.group(1))


class TextListShape(SingleValueShape[tuple[str, ...]]):
    """A text, or a list of texts; optionally from a list of words only."""

    def __init__(self, words: str, item: SingleValueShape[str], *, empty: bool = False) -> None:
        self.words, self.one, self.empty = words, item, empty
        list_schema = {"type": "array", "items": item.schema, "minItems": 0 if empty else 1}
        self.schema = {"anyOf": [item.schema, list_schema]}

    def of(self, node: Node) -> tuple[str, ...]:
        """Return the texts."""
        items = node.value if isinstance(node, yaml.SequenceNode) else [node]
        if not items and not self.empty:
            raise InvalidValue(
                "the list is empty: it would match nothing; leave the key out for any"
            )
        parsed = tuple(self._one(item) for item in items)
        duplicates = sorted({text for text in parsed if parsed.count(text) > 1})
        if duplicates:
            raise InvalidValue(f"{duplicates[0]!r} stands twice")
        return parsed

    def _one(self, item: Node) -> str:
        try:
            return self.one.of(item)
        except InvalidValue as bad:
            bad.node = item
            raise


class LabelsShape(SingleValueShape[dict[str, tuple[str, ...]]]):
    """Labels, each with the values that match."""

    words = "a mapping of label: value, or label: [value, ...]; values are globs"

    def __init__(self, values: TextListShape) -> None:
        self.values = values
        self.schema = {"type": "object", "additionalProperties": values.schema}

    def of(self, node: Node) -> dict[str, tuple[str, ...]]:
        """Return the globs by label."""
        if not isinstance(node, yaml.MappingNode):
            raise InvalidValue(f"is {describe_node(node)}")
        location = Location("", [])
        parsed = {
            name: self.values.of(value) for name, (_, value) in read_pairs(node, location).items()
        }
        if location.problems:
            raise InvalidValue(f"{location.problems[0].key} {location.problems[0].text}")
        return parsed


class PlainMappingShape(SingleValueShape[dict[str, Any]]):
    """A mapping that the executor reads."""

    words = "a mapping, as the executor reads it"
    schema: Mapping[str, Any] = {"type": "object"}

    def of(self, node: Node) -> dict[str, Any]:
        """Return the mapping as plain data, if JSON can represent it."""
        if not isinstance(node, yaml.MappingNode):
            raise InvalidValue(f"is {describe_node(node)}")
        try:
            parsed = msgspec.json.decode(msgspec.json.encode(to_plain(node)))
        except (TypeError, ValueError, yaml.YAMLError) as error:
            raise InvalidValue(f"is not plain data: {' '.join(str(error).split())}") from error
        return dict(parsed)


class KeySpec(msgspec.Struct, frozen=True):
    """A key: its values, its meaning, and its default."""

    shape: Any
    what: str
    default: str = "unset"
    required: bool = False


class MappingShape(ValueShape[dict[str, Any]]):
    """A mapping with its own keys; all others are errors."""

    words = "a mapping"

    def __init__(self, keys: Mapping[str, KeySpec]) -> None:
        self.keys = keys
        needed = [name for name, key in keys.items() if key.required]
        self.schema = {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                name: {"description": key.what, **key.shape.schema} for name, key in keys.items()
            },
        } | ({"required": needed} if needed else {})

    def read(self, node: Node, location: Location) -> dict[str, Any] | None:
        """Return the values of the keys in the file; record an error for every wrong one."""
        if not isinstance(node, yaml.MappingNode):
            problem = "nothing stands here" if is_null(node) else f"is {describe_node(node)}"
            location.report(node, f"{problem}; legal: a mapping with {', '.join(self.keys)}")
            return None
        values: dict[str, Any] = {}
        entries = read_pairs(node, location)
        for name, (key_node, value) in entries.items():
            key, key_location = self.keys.get(name), location.at(name)
            if key is None and (new_name := RENAMED_KEYS.get(name)) in self.keys:
                key_location.report(key_node, f"is called {new_name} since 0.1.0")
            elif key is None:
                suggestion = suggest_word(name, self.keys)
                key_location.report(
                    key_node, f"no such key{suggestion}; legal here: {', '.join(self.keys)}"
                )
            elif is_null(value):
                key_location.report(value, f"nothing stands here; legal: {key.shape.words}")
            else:
                values[name] = key.shape.read(value, key_location)
        present = {RENAMED_KEYS.get(name, name) for name in entries}
        for name, key in self.keys.items():
            if key.required and name not in present:
                location.at(name).report(node, f"is missing; legal: {key.shape.words}")
        return values


class ListShape(ValueShape[list[Any]]):
    """A list of mappings."""

    def __init__(self, item: MappingShape) -> None:
        self.item, self.words = item, f"a list of mappings with {', '.join(item.keys)}"
        self.schema = {"type": "array", "items": item.schema}

    def read(self, node: Node, location: Location) -> list[Any] | None:
        """Return the items; each has its line."""
        if not isinstance(node, yaml.SequenceNode):
            location.report(node, f"is {describe_node(node)}; legal: {self.words}")
            return None
        return [
            (item, self.item.read(item, location.at(number)))
            for number, item in enumerate(node.value)
        ]


def suggest_word(word: str, legal: Any) -> str:
    """Return a question with the nearest legal word, or an empty text."""
    matches = get_close_matches(word, list(legal), 1, 0.6)
    return f": did you mean {matches[0]}?" if matches else ""


def _raw(node: Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise InvalidValue(f"is {describe_node(node)}")
    return str(node.value)


def _text(node: Node) -> str:
    text = _raw(node)
    if node.tag != "tag:yaml.org,2002:str":
        raise InvalidValue(f"YAML reads {text!r} as {describe_node(node)}: quote it")
    return text


def _number(node: Node) -> Decimal:
    text = _raw(node)
    if not _NUMBER.fullmatch(text) or node.tag not in _NUMBERS:
        raise InvalidValue(f"{text!r} is no number in plain digits")
    return Decimal(text)

"""What a key of a policy may hold: read from a node, said in words, and as JSON schema."""

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

from actions.policy.model import Amount
from actions.policy.tree import Node, Where, kind, null, pairs, plain
from fallow.crontab import parsed
from fallow.errors import UsageError
from fallow.window import format_duration, parse_duration

T = TypeVar("T")
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?")
_NUMBERS = {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}
_FIRST = re.compile(r"first ([1-9]\d{0,5})")


class Bad(Exception):  # noqa: N818  (it is no error of ours: it becomes a line of the report)
    """What is wrong with a node, or with one inside it."""

    node: Node | None = None


class Shape(ABC, Generic[T]):
    """Read one kind of value."""

    words: str = ""
    schema: Mapping[str, Any] = {}

    @abstractmethod
    def read(self, node: Node, where: Where) -> T | None:
        """Return the value; what is wrong is taken down, and None returned."""


class Value(Shape[T]):
    """Read a value of which at most one thing is wrong."""

    @abstractmethod
    def of(self, node: Node) -> T:
        """Return the value of a node, or raise Bad."""

    def read(self, node: Node, where: Where) -> T | None:
        """Return the value; what is wrong is taken down, and None returned."""
        try:
            return self.of(node)
        except Bad as bad:
            where.wrong(bad.node or node, f"{bad}; legal: {self.words}")
            return None


class Text(Value[str]):
    """A text of a form."""

    def __init__(self, words: str, pattern: str = r".+") -> None:
        self.words, self.pattern = words, re.compile(pattern, re.DOTALL)
        self.schema = {"type": "string", "pattern": f"^{pattern}$"}

    def of(self, node: Node) -> str:
        """Return a text that YAML reads as one."""
        text = _text(node)
        if not self.pattern.fullmatch(text):
            raise Bad(f"{text!r} is not legal")
        return text


class Choice(Value[str]):
    """One of some words."""

    def __init__(self, *choices: str) -> None:
        self.choices, self.words = choices, ", ".join(choices)
        self.schema = {"enum": list(choices)}

    def of(self, node: Node) -> str:
        """Return the word."""
        text = _raw(node)
        if text not in self.choices:
            raise Bad(f"{text!r} is not legal{did_you_mean(text, self.choices)}")
        return text


class Flag(Value[bool]):
    """True or false, in these words only: YAML's yes, on and y are traps."""

    words = "true, false"
    schema: Mapping[str, Any] = {"type": "boolean"}

    def of(self, node: Node) -> bool:
        """Return true or false."""
        text = _raw(node)
        if text not in {"true", "false"} or node.tag != "tag:yaml.org,2002:bool":
            raise Bad(f"{text!r} is neither")
        return text == "true"


class Number(Value[Decimal]):
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
            raise Bad(f"{value} is not legal")
        return value


class Share(Value[Decimal]):
    """A percentage, as a part of one."""

    words = "a percentage, 0% to 100%"
    schema: Mapping[str, Any] = {"type": "string", "pattern": r"^\d+(\.\d+)?%$"}

    def of(self, node: Node) -> Decimal:
        """Return the part."""
        text = _raw(node)
        if not text.endswith("%") or not _NUMBER.fullmatch(text[:-1]):
            raise Bad(f"{text!r} is none")
        value = Decimal(text[:-1]) / 100
        if value > 1:
            raise Bad(f"{text} is more than all")
        return value


class AmountShape(Value[Amount]):
    """A number, or a percentage of the fleet."""

    def __init__(self, *, whole: bool) -> None:
        self.number, self.share = Number(whole=whole), Share()
        self.words = f"{self.number.words}, or a percentage such as 5%"
        self.schema = {"anyOf": [self.number.schema, self.share.schema]}

    def of(self, node: Node) -> Amount:
        """Return the amount."""
        if isinstance(node, yaml.ScalarNode) and node.value.endswith("%"):
            return Amount(self.share.of(node), share=True)
        return Amount(self.number.of(node))


class Span(Value[timedelta]):
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
            raise Bad(f"{text!r} is no duration") from None
        if not self.least <= value <= self.most:
            raise Bad(f"{text} is too {'short' if value < self.least else 'long'}")
        return value


class Zone(Value[str]):
    """A time zone by its name."""

    words = "a name of the IANA time zones such as UTC or Europe/Berlin"
    schema: Mapping[str, Any] = {"type": "string"}

    def of(self, node: Node) -> str:
        """Return its name."""
        text = _text(node)
        known = available_timezones()
        if text not in known:
            raise Bad(f"{text!r} is no time zone{did_you_mean(text, sorted(known))}")
        ZoneInfo(text)
        return text


class Cron(Value[str]):
    """A cron expression."""

    words = "minute, hour, day of month, month, day of week, such as '0 9 * * mon-fri'"
    schema: Mapping[str, Any] = {"type": "string"}

    def of(self, node: Node) -> str:
        """Return the expression."""
        text = _text(node)
        try:
            parsed(text)
        except ValueError as error:
            raise Bad(str(error)) from error
        return text


class Moment(Value[datetime]):
    """A day or a moment, without a zone where none is written; `last` = the day's end."""

    words = "a day such as 2026-12-24, or a moment such as 2026-12-24T18:00"
    schema: Mapping[str, Any] = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\d"}

    def __init__(self, *, last: bool) -> None:
        self.last = last

    def of(self, node: Node) -> datetime:
        """Return the moment."""
        text = _raw(node)
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            raise Bad(f"{text!r} is neither") from None
        day = re.fullmatch(r"\d{4}-\d\d-\d\d", text) is not None
        if found.year not in range(2000, 2200):
            raise Bad(f"the year of {text} is not of this century or the next")
        return datetime.combine(found + timedelta(days=1), time()) if day and self.last else found


class When(Value[tuple[str, int]]):
    """Which actions need approval."""

    words = "none, first N (such as first 10), always"
    schema: Mapping[str, Any] = {"type": "string", "pattern": r"^(none|always|first [1-9]\d*)$"}

    def of(self, node: Node) -> tuple[str, int]:
        """Return the word and the number."""
        text = _raw(node)
        if text in {"none", "always"}:
            return text, 0
        found = _FIRST.fullmatch(text)
        if found is None:
            raise Bad(f"{text!r} is not legal")
        return "first", int(found.group(1))


class Words(Value[tuple[str, ...]]):
    """A text, or a list of texts; perhaps of some words only."""

    def __init__(self, words: str, one: Value[str], *, empty: bool = False) -> None:
        self.words, self.one, self.empty = words, one, empty
        listed = {"type": "array", "items": one.schema, "minItems": 0 if empty else 1}
        self.schema = {"anyOf": [one.schema, listed]}

    def of(self, node: Node) -> tuple[str, ...]:
        """Return the texts."""
        items = node.value if isinstance(node, yaml.SequenceNode) else [node]
        if not items and not self.empty:
            raise Bad("the list is empty: it would match nothing; leave the key out for any")
        found = tuple(self._one(item) for item in items)
        twice = sorted({text for text in found if found.count(text) > 1})
        if twice:
            raise Bad(f"{twice[0]!r} stands twice")
        return found

    def _one(self, item: Node) -> str:
        try:
            return self.one.of(item)
        except Bad as bad:
            bad.node = item
            raise


class Labels(Value[dict[str, tuple[str, ...]]]):
    """Labels, each with the values that match."""

    words = "a mapping of label: value, or label: [value, ...]; values are globs"

    def __init__(self, values: Words) -> None:
        self.values = values
        self.schema = {"type": "object", "additionalProperties": values.schema}

    def of(self, node: Node) -> dict[str, tuple[str, ...]]:
        """Return the globs by label."""
        if not isinstance(node, yaml.MappingNode):
            raise Bad(f"is {kind(node)}")
        where = Where("", [])
        found = {name: self.values.of(value) for name, (_, value) in pairs(node, where).items()}
        if where.problems:
            raise Bad(f"{where.problems[0].key} {where.problems[0].text}")
        return found


class Anything(Value[dict[str, Any]]):
    """A mapping that the executor reads."""

    words = "a mapping, as the executor reads it"
    schema: Mapping[str, Any] = {"type": "object"}

    def of(self, node: Node) -> dict[str, Any]:
        """Return the mapping as plain data, if JSON can say it."""
        if not isinstance(node, yaml.MappingNode):
            raise Bad(f"is {kind(node)}")
        try:
            found = msgspec.json.decode(msgspec.json.encode(plain(node)))
        except (TypeError, ValueError, yaml.YAMLError) as error:
            raise Bad(f"is not plain data: {' '.join(str(error).split())}") from error
        return dict(found)


class Key(msgspec.Struct, frozen=True):
    """A key: what it may hold, what it means, and what holds where it is left out."""

    shape: Any
    what: str
    default: str = "unset"
    required: bool = False


class Section(Shape[dict[str, Any]]):
    """A mapping with keys of its own; others are wrong."""

    words = "a mapping"

    def __init__(self, keys: Mapping[str, Key]) -> None:
        self.keys = keys
        needed = [name for name, key in keys.items() if key.required]
        self.schema = {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                name: {"description": key.what, **key.shape.schema} for name, key in keys.items()
            },
        } | ({"required": needed} if needed else {})

    def read(self, node: Node, where: Where) -> dict[str, Any] | None:
        """Return the values of the keys that stand there; every wrong one is taken down."""
        if not isinstance(node, yaml.MappingNode):
            said = "nothing stands here" if null(node) else f"is {kind(node)}"
            where.wrong(node, f"{said}; legal: a mapping with {', '.join(self.keys)}")
            return None
        found: dict[str, Any] = {}
        told = pairs(node, where)
        for name, (key_node, value) in told.items():
            key, here = self.keys.get(name), where.at(name)
            if key is None:
                near = did_you_mean(name, self.keys)
                here.wrong(key_node, f"no such key{near}; legal here: {', '.join(self.keys)}")
            elif null(value):
                here.wrong(value, f"nothing stands here; legal: {key.shape.words}")
            else:
                found[name] = key.shape.read(value, here)
        for name, key in self.keys.items():
            if key.required and name not in told:
                where.at(name).wrong(node, f"is missing; legal: {key.shape.words}")
        return found


class Items(Shape[list[Any]]):
    """A list of mappings."""

    def __init__(self, item: Section) -> None:
        self.item, self.words = item, f"a list of mappings with {', '.join(item.keys)}"
        self.schema = {"type": "array", "items": item.schema}

    def read(self, node: Node, where: Where) -> list[Any] | None:
        """Return the items; each knows its line."""
        if not isinstance(node, yaml.SequenceNode):
            where.wrong(node, f"is {kind(node)}; legal: {self.words}")
            return None
        return [
            (item, self.item.read(item, where.at(number))) for number, item in enumerate(node.value)
        ]


def did_you_mean(word: str, legal: Any) -> str:
    """Return a question with the nearest legal word, or nothing."""
    near = get_close_matches(word, list(legal), 1, 0.6)
    return f": did you mean {near[0]}?" if near else ""


def _raw(node: Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise Bad(f"is {kind(node)}")
    return str(node.value)


def _text(node: Node) -> str:
    text = _raw(node)
    if node.tag != "tag:yaml.org,2002:str":
        raise Bad(f"YAML reads {text!r} as {kind(node)}: quote it")
    return text


def _number(node: Node) -> Decimal:
    text = _raw(node)
    if not _NUMBER.fullmatch(text) or node.tag not in _NUMBERS:
        raise Bad(f"{text!r} is no number in plain digits")
    return Decimal(text)

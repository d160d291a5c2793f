"""The types of a policy's values: each reads a YAML node, and says what is legal.

Nodes are read as they are written, because YAML's own typing is error-prone: `no` is a text where
a name is needed, `yes` is no flag, and `0x10`, `1e3` and `'8'` are no numbers.
"""

import re
from collections.abc import Callable
from datetime import datetime, time, timedelta
from decimal import Decimal
from difflib import get_close_matches
from typing import Annotated, Any, Literal
from zoneinfo import available_timezones

import msgspec
import yaml
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    WrapValidator,
)
from pydantic_core import CoreSchema, core_schema

from actions.policy.model import Counts, Mode, PolicyAmount, Scope
from actions.policy.tree import Node, describe_node, read_pairs, to_plain
from fallow.crontab import parse_triggers
from fallow.errors import UsageError
from fallow.models import Evidence
from fallow.window import format_duration, parse_duration

Texts = tuple[str, ...]
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
MAX_GRACE = 6 * DAY
"""Findings cover the last seven days: a notice has to be within what they cover."""
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?")
_NUMBERS = {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}
_FIRST = re.compile(r"first ([1-9]\d{0,5})")


class Legal(msgspec.Struct, frozen=True):
    """What a value may hold, in words, where its type does not say it."""

    words: str


def describe_span(least: timedelta, most: timedelta) -> str:
    """Return the legal durations in words."""
    ends = " to ".join(format_duration(length.total_seconds()) for length in (least, most))
    return f"a duration such as 30m, 24h or 7d, {ends}"


class Several(msgspec.Struct, frozen=True):
    """A list of different texts, or one text in place of a list of one."""

    least: int = 1

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(self._read, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        several = handler(schema)
        return {"anyOf": [several["items"], several | {"minItems": self.least}]}

    def _read(self, node: Node, handler: Callable[[list[Node]], Texts]) -> Texts:
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        if len(nodes) < self.least:
            raise ValueError("the list is empty: it would match nothing; leave the key out for any")
        texts = handler(nodes)
        duplicates = sorted({text for text in texts if texts.count(text) > 1})
        if duplicates:
            raise ValueError(f"{duplicates[0]!r} stands twice")
        return texts


def suggest_word(word: str, legal: Any) -> str:
    """Return a question with the nearest legal word, or an empty text."""
    matches = get_close_matches(word, list(legal), 1, 0.6)
    return f": did you mean {matches[0]}?" if matches else ""


def _explain_wrong_kind(node: Node) -> ValueError:
    return ValueError(f"is {describe_node(node)}")


def _format_scalar(node: Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise _explain_wrong_kind(node)
    return str(node.value)


def _parse_text(node: Node) -> str:
    text = _format_scalar(node)
    if node.tag != "tag:yaml.org,2002:str":
        raise ValueError(f"YAML reads {text!r} as {describe_node(node)}: quote it")
    return text


def _parse_flag(node: Node) -> bool:
    text = _format_scalar(node)
    if text not in {"true", "false"} or node.tag != "tag:yaml.org,2002:bool":
        raise ValueError(f"{text!r} is neither")
    return text == "true"


def _parse_number(node: Node) -> Decimal:
    text = _format_scalar(node)
    if not _NUMBER.fullmatch(text) or node.tag not in _NUMBERS:
        raise ValueError(f"{text!r} is no number in plain digits")
    return Decimal(text)


def _parse_percentage(node: Node) -> Decimal:
    text = _format_scalar(node)
    if not text.endswith("%") or not _NUMBER.fullmatch(text[:-1]):
        raise ValueError(f"{text!r} is none")
    share = Decimal(text[:-1]) / 100
    if share > 1:
        raise ValueError(f"{text} is more than all")
    return share


def _parse_amount(node: Node) -> PolicyAmount:
    if isinstance(node, yaml.ScalarNode) and node.value.endswith("%"):
        return PolicyAmount(_parse_percentage(node), share=True)
    return PolicyAmount(_parse_number(node))


def _parse_whole(amount: PolicyAmount) -> PolicyAmount:
    if not amount.share and amount.value != int(amount.value):
        raise ValueError(f"{amount.value} is not legal")
    return amount


def _parse_duration(node: Node) -> timedelta:
    text = _format_scalar(node)
    try:
        return parse_duration(text)
    except UsageError:
        raise ValueError(f"{text!r} is no duration") from None


def _parse_optional_duration(node: Node, handler: Callable[[Node], timedelta]) -> timedelta:
    return timedelta(0) if _format_scalar(node) == "0s" else handler(node)


def _parse_time_zone(node: Node) -> str:
    text, zones = _parse_text(node), available_timezones()
    if text not in zones:
        raise ValueError(f"{text!r} is no time zone{suggest_word(text, sorted(zones))}")
    return text


def _parse_schedule(node: Node) -> str:
    text = _parse_text(node)
    parse_triggers(text)
    return text


def _parse_timestamp(node: Node) -> datetime:
    text = _format_scalar(node)
    try:
        timestamp = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither") from None
    if timestamp.year not in range(2000, 2200):
        raise ValueError(f"the year of {text} is not of this century or the next")
    return timestamp


def _parse_last_timestamp(node: Node) -> datetime:
    timestamp = _parse_timestamp(node)
    is_day = re.fullmatch(r"\d{4}-\d\d-\d\d", node.value)
    return datetime.combine(timestamp + DAY, time()) if is_day else timestamp


def _parse_approval(node: Node) -> tuple[str, int]:
    text = _format_scalar(node)
    if text in {"none", "always"}:
        return text, 0
    first = _FIRST.fullmatch(text)
    if first is None:
        raise ValueError(f"{text!r} is not legal")
    return "first", int(first.group(1))


def list_items(node: Node) -> list[Node]:
    """Return the items of a list."""
    if not isinstance(node, yaml.SequenceNode):
        raise _explain_wrong_kind(node)
    return list(node.value)


def _parse_labels(node: Node) -> dict[str, Node]:
    if not isinstance(node, yaml.MappingNode):
        raise _explain_wrong_kind(node)
    entries, problems = read_pairs(node)
    for name, _, text in problems:
        raise ValueError(f"{name} {text}".lstrip())
    return {name: value for name, (_, value) in entries.items()}


def _parse_mapping(node: Node) -> dict[str, Any]:
    if not isinstance(node, yaml.MappingNode):
        raise _explain_wrong_kind(node)
    try:
        return dict(msgspec.json.decode(msgspec.json.encode(to_plain(node))))
    except (TypeError, ValueError, yaml.YAMLError) as error:
        raise ValueError(f"is not plain data: {' '.join(str(error).split())}") from error


TEXT, WORD, ITEMS = (
    BeforeValidator(_parse_text),
    BeforeValidator(_format_scalar),
    BeforeValidator(list_items),
)

# The JSON schema, for editors, of values that Python has in another type than YAML.
_NumberText = Annotated[float, Field(ge=0)]
_WholeText = Annotated[int, Field(ge=0)]
_PercentageText = Annotated[str, Field(pattern=r"^\d+(\.\d+)?%$")]
_DurationText = Annotated[str, Field(pattern=r"^(\d+(\.\d+)?(ms|s|m|h|d|w))+$")]
_DayText = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\d")]
_ApprovalText = Annotated[str, Field(pattern=r"^(none|always|first [1-9]\d*)$")]

Name = Annotated[
    str,
    Field(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$"),
    TEXT,
    Legal("lower case, digits and -, 63 at most"),
]
Line = Annotated[str, Field(pattern=r"^\S[^\r\n]{0,499}$"), TEXT, Legal("a text of one line")]
Flag = Annotated[bool, BeforeValidator(_parse_flag), Legal("true, false")]
Number = Annotated[float, Field(ge=0), BeforeValidator(_parse_number)]
Ratio = Annotated[float, Field(ge=0, le=1), BeforeValidator(_parse_number)]
Count = Annotated[int, Field(ge=1, le=1000), BeforeValidator(_parse_number)]
Dollars = Annotated[
    Decimal, Field(ge=0), BeforeValidator(_parse_number, json_schema_input_type=_NumberText)
]
Percentage = Annotated[
    float,
    BeforeValidator(_parse_percentage, json_schema_input_type=_PercentageText),
    Legal("a percentage, 0% to 100%"),
]
Amount = Annotated[
    PolicyAmount,
    PlainValidator(_parse_amount, json_schema_input_type=_NumberText | _PercentageText),
    Legal("a number, 0 or more, or a percentage such as 5%"),
]
WholeAmount = Annotated[
    PolicyAmount,
    PlainValidator(_parse_amount, json_schema_input_type=_WholeText | _PercentageText),
    AfterValidator(_parse_whole),
    Legal("a whole number, 0 or more, or a percentage such as 5%"),
]
_DURATION = BeforeValidator(_parse_duration, json_schema_input_type=_DurationText)
Grace = Annotated[timedelta, Field(ge=MINUTE, le=MAX_GRACE), _DURATION]
UpTo30Days = Annotated[timedelta, Field(ge=MINUTE, le=30 * DAY), _DURATION]
UpTo31Days = Annotated[timedelta, Field(ge=MINUTE, le=31 * DAY), _DURATION]
UpTo90Days = Annotated[timedelta, Field(ge=MINUTE, le=90 * DAY), _DURATION]
UpTo90DaysOrNone = Annotated[
    UpTo90Days,
    WrapValidator(_parse_optional_duration, json_schema_input_type=_DurationText),
    Legal(f"{describe_span(MINUTE, 90 * DAY)}, or 0s"),
]
TimeZone = Annotated[
    str,
    BeforeValidator(_parse_time_zone),
    Legal("a name of the IANA time zones such as UTC or Europe/Berlin"),
]
Schedule = Annotated[
    str,
    BeforeValidator(_parse_schedule),
    Legal("minute, hour, day of month, month, day of week, such as '0 9 * * mon-fri'"),
]
_DAY = Legal("a day such as 2026-12-24, or a time such as 2026-12-24T18:00")
Timestamp = Annotated[
    datetime, BeforeValidator(_parse_timestamp, json_schema_input_type=_DayText), _DAY
]
LastTimestamp = Annotated[
    datetime, BeforeValidator(_parse_last_timestamp, json_schema_input_type=_DayText), _DAY
]
Approval = Annotated[
    tuple[str, int],
    PlainValidator(_parse_approval, json_schema_input_type=_ApprovalText),
    Legal("none, first N (such as first 10), always"),
]
LeastEvidence = Annotated[Evidence, WORD]
PolicyMode = Annotated[Mode, WORD]
BudgetEach = Annotated[Literal["namespace", "owner", "cluster"], WORD]
BudgetCounts = Annotated[Counts, WORD]
BudgetScope = Annotated[Scope, WORD]
_Glob = Annotated[str, Field(pattern=r"^\S"), TEXT]
_Part = Annotated[Literal["manifest", "volume", "home", "environment"], WORD]
Globs = Annotated[tuple[_Glob, ...], Several(), Legal("a glob such as team-* or a list of them")]
GlobsOrNone = Annotated[
    tuple[_Glob, ...], Several(0), Legal("a list of globs such as team-*; [] = nowhere")
]
Words = Annotated[Globs, Legal("a capability or verb, or a list of them")]
Parts = Annotated[
    tuple[_Part, ...], Several(), Legal("some of manifest, volume, home, environment")
]
Labels = Annotated[
    dict[str, Globs],
    BeforeValidator(_parse_labels),
    Legal("a mapping of label: value, or label: [value, ...]; values are globs"),
]
PlainMapping = Annotated[
    dict[str, Any], BeforeValidator(_parse_mapping), Legal("a mapping, as the executor reads it")
]

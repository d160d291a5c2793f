"""Every key of a policy: its values and its meaning (`keys.csv`).

The parser, the reference in `docs/policies.md` and the JSON schema for editors are built from this.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, get_args, get_origin
from zoneinfo import ZoneInfo

import yaml
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    FieldSerializationInfo,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationInfo,
    WrapValidator,
    create_model,
    field_serializer,
    model_serializer,
)
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails

from actions.policy import values
from actions.policy.model import RecurringWindow
from actions.policy.section import Entries, Section, complete, describe_values, report
from actions.policy.tree import Node, describe_node, is_null
from actions.policy.values import Legal, suggest_word
from fallow.action_models import Step
from fallow.resources import read_table

STAGES: tuple[str, ...] = get_args(Step)
NEEDED = "needed"
"""The default of a key that may not be left out."""


def define_key(meaning: str, default: str = "unset", **field: Any) -> Any:
    """Return a key that may be left out: its meaning, and in words what holds without it."""
    return Field(None, description=meaning, json_schema_extra={"unset": default}, **field)


def build_section(
    name: str, meaning: str, base: type[Section] = Section, **inner: Any
) -> type[Section]:
    """Return a section with its keys of `keys.csv`; `inner`: types that are sections themselves."""
    fields: dict[str, Any] = {}
    for row in read_table("actions.policy", "keys.csv"):
        if row["section"] == name:
            kind = inner.get(row["type"]) or getattr(values, row["type"])
            alias = {"alias": row["key"]} if row["field"] else {}
            key = define_key(row["meaning"], row["default"], **alias)
            if row["default"] == NEEDED:
                key = Field(description=row["meaning"])
            fields[row["field"] or row["key"]] = (kind, key)
    return create_model(f"{name}_keys", __base__=base, __doc__=meaning, **fields)


SnapshotKeys: Any = build_section("snapshot", "What is kept before the act.")
ActKeys: Any = build_section("act", "What is done in the end.")


_WORDS: TypeAdapter[tuple[str, ...]] = TypeAdapter(values.Words)


def _act(node: Node, handler: Callable[[Node], Any]) -> Any:
    if isinstance(node, yaml.MappingNode):
        return handler(node)
    return ActKeys.model_construct(do=_WORDS.validate_python(node))


def _accept_nothing(node: Node, info: ValidationInfo) -> None:
    if not is_null(node):
        raise complete(f"takes nothing: write {info.field_name}")


_Nothing = Annotated[None, BeforeValidator(_accept_nothing)]


class StageKeys(Section):
    """A stage: its word, or a mapping of its word alone."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})
    observe: _Nothing = None
    notify: _Nothing = None
    grace: values.Grace = define_key("time from a proved notice to the act", "needed")
    snapshot: SnapshotKeys = define_key("what is kept before the act")
    act: Annotated[
        ActKeys,
        WrapValidator(_act, json_schema_input_type=values.Words | ActKeys),
        Legal("a capability or verb, or a list of them"),
    ] = define_key("what is done in the end")

    @model_serializer(mode="wrap")
    def _write_step(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        ((step, options),) = handler(self).items()
        if step == "grace":
            return {"step": step, "wait": options}
        defaults = {"what": ("manifest",), "required": True} if step == "snapshot" else {}
        return {"step": step, **defaults, **(options or {})}

    @classmethod
    def entries(cls, node: Node) -> tuple[Entries, list[InitErrorDetails]]:
        """Return the word of a stage with its options; none where the node is no stage."""
        entries: Entries = {}
        errors: list[InitErrorDetails] = []
        if isinstance(node, yaml.ScalarNode):
            entries[node.value] = (node, _build_empty(node, "null"))
        elif isinstance(node, yaml.MappingNode):
            entries, errors = super().entries(node)
        if len(entries) != 1:
            text = f"is {describe_node(node)} of {len(entries)}; legal: {_STAGES.words}"
            return {}, [*errors, report(text, node)]
        (name,) = entries
        if name not in STAGES:
            text = f"no such stage{suggest_word(name, STAGES)}; legal: {', '.join(STAGES)}"
            return {}, [*errors, report(text, node)]
        return entries, errors

    @classmethod
    def fill_empty(cls, name: str, node: Node) -> Node:
        """Return an empty mapping for a snapshot, which needs no options."""
        if name in {"grace", "act"}:
            words = describe_values(cls.model_fields[name])
            raise complete(f"says nothing; legal: {name}: {words}")
        return _build_empty(node, "map") if name == "snapshot" else node


_STAGES = Legal("a list of observe, notify, grace: 24h, snapshot, act: suspend, in this order")
_StageItems = Annotated[
    list[Literal["observe", "notify", "snapshot"] | StageKeys], Field(min_length=1)
]


def _build_empty(node: Node, kind: Literal["null", "map"]) -> Node:
    """Return an empty node in the place of another."""
    make, value = (yaml.ScalarNode, "") if kind == "null" else (yaml.MappingNode, [])
    return make(f"tag:yaml.org,2002:{kind}", value, node.start_mark, node.end_mark)


class RecurringKeys(Section):
    """A section that may have a recurring window among its keys."""

    @model_serializer(mode="wrap")
    def _write_window(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        names = RecurringWindow.__struct_fields__
        window = {name: fields.pop(name) for name in names if name in fields}
        is_whole = "schedule" in window and "duration" in window
        return fields | ({"window": window} if is_whole else {})


class _BlackoutBase(RecurringKeys):
    @field_serializer("start", "end", check_fields=False)
    def _write_utc(self: Any, local: datetime, info: FieldSerializationInfo) -> datetime:
        """Return a time in UTC.

        A local time that occurs twice is read as the one that lengthens the blackout.
        """
        if local.tzinfo is None:
            zone = ZoneInfo(self.timezone or "UTC")
            local = local.replace(tzinfo=zone, fold=int(info.field_name == "end"))
        return local.astimezone(UTC)


class _ApprovalBase(Section):
    @model_serializer(mode="wrap")
    def _write_number(self: Any, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        return fields | dict(zip(("when", "first"), self.when, strict=True))


BudgetKeys: Any = build_section("budget", "The most that may be done.", RecurringKeys)
BlackoutKeys: Any = build_section("blackout", "When nothing is done.", _BlackoutBase)
PolicyKeys: Any = build_section(
    "policy",
    "A policy.",
    match=build_section("match", "Which findings a policy is about."),
    allow=build_section("allow", "Where a policy may act."),
    stages=Annotated[
        list[StageKeys],
        BeforeValidator(values.list_items, json_schema_input_type=_StageItems),
        _STAGES,
    ],
    budgets=Annotated[list[BudgetKeys], values.ITEMS],
    blackouts=Annotated[list[BlackoutKeys], values.ITEMS],
    act_window=build_section("act_window", "When a policy acts."),
    approvals=build_section("approvals", "Whether people have to agree.", _ApprovalBase),
    reversals=build_section("reversals", "How often owners may take back what was stopped."),
)


def list_keys(
    section: type[Section] = PolicyKeys, prefix: str = ""
) -> Iterator[tuple[str, FieldInfo]]:
    """Yield every key that has a meaning with its dotted name, a section before its keys."""
    for name, field in section.keys().items():
        if not field.description:
            continue
        yield f"{prefix}{name}", field
        kind: Any = field.annotation
        if get_origin(kind) is list:
            yield from list_keys(get_args(kind)[0], f"{prefix}{name}[].")
        elif isinstance(kind, type) and issubclass(kind, Section):
            yield from list_keys(kind, f"{prefix}{name}.")


def describe_default(field: FieldInfo) -> str:
    """Return in words what holds where a key is left out."""
    extra: Any = field.json_schema_extra
    return NEEDED if field.is_required() else str(extra["unset"])


def render_table() -> str:
    """Return the reference of all keys as Markdown."""
    lines = ["| key | may hold | default | meaning |", "|---|---|---|---|"]
    for name, field in list_keys():
        words = describe_values(field).replace("|", "\\|")
        lines.append(f"| `{name}` | {words} | {describe_default(field)} | {field.description} |")
    return "\n".join(lines) + "\n"


def build_schema() -> dict[str, Any]:
    """Return a JSON schema of one policy, for editors."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Fallow policy"}
    whole = PolicyKeys.model_json_schema()
    return {**head, **_put_in_place(whole, whole.pop("$defs"))}


def _put_in_place(part: Any, sections: dict[str, Any]) -> Any:
    """Return a schema with each section where it is used, without what pydantic adds for itself."""
    if isinstance(part, list):
        return [_put_in_place(item, sections) for item in part]
    if not isinstance(part, dict):
        return part
    section = sections[part["$ref"].rpartition("/")[2]] if "$ref" in part else {}
    return {
        name: _put_in_place(value, sections)
        for name, value in {**section, **part}.items()
        if name not in {"$ref", "title", "default", "unset"}
    }

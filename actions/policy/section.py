"""A mapping of a policy as a pydantic model: each error stands at its node, with what is legal.

pydantic finds the errors; `Section` puts them in our words. A validator that raises ValueError has
what is legal added to its text; one that raises `complete()` says all itself.
"""

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal, Self, get_args, get_origin

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from actions.policy.tree import Node, describe_node, get_descendant, is_null, read_pairs
from actions.policy.values import Legal, describe_span, suggest_word
from fallow.renamed import read_renames

RENAMED_KEYS = read_renames("policy")
"""Keys of before 0.1.0 and their present names."""
_COMPLETE = "complete"

Entries = dict[str, tuple[Node, Node]]
"""The nodes of key and value, by key."""


class Section(BaseModel):
    """A mapping with its own keys; all others are errors. A key that is left out is None."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def keys(cls) -> dict[str, FieldInfo]:
        """Return the fields by their keys in the file."""
        return {field.alias or name: field for name, field in cls.model_fields.items()}

    @classmethod
    def entries(cls, node: Node) -> tuple[Entries, list[InitErrorDetails]]:
        """Return the keys of a node with their nodes, and the errors in the keys themselves.

        Raises:
            PydanticCustomError: the node is no mapping.
        """
        if not isinstance(node, yaml.MappingNode):
            problem = "nothing stands here" if is_null(node) else f"is {describe_node(node)}"
            raise complete(f"{problem}; legal: a mapping with {', '.join(cls.keys())}")
        entries, problems = read_pairs(node)
        return entries, [
            report(text, key_node, *([name] if name else [])) for name, key_node, text in problems
        ]

    @classmethod
    def fill_empty(cls, name: str, node: Node) -> Node:  # noqa: ARG003  (a stage's answer differs)
        """Return what stands for an empty value.

        Raises:
            ValueError: nothing does.
        """
        raise ValueError("nothing stands here")

    @field_validator("*", mode="before")
    @classmethod
    def _fill_empty(cls, node: Node, info: ValidationInfo) -> Node:
        return cls.fill_empty(str(info.field_name), node) if is_null(node) else node

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, node: Node, handler: ModelWrapValidatorHandler[Self]) -> Self:
        entries, errors = cls.entries(node)
        try:
            section = handler({name: value for name, (_, value) in entries.items()})
        except ValidationError as invalid:
            renamed = {RENAMED_KEYS.get(name) for name in entries}
            errors += [
                cls._explain(error, node, entries)
                for error in invalid.errors(include_url=False)
                if error["type"] != "missing" or error["loc"][0] not in renamed
            ]
        else:
            if not errors:
                return section
        raise ValidationError.from_exception_data(cls.__name__, errors)

    @classmethod
    def _explain(cls, error: ErrorDetails, node: Node, entries: Entries) -> InitErrorDetails:
        name, *inner = error["loc"]
        if error["type"] == _COMPLETE:
            return report(error["msg"], error["input"], name, *inner)
        keys = cls.keys()
        key_node, value_node = entries.get(str(name), (node, node))
        if error["type"] == "extra_forbidden":
            new_name = RENAMED_KEYS.get(str(name))
            if new_name in keys:
                return report(f"is called {new_name} since 0.1.0", key_node, name)
            legal = f"{suggest_word(str(name), keys)}; legal here: {', '.join(keys)}"
            return report(f"no such key{legal}", key_node, name)
        text = f"{_describe_error(error, value_node)}; legal: {describe_values(keys[str(name)])}"
        return report(text, get_descendant(value_node, inner), name)


def report(text: str, node: Node, *keys: str | int) -> InitErrorDetails:
    """Return an error at a node, whose text is complete."""
    return InitErrorDetails(type=complete(text), loc=keys, input=node)


def complete(text: str) -> PydanticCustomError:
    """Return an error whose text is complete: what is legal is not added to it."""
    return PydanticCustomError(_COMPLETE, text)


def describe_values(field: FieldInfo) -> str:
    """Return what a key may hold, in words."""
    notes = [note for note in field.metadata if isinstance(note, Legal)]
    if notes:
        return notes[-1].words
    ends = {
        name: getattr(m, name) for m in field.metadata for name in ("ge", "le") if hasattr(m, name)
    }
    kind: Any = field.annotation
    if kind is timedelta:
        return describe_span(ends["ge"], ends["le"])
    if kind in {int, float, Decimal}:
        top = f" to {ends['le']}" if "le" in ends else " or more"
        return f"a {'whole ' if kind is int else ''}number, {ends['ge']}{top}"
    if get_origin(kind) is Literal:
        return ", ".join(get_args(kind))
    if get_origin(kind) is list:
        return f"a list of mappings with {', '.join(get_args(kind)[0].keys())}"
    return "a mapping"


def _describe_error(error: ErrorDetails, node: Node) -> str:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind == "missing":
        return "is missing"
    if isinstance(value, timedelta):
        return f"{node.value} is too {'short' if kind == 'greater_than_equal' else 'long'}"
    if isinstance(value, str):
        choices = re.findall(r"'([^']+)'", context.get("expected", ""))
        return f"{value!r} is not legal{suggest_word(value, choices)}"
    return f"{value} is not legal"

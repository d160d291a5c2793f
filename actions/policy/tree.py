"""YAML as a tree whose nodes know their lines, restricted to plain data.

Not allowed: what `fallow.plain_yaml` refuses, duplicate keys, tabs. Size and depth are bounded. All
errors in keys and values are collected, so that one run reports every one.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from fallow.plain_yaml import NotPlainError, PlainLoader
from fallow.system.input_files import UnreadableFileError, read_input
from fallow.texts import make_printable

MAX_BYTES = 256 * 1024

Node = yaml.Node


class PolicyProblem(msgspec.Struct, frozen=True, order=True):
    """An error in a file: what, where, and the legal values."""

    file: str
    line: int
    key: str
    text: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        text = f"{where}: {self.key}: {self.text}" if self.key else f"{where}: {self.text}"
        return make_printable(text)


class Location(msgspec.Struct, frozen=True):
    """A place in a file, and the list that collects its errors."""

    file: str
    problems: list[PolicyProblem]
    key: str = ""

    def at(self, *names: str | int) -> "Location":
        """Return the place that keys and positions lead to."""
        key = self.key
        for name in names:
            key = f"{key}[{name}]" if isinstance(name, int) else f"{key}.{name}".lstrip(".")
        return Location(self.file, self.problems, key)

    def report(self, node: Node | int, text: str) -> None:
        """Record an error."""
        line_number = node if isinstance(node, int) else get_line(node)
        self.problems.append(PolicyProblem(self.file, line_number, self.key, text))


def get_line(node: Node) -> int:
    """Return a node's line, from 1."""
    return int(node.start_mark.line) + 1


def read_documents(path: Path, location: Location) -> list[Node]:
    """Return the non-empty documents of a file; none where the file is no plain YAML."""
    try:
        raw = read_input(path, most=MAX_BYTES)
    except UnreadableFileError as error:
        location.report(0, "; ".join(filter(None, (f"cannot be read: {error.reason}", error.hint))))
        return []
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        location.report(raw[: error.start].count(b"\n") + 1, "is not UTF-8")
        return []
    try:
        nodes = list(yaml.compose_all(text, PlainLoader))
    except yaml.YAMLError as error:
        location.report(_line(error, text), _describe_error(error))
        return []
    return [node for node in nodes if not is_null(node)]


def read_pairs(
    node: yaml.MappingNode,
) -> tuple[dict[str, tuple[Node, Node]], list[tuple[str, Node, str]]]:
    """Return a mapping's keys with their nodes, and what is wrong with keys: key, node and text.

    A key that is no text or a duplicate is an error.
    """
    entries: dict[str, tuple[Node, Node]] = {}
    problems: list[tuple[str, Node, str]] = []
    for key, value in node.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else None
        if name is None:
            problems.append(("", key, "a key is a word, not a list or a mapping"))
        elif name in entries:
            first_line = get_line(entries[name][0])
            problems.append((name, key, f"stands twice, first in line {first_line}"))
        else:
            entries[name] = (key, value)
    return entries, problems


def get_descendant(node: Node, keys: Iterable[str | int]) -> Node:
    """Return the node that keys and positions lead to, as far as they lead."""
    for key in keys:
        if isinstance(node, yaml.SequenceNode) and isinstance(key, int):
            node = node.value[key]
        elif isinstance(node, yaml.MappingNode):
            _, node = read_pairs(node)[0].get(str(key), (node, node))
    return node


def describe_node(node: Node) -> str:
    """Return the type of a node in the words of an error message."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    tag = str(node.tag).rpartition(":")[2]
    names = {"str": "a text", "int": "a number", "float": "a number", "null": "nothing"}
    return names.get(tag, {"bool": "true or false", "timestamp": "a date"}.get(tag, tag))


def is_null(node: Node) -> bool:
    """Return whether a node is empty."""
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def to_plain(node: Node) -> Any:
    """Return a node as plain data."""
    return yaml.SafeLoader("").construct_object(node, deep=True)


def _line(error: yaml.YAMLError, text: str) -> int:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is not None:
        return int(mark.line) + 1
    position = getattr(error, "position", None)
    return text[:position].count("\n") + 1 if isinstance(position, int) else 0


def _describe_error(error: yaml.YAMLError) -> str:
    if isinstance(error, NotPlainError):
        quote = "; quote a glob that begins with *" if error.name.startswith("*") else ""
        return f"{error.name}: {error.problem}{quote}" if error.name else str(error.problem)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    if "'\\t'" in problem:
        return "is not YAML: a tab; indent with spaces"
    return f"is not YAML: {' '.join(str(problem).split())}"

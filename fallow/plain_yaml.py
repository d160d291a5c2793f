"""Load YAML of plain data in bounds: no tags, not too deep, and aliases do not expand for ever."""

from typing import Any

import yaml

MAX_DEPTH = 16
"""Levels of a file of settings or of policies."""
MAX_NODES = 100_000
"""Values of a file, with those that its aliases repeat."""


class NotPlainError(yaml.MarkedYAMLError):
    """Refuse YAML that is more than plain data: `name` of the anchor or the tag, as written."""

    def __init__(self, event: yaml.Event, problem: str, name: str = "") -> None:
        super().__init__(problem=problem, problem_mark=event.start_mark)  # type: ignore[arg-type]  # a Mark of either parser
        self.name = name


class BoundedLoader(yaml.SafeLoader):
    """Load data without tags, of bounded depth and size."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._depth = self._nodes = 0
        self._sizes: dict[str, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Return the next node.

        Raises:
            NotPlainError: it is not plain, or the data are too large with it.
        """
        event = self.peek_event()  # type: ignore[no-untyped-call]
        anchor, nodes = str(getattr(event, "anchor", None) or ""), self._nodes
        self.refuse_event(event, anchor)
        is_alias = isinstance(event, yaml.AliasEvent)
        if is_alias and anchor in self.anchors and anchor not in self._sizes:
            raise NotPlainError(event, "an anchor has an alias of itself")
        self._nodes += self._sizes.get(anchor, 1) if is_alias else 1
        if self._nodes > MAX_NODES:
            raise NotPlainError(event, f"over {MAX_NODES:,} values, each alias expanded")
        if self._depth == MAX_DEPTH:
            raise NotPlainError(event, f"is nested deeper than {MAX_DEPTH} levels")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if anchor and not is_alias:
            self._sizes[anchor] = self._nodes - nodes
        return node

    def refuse_event(self, event: yaml.Event, _anchor: str) -> None:
        """Raise `NotPlainError` where a node has a tag."""
        if tag := getattr(event, "tag", None):
            raise NotPlainError(event, "tags are not read", tag)


class PlainLoader(BoundedLoader):
    """Load data that have no anchors and aliases either."""

    def refuse_event(self, event: yaml.Event, anchor: str) -> None:
        """Raise `NotPlainError` where a node has a tag, an anchor or an alias."""
        if anchor:
            sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
            raise NotPlainError(event, "anchors and aliases are not read", f"{sign}{anchor}")
        super().refuse_event(event, anchor)

"""Links from a pod to its owner that are no owner references (`owner_links.csv`)."""

from collections.abc import Mapping
from functools import cache

import msgspec

from fallow.resources import read_table

NAMESAKES = {("batch.volcano.sh", "Job"): "VolcanoJob"}
"""Kinds that bear the name of a built-in one, and what rows call them."""


class OwnerLink(msgspec.Struct, frozen=True):
    """A link that is no owner reference; without a group there is no object at its end."""

    source: str
    key: str
    group: str
    kind: str
    only_if: str
    note: str

    def end(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str | None:
        """Return the name that a pod's words give, or None where the link is not there."""
        name = (labels if self.source == "label" else annotations).get(self.key)
        key, _, value = self.only_if.partition("=")
        if not name or (self.only_if and labels.get(key) != value):
            return None
        server = annotations.get("hub.jupyter.org/servername")
        return f"{name}/{server}" if server and not self.group else name


@cache
def owner_links() -> tuple[OwnerLink, ...]:
    """Return the links in the order of the file."""
    return tuple(OwnerLink(**row) for row in read_table("fallow.kube", "owner_links.csv"))


def kind_in_rows(group: str, kind: str) -> str:
    """Return what rows call a kind."""
    return NAMESAKES.get((group, kind), kind)

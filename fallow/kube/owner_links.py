"""Find links from a pod to its owner that are not owner references (`owner_links.csv`)."""

from collections.abc import Mapping
from functools import cache

import msgspec

from fallow.resources import read_table

NAMESAKES = {("batch.volcano.sh", "Job"): "VolcanoJob"}
"""Kinds with the name of a built-in kind, and their names in rows."""


class OwnerLink(msgspec.Struct, frozen=True):
    """A link that is not an owner reference; without a group the owner is not an API object."""

    source: str
    key: str
    group: str
    kind: str
    only_if: str
    above: str
    """What may own an object of the kind without a label of its pods that says so."""
    note: str

    def end(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str | None:
        """Return the owner's name from a pod's labels or annotations, or None without a link."""
        name = (labels if self.source == "label" else annotations).get(self.key)
        key, _, value = self.only_if.partition("=")
        if not name or (self.only_if and labels.get(key) != value):
            return None
        server = annotations.get("hub.jupyter.org/servername")
        return f"{name}/{server}" if server and not self.group else name


@cache
def list_link_labels() -> tuple[str, ...]:
    """Return the labels and annotations of pods that links need."""
    conditions = (link.only_if.partition("=")[0] for link in read_owner_links())
    return (*(link.key for link in read_owner_links()), *filter(None, conditions))


@cache
def read_owner_links() -> tuple[OwnerLink, ...]:
    """Return the links in the order of the file."""
    return tuple(OwnerLink(**row) for row in read_table("fallow.kube", "owner_links.csv"))


def get_row_kind(group: str, kind: str) -> str:
    """Return the name of a kind in rows."""
    return NAMESAKES.get((group, kind), kind)

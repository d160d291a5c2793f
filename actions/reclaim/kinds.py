"""The switch of each kind of workload, as data (`kinds.csv`); the words are in `verbs.csv`."""

from datetime import datetime
from functools import cache
from typing import Any

import msgspec

from fallow.resources import read_table


class WorkloadKind(msgspec.Struct, frozen=True):
    """Where the switch of a kind lies, and what it says when the workload is stopped."""

    kind: str
    """As rows name it."""
    group: str
    named: str
    """As the API names it, where that differs."""
    switch: str
    """replicas, field, command, hub or evict."""
    pointer: str
    stopped: str
    """A JSON value, or `now`: the moment of stopping."""
    kueue: str
    """workload: under Kueue the Workload is switched, as the object's own switch is undone."""
    refuses: str
    """When nothing is done, beside what holds for every kind."""

    @property
    def api_kind(self) -> str:
        """The kind as the API names it."""
        return self.named or self.kind

    def value(self, now: datetime) -> Any:
        """Return what the switch says when stopped."""
        return now.strftime("%Y-%m-%dT%H:%M:%SZ") if self.moment else self.fixed

    @property
    def moment(self) -> bool:
        """Say whether the switch says since when."""
        return self.stopped == "now"

    @property
    def fixed(self) -> Any:
        """The value of a switch that says no moment."""
        return msgspec.json.decode(self.stopped)


@cache
def kinds() -> dict[str, WorkloadKind]:
    """Return the rows of `kinds.csv` by kind."""
    return {row["kind"]: WorkloadKind(**row) for row in read_table("actions.reclaim", "kinds.csv")}


def is_known(kind: str) -> bool:
    """Say whether anything here knows how to stop a kind."""
    return kind in kinds()

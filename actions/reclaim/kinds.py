"""The switch of each kind of workload, as data (`kinds.csv`); the verbs are in `verbs.csv`."""

from datetime import datetime
from functools import cache
from typing import Any

import msgspec

from fallow.resources import read_table


class WorkloadKind(msgspec.Struct, frozen=True):
    """The path of a kind's switch, and its value when the workload is stopped."""

    kind: str
    """The kind in stored rows."""
    group: str
    named: str
    """The kind in the API, where it differs."""
    switch: str
    """replicas, field, command, hub or evict."""
    pointer: str
    stopped: str
    """A JSON value, or `now`: the time of the stop."""
    kueue: str
    """workload: under Kueue the Workload is switched, because Kueue reverts the object's own
    switch."""
    refuses: str
    """Additional conditions under which nothing is done."""

    @property
    def api_kind(self) -> str:
        """The kind in the API."""
        return self.named or self.kind

    def value(self, now: datetime) -> Any:
        """Return the value of the switch when stopped."""
        return now.strftime("%Y-%m-%dT%H:%M:%SZ") if self.is_timestamp else self.fixed

    @property
    def is_timestamp(self) -> bool:
        """Return whether the value of the switch is the time of the stop."""
        return self.stopped == "now"

    @property
    def fixed(self) -> Any:
        """The value of a switch whose value is no time."""
        return msgspec.json.decode(self.stopped)


@cache
def read_kinds() -> dict[str, WorkloadKind]:
    """Return the rows of `kinds.csv` by kind."""
    return {row["kind"]: WorkloadKind(**row) for row in read_table("actions.reclaim", "kinds.csv")}

"""What every part of the loop works with."""

import csv
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from actions.journal import Record, Told, words
from actions.journal.record import Workload, workload_key
from actions.loop.seams import Door
from actions.loop.writes import Writes
from fallow.acting import Outcome, Reason, Result, Target
from fallow.action_settings import ActionsSettings
from fallow.errors import UsageError

LATE = timedelta(seconds=90)
"""A write without an answer may still arrive this late: the API server ends every request after
60 s (--request-timeout)."""


class Kit(msgspec.Struct, frozen=True):
    """The door, the record, the clock and the rules."""

    door: Door
    record: Record
    writes: Writes
    settings: ActionsSettings
    clock: Callable[[], datetime]
    pulse: Callable[[str], None]
    halted: Callable[[], tuple[Reason, ...]]
    """Why no write may be sent at this moment: frozen, the lease lost."""

    def path(self, target: Target) -> str:
        """Return the path of an object by discovery.

        Raises:
            UsageError: its kind is not served.
        """
        group = target.api_version.rpartition("/")[0]
        found = self.door.collection(target.kind, group, target.namespace)
        if found is None:
            raise UsageError(f"{self.door.name} serves no {target.kind} of {target.api_version}")
        return f"{found}/{target.name}"

    def conclude(self, told: Told, result: Result, *reasons: Reason, **more: Any) -> Outcome:
        """Write down what came of an action."""
        made = Outcome(told.action.id, result, self.clock(), tuple(reasons), **more)
        self.record.append(words.OUTCOME, told.action.id, made)
        self.pulse(f"journalled the outcome {result}")
        return made

    def back_off(self, whom: Workload, length: timedelta, why: str) -> None:
        """Leave a workload alone for a while."""
        until = self.clock() + min(length, self.settings.back_off.most)
        document = {"until": until.isoformat(), "why": why}
        self.record.append(words.BACKED_OFF, workload_key(whom), document)

    def contested(self, told: Told, by: str) -> None:
        """Write down that somebody took an action back, and leave the workload alone.

        Each time doubles how long: an owner who keeps starting it again has opted out.
        """
        times = self.record.contests(told.workload)
        document = {"by": by, "person": by not in controllers()}
        self.record.append(words.RESTORED, told.action.id, document)
        length = self.settings.back_off.contested * 2 ** min(times, 10)
        self.back_off(told.workload, length, f"{by} took action {told.action.id} back")


@cache
def controllers() -> Mapping[str, str]:
    """Return the field managers that are no people, and what they are."""
    text = files("actions.loop").joinpath("controllers.csv").read_text(encoding="utf-8")
    return {row["manager"]: row["what"] for row in csv.DictReader(text.splitlines())}


def manager_of(found: tuple[str, datetime | None] | None) -> str:
    """Return the name of a field manager, or a word for nobody known."""
    return found[0] if found and found[0] else "somebody unknown"

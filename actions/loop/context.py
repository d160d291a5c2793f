"""The objects that every part of the loop uses."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import msgspec

from actions.journal import ActionState, JournalState, event_types
from actions.journal.action_state import SubjectKey, format_subject_key
from actions.loop.protocols import ClusterClient
from actions.loop.sender import ChangeSender
from fallow.action_models import Outcome, Reason, Result, Target
from fallow.errors import UsageError
from fallow.resources import read_table
from fallow.settings.actions import ActionsSettings, BackOffSettings

MAX_DELAY = timedelta(seconds=90)
"""A write without an answer may still arrive this late: the API server ends every request after 60
s (--request-timeout)."""


class ActionContext(msgspec.Struct, frozen=True):
    """The cluster client, the journal's state, the clock and the settings."""

    cluster: ClusterClient
    record: JournalState
    sender: ChangeSender
    settings: ActionsSettings
    clock: Callable[[], datetime]
    pulse: Callable[[str], None]
    halted: Callable[[], tuple[Reason, ...]]
    """Why no write may be sent now: a freeze, or a lost lease."""

    def path(self, target: Target) -> str:
        """Return the path of an object by discovery.

        Raises:
            UsageError: its kind is not served.
        """
        group = target.api_version.rpartition("/")[0]
        collection = self.cluster.collection(target.kind, group, target.namespace)
        if collection is None:
            raise UsageError(f"{self.cluster.name} serves no {target.kind} of {target.api_version}")
        return f"{collection}/{target.name}"

    def elapsed(self, since: datetime) -> timedelta:
        """Return the time since a row of the journal, also where the clock was set meanwhile."""
        return self.record.steps.elapsed(since, self.clock())

    def conclude(
        self, state: ActionState, result: Result, *reasons: Reason, **fields: Any
    ) -> Outcome:
        """Journal the outcome of an action."""
        outcome = Outcome(state.action.id, result, self.clock(), tuple(reasons), **fields)
        self.record.append(event_types.OUTCOME, state.action.id, outcome)
        self.pulse(f"journalled the outcome {result}")
        return outcome

    def back_off(self, key: SubjectKey, length: timedelta, why: str) -> None:
        """Exclude a workload from actions for some time."""
        until = self.clock() + min(length, self.settings.back_off.most)
        record_back_off(self.record, key, until, why)

    def contested(self, state: ActionState, by: str) -> None:
        """Journal that an action was reversed, and leave the workload alone for some time."""
        record_reversal(self.record, state, by, self.settings.back_off, self.clock())


def record_back_off(record: JournalState, key: SubjectKey, until: datetime, why: str) -> None:
    """Exclude a workload from actions until a timestamp."""
    document = {"until": until.isoformat(), "why": why}
    record.append(event_types.BACKED_OFF, format_subject_key(key), document)


def record_reversal(
    record: JournalState, state: ActionState, by: str, back_off: BackOffSettings, now: datetime
) -> None:
    """Journal that an action was reversed, and exclude the workload from actions for some time.

    Each reversal doubles this time: an owner who repeatedly restarts a workload has opted out.
    """
    earlier = record.count_reversals_of(state.workload)
    document = {"by": by, "person": by not in read_controllers()}
    record.append(event_types.REVERSED, state.action.id, document)
    length = min(back_off.reverted * 2 ** min(earlier, 10), back_off.most)
    why = f"{by} took action {state.action.id} back"
    record_back_off(record, state.workload, now + length, why)


@cache
def read_controllers() -> Mapping[str, str]:
    """Return the field managers that are controllers, and their descriptions."""
    return {row["manager"]: row["what"] for row in read_table("actions.loop", "controllers.csv")}


def get_manager_name(writer: tuple[str, datetime | None] | None) -> str:
    """Return the name of a field manager, or a text for an unknown one."""
    return writer[0] if writer and writer[0] else "somebody unknown"

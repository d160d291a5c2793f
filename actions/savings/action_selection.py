"""Select the journalled actions whose savings are measured."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from actions.journal import ActionState, JournalState
from actions.savings.measured_action import MeasuredAction

EFFECTIVE_RESULTS = frozenset({"done", "not sticking", "reverted", "undone"})


def select_actions(
    record: JournalState, *, since: datetime | None = None, watched: timedelta | None = None
) -> list[MeasuredAction]:
    """Return the applied actions, oldest first, and when their workloads came back.

    `watched`: how long after an act its workload is observed; no saving is claimed after that.
    """
    return [
        _to_measured(state, watched, record.resumed_at(state))
        for state in record.actions.values()
        if state.has_written
        and not state.is_canary
        and state.action.intent.frees
        and any(o.result in EFFECTIVE_RESULTS for o in state.outcomes)
        and (since is None or state.action.at >= since)
    ]


def _to_measured(
    state: ActionState, watched: timedelta | None, resumed_at: datetime | None
) -> MeasuredAction:
    cluster, kind, namespace, name = state.workload
    facts = state.facts
    return MeasuredAction(
        action=state.action.id,
        policy=state.action.decision.policy,
        cluster=cluster,
        namespace=namespace,
        workload_kind=kind,
        workload=name,
        at=state.action.at,
        returned_at=min(filter(None, (get_return_time(state), resumed_at)), default=None),
        deleted_at=state.ended,
        idle_since=facts.finding.window.start if facts is not None else None,
        is_reversed=_is_reversed(state),
        until=None if watched is None else state.action.at + watched,
    )


def get_return_time(state: ActionState) -> datetime | None:
    """Return when a workload came back: reversed, undone, or never stopped; None = not yet."""
    times: Sequence[datetime] = [
        *((state.restored.at,) if state.restored else ()),
        *(o.at for o in state.outcomes if o.result in {"reverted", "undone", "not sticking"}),
    ]
    return min(times, default=None)


def _is_reversed(state: ActionState, within: timedelta = timedelta(hours=24)) -> bool:
    reversal = state.restored
    return reversal is not None and reversal.person and reversal.at - state.action.at <= within

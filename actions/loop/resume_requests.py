"""Request that a job which Fallow suspended is resumed once it has room.

An undo gives it back at once, also where no GPU is free. A request is only a row of the journal:
the analyzer `suspended` takes it as the end of the stop's reason, and a policy decides the rest.
"""

from collections.abc import Sequence
from datetime import datetime

from actions.journal import ActionState, JournalState, event_types
from actions.journal.state import RESUME
from actions.journal.trust import BACKTEST, HAND, read_trust_state
from actions.loop.actor import find_by_prefix
from actions.loop.undo import require_in_force
from actions.policy.matching import is_any_match
from actions.policy.model import Policy
from capacity.queue.suspensions import LOOKBACK, RESUMABLE_KINDS, Suspension
from fallow.action_models import PendingResume
from fallow.errors import RefusedError, UsageError
from fallow.window import format_duration


def request_resume(
    record: JournalState, prefix: str, by: str, now: datetime
) -> tuple[str, PendingResume]:
    """Journal an owner's request, once; return the action's id and its first request.

    Raises:
        UsageError: no action, or several, begin with `prefix`, or it did not suspend a job.
        RefusedError: it is not in force any more, or a request would change nothing.
        TemporaryError: it, or an undo of it, is under way.
    """
    record.catch_up()
    state = record.actions[find_by_prefix(prefix, record.actions, "action")]
    _require_resumable(record, state, now)
    request = state.pending_resume
    if request is None:
        entry = record.append(event_types.RESUME_REQUESTED, state.action.id, {}, actor=by)
        request = PendingResume(entry.actor, entry.at)
    return state.action.id, request


def describe_pending_resume(record: JournalState, action: str, policies: Sequence[Policy]) -> str:
    """Return what a job waits for, and which policies may resume it then."""
    namespace = record.actions[action].action.decision.subject[2]
    names = [policy.name for policy in policies if _may_resume(record, policy, namespace)]
    if names:
        return f"it waits for room, then policy {', '.join(names)} resumes it"
    return "it waits for room, and no policy may resume it then: you get a notice at most"


def _may_resume(record: JournalState, policy: Policy, namespace: str) -> bool:
    stage = policy.stage("act")
    return (
        policy.mode == "enforce"
        and stage is not None
        and RESUME in stage.do
        and is_any_match(policy.allow.namespaces, namespace)
        and read_trust_state(record, policy).how in {BACKTEST, HAND}
    )


def _require_resumable(record: JournalState, state: ActionState, now: datetime) -> None:
    action = state.action
    suspension = Suspension(action, state.facts, state.policy)
    at_once = f"to give it back now, whether it has room or not: fallow undo {action.id}"
    if not suspension.is_of_job:
        subject = "/".join(filter(None, action.decision.subject[1:]))
        raise UsageError(
            f"action {action.id} ({action.decision.verb} {subject}) suspended no job: only "
            f"{', '.join(sorted(RESUMABLE_KINDS))} are resumed once they have room",
            hint=at_once,
        )
    require_in_force(record, state)
    if state.ended is not None:
        raise RefusedError(f"action {action.id} stands no more: its object was deleted")
    if state.undo_state is not None:
        raise RefusedError(
            f"action {action.id} is not resumed: {state.undo_state.by} began its undo at "
            f"{state.undo_state.at:%Y-%m-%d %H:%M} UTC",
            hint=at_once,
        )
    if why := suspension.explain_no_request():
        raise RefusedError(f"action {action.id}: {why}", hint=at_once)
    if state.pending_resume is None and record.steps.elapsed(action.at, now) > LOOKBACK:
        length = format_duration(LOOKBACK.total_seconds())
        raise RefusedError(
            f"action {action.id} is older than {length}: Fallow does not resume its job any more",
            hint="resume the job by its own switch, such as spec.suspend: false",
        )

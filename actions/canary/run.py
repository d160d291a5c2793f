"""Run the canary by one step per turn: what was done is read from the journal."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from actions.canary.deployment import KIND, create_deployment, explain_unready, read_deployment
from actions.canary.evidence import CanaryEvidence, build_policy, decide_canary
from actions.executors import choose_executor
from actions.journal import ActionState, event_types
from actions.journal.action_state import format_subject_key
from actions.loop.actor import Actor
from actions.loop.runner import ActionRunner, check_protections
from actions.policy.budgets import BudgetUsage
from fallow.action_models import Reason
from fallow.errors import FallowError, TemporaryError
from fallow.settings.actions import CanarySettings

BY = "canary"
"""Who undoes the canary's action, for the journal."""
STOPPED = frozenset({"done", "not sticking"})
SUCCESS, FAILURE, CREATED = "passed", "failed", "created"


GAP_TURNS = 3
"""After this many missed turns a wait begins anew."""


class CanaryResult(msgspec.Struct, frozen=True):
    """The result of one run: stopped, restored and Ready again, or why not."""

    ok: bool
    at: datetime
    action: str = ""
    why: str = ""


class Canary:
    """The canary of one actor. `step` is called once a turn."""

    def __init__(self, actor: Actor, settings: CanarySettings) -> None:
        self._actor, self._settings = actor, settings
        context = actor.context
        self._cluster, self._record, self._clock = context.cluster, context.record, context.clock
        self._policy = build_policy(settings)
        self._evidence = CanaryEvidence(context.cluster, settings)
        self._runner = ActionRunner(
            context=context,
            evidence=self._evidence,
            decider=decide_canary,
            choose=choose_executor,
            guard=check_protections,
            read_usage=lambda fleet, _now: fleet,
        )
        self._waiting_since: datetime | None = None
        self._away_since: datetime | None = None
        self._answered_at: datetime | None = None
        """When this process began, or the API server answered again: no wait is older."""
        self._last_step: datetime | None = None

    @property
    def last_success(self) -> datetime | None:
        """Return when a run last passed, by the journal; None = none did."""
        return self._record.canary.last_success

    def step(self, halted: Sequence[Reason] = (), *, at_once: bool = False) -> CanaryResult | None:
        """Take the next step of a run; return its result when it is over.

        `halted`: why nothing is stopped now. A run that is under way is restored all the same.
        `at_once`: begin a run before its time.
        """
        self._record.catch_up()
        now = self._clock()
        self._note_interruption(now)
        state = self._find_running()
        try:
            if state is not None:
                return self._continue(state, now)
            if halted or not (at_once or self._is_due(now)):
                return None
            return self._begin(now)
        except TemporaryError as error:
            return self._wait_for_answer(state, now, error.message)
        except FallowError as error:
            return self._conclude(state, now, error.message)

    def _is_due(self, now: datetime) -> bool:
        ended_at = self._record.canary.ended_at
        return ended_at is None or now - ended_at >= self._settings.every

    def _find_running(self) -> ActionState | None:
        """Return the canary's action whose run is not over; None = there is none."""
        states = [s for s in self._record.actions.values() if s.is_canary]
        last = states[-1] if states else None
        is_over = last is None or last.action.id == self._record.canary.action
        return None if is_over else last

    # A run begins with a Deployment that is Ready.

    def _begin(self, now: datetime) -> CanaryResult | None:
        self._restore_earlier()
        obj = read_deployment(self._cluster, self._settings)
        if obj is None:
            create_deployment(self._cluster, self._settings)
            self._record.append(event_types.CANARY, self._key(), {"result": CREATED})
            return None
        if why := explain_unready(obj):
            return self._wait(None, now, why)
        (facts,) = self._evidence.cases(now)
        history = self._record.catch_up().history(self._policy.name, facts.finding)
        facts = msgspec.structs.replace(facts, history=history)
        decision = decide_canary(self._policy, facts, BudgetUsage(), now)
        if decision.ruling != "allow":
            return self._wait(None, now, _join(decision.reasons))
        result = self._runner.run(self._policy, decision, facts, dry_run=False)
        if result.result == "acted":
            self._waiting_since = None
            return None
        if result.result == "held":
            return self._wait(None, now, _join(result.reasons))
        state = self._record.actions.get(result.action) if result.action else None
        return self._conclude(state, now, _join(result.reasons))

    def _restore_earlier(self) -> None:
        """Undo a run that failed before it was restored."""
        since = self._clock() - self._actor.settings.watch
        for state in self._record.list_standing(since):
            if state.is_canary:
                self._actor.undo(state.action.id, BY)

    # It goes on until the Deployment is Ready again.

    def _continue(self, state: ActionState, now: datetime) -> CanaryResult | None:
        outcome = state.outcome
        if state.is_open or outcome is None:
            # The actor's own turn verifies it, and gives it up after actions.settle.
            limit = self._actor.settings.settle + self._actor.settings.stick
            return self._wait(state, now, "its outcome is open", state.action.at + limit)
        if outcome.result == "done":
            self._actor.undo(state.action.id, BY)
            return self._check_ready(state, now)
        if outcome.result == "undone":
            return self._check_ready(state, now)
        if outcome.result in STOPPED:
            self._actor.undo(state.action.id, BY)
        return self._conclude(state, now, f"{outcome.result}: {_join(outcome.reasons)}")

    def _check_ready(self, state: ActionState, now: datetime) -> CanaryResult | None:
        obj = read_deployment(self._cluster, self._settings)
        why = "its Deployment is gone" if obj is None else explain_unready(obj)
        if why is None:
            return self._conclude(state, now, "")
        since = state.outcome.at if state.outcome is not None else now
        return self._wait(state, now, f"not Ready again after the undo: {why}", since)

    def _wait(
        self, state: ActionState | None, now: datetime, why: str, since: datetime | None = None
    ) -> CanaryResult | None:
        """Wait for the next turn; fail once it lasts longer than `actions.canary.timeout`.

        The wait begins anew in another process, and when the API server answers again: while it
        was away no pod could start.
        """
        if self._away_since is not None:
            self._away_since, self._answered_at = None, now
        self._waiting_since = since or self._waiting_since or now
        if self._answered_at is not None:
            self._waiting_since = max(self._waiting_since, self._answered_at)
        if self._elapsed(self._waiting_since) < self._settings.timeout:
            return None
        return self._conclude(state, now, why)

    def _note_interruption(self, now: datetime) -> None:
        """Begin a wait anew after a time without turns, in which nobody had an answer."""
        gap = GAP_TURNS * self._actor.settings.every
        if self._last_step is None or self._elapsed(self._last_step) > gap:
            self._answered_at = now
        self._last_step = now

    def _wait_for_answer(
        self, state: ActionState | None, now: datetime, why: str
    ) -> CanaryResult | None:
        """Wait while the API server does not answer, for `actions.canary.timeout` at most."""
        self._away_since = self._away_since or now
        if self._elapsed(self._away_since) < self._settings.timeout:
            return None
        return self._conclude(state, now, why)

    def _elapsed(self, since: datetime) -> timedelta:
        """Return the time since an instant, also where the clock was set meanwhile."""
        return self._actor.context.elapsed(since)

    def _conclude(self, state: ActionState | None, now: datetime, why: str) -> CanaryResult:
        """Journal the result of a run."""
        self._waiting_since = self._away_since = None
        action = state.action.id if state is not None else ""
        document = {"result": FAILURE if why else SUCCESS, "action": action, "why": why}
        self._record.append(event_types.CANARY, self._key(), document)
        return CanaryResult(not why, now, action, why)

    def _key(self) -> str:
        settings = self._settings
        subject = (self._cluster.name, KIND, settings.namespace, settings.name)
        return format_subject_key(subject)


def _join(reasons: Sequence[Reason]) -> str:
    return "; ".join(f"{reason.gate}: {reason.text}" for reason in reasons) or "no reason is known"

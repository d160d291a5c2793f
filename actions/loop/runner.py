"""Carry out one decision, always in the same order.

budgets ─► evidence read again ─► last reading of each signal ─► decided again ─► object, and what
the write would free, as in the evidence ─► protections, obstacles and disruption budgets
─► dry run ─► journal ─► writes ─► annotation and Event

A refusal before the journal's row has only one effect: it is journalled with its reasons.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import msgspec

from actions.cluster.cached_cluster import CachedCluster
from actions.cluster.obstacles import find_obstacles
from actions.cluster.protections import find_protections
from actions.executors import get_name
from actions.journal import event_types
from actions.loop.annotate import announce_action
from actions.loop.change_state import find_spec_writer
from actions.loop.confirmation import Confirmation
from actions.loop.context import ActionContext
from actions.loop.disruptions import find_held
from actions.loop.marks import ACTION_KEY
from actions.loop.protocols import (
    Decider,
    EvidenceSource,
    ExecutorChooser,
    Guard,
    OtherClusters,
    SnapshotTaker,
    StepResult,
)
from actions.loop.recheck import Recheck
from actions.loop.reconcile import continue_after
from actions.loop.scope import find_mismatch
from actions.loop.undo_rights import require_undo_rights
from actions.policy.bounds import find_excess
from actions.policy.budgets import BudgetUsage, has_fleet_budget
from actions.policy.model import Policy
from fallow.action_models import Action, Decision, Facts, Intent, Reason, action_id
from fallow.errors import FallowError, RefusedError, TemporaryError
from fallow.plugin_runs import PluginRun, log_failure
from fallow.protocols import ClusterReader

MAX_STAGES = 2
"""A snapshot, and the act right after it."""
WORKLOAD_CAPABILITIES = frozenset(
    {"suspend", "scale", "evict", "resize", "restart", "restart elsewhere", "resume"}
)
"""Capabilities that require the identity of the object in the evidence."""


class RenewedDecision(NamedTuple):
    """A decision and its inputs, besides its policy and its time."""

    decision: Decision
    facts: Facts
    usage: BudgetUsage


class RenewedEvidence(NamedTuple):
    """A case as its sources show it now, its last readings, and the size of the fleet."""

    facts: Facts
    readings: Recheck
    fleet: BudgetUsage


class _ExecutorError(FallowError):
    """An executor raised an unexpected exception; `run` names the executor."""

    def __init__(self, run: PluginRun) -> None:
        super().__init__(run.reason)
        self.run = run


class ActionRunner(msgspec.Struct, frozen=True):
    """Carries out decided steps."""

    context: ActionContext
    evidence: EvidenceSource
    decider: Decider
    choose: ExecutorChooser
    guard: Guard
    read_usage: Callable[[BudgetUsage, datetime], BudgetUsage]
    """Adds the actions so far to the size of the fleet."""
    snapshotter: SnapshotTaker | None = None
    link: str = ""
    others: OtherClusters | None = None
    """The other clusters of the catalog; None = no budget of the whole fleet has room."""

    def run(self, policy: Policy, decision: Decision, facts: Facts, *, dry_run: bool) -> StepResult:
        """Take a snapshot or act, or return why not; a dry run evaluates all and writes nothing."""
        try:
            for _ in range(MAX_STAGES):
                if dry_run:
                    planned = RenewedDecision(decision, facts, BudgetUsage())
                    step = self._step(policy, planned, dry_run=True)
                else:
                    step = self._step_alone(policy, decision, facts)
                if isinstance(step, StepResult):
                    return step
                decision, facts = step
        except _ExecutorError as error:
            refused = self._refuse(decision, Reason("failed", error.message), dry_run=dry_run)
            return msgspec.structs.replace(refused, run=error.run)
        except RefusedError as error:
            return self._refuse(decision, Reason("refused", error.message), dry_run=dry_run)
        except TemporaryError as error:
            return StepResult(decision, "held", (Reason("away", error.message),))
        except FallowError as error:
            return self._refuse(decision, Reason("failed", error.message), dry_run=dry_run)
        return StepResult(decision, "held", (Reason("snapshot", "the snapshot is not enough"),))

    def same(self, facts: Facts) -> Facts:
        """Return the facts with their finding as the case that it continues."""
        return self.context.record.continue_cases([facts])[0]

    def _step_alone(
        self, policy: Policy, decision: Decision, facts: Facts
    ) -> StepResult | tuple[Decision, Facts]:
        """Read the evidence again, and take a step while no other process acts.

        Sources and catalog may take long or hang: an undo does not wait for them, because the
        journal is free meanwhile.
        """
        alone = self.context.record.journal.alone
        with alone():
            if why := self._explain_hold():
                return StepResult(decision, "held", why)
        evidence = self._read_evidence(facts)
        in_fleet = self.others is not None and has_fleet_budget([policy])
        with self.others.alone() if self.others and in_fleet else nullcontext(), alone():
            renewed = self._decide_again(policy, decision, evidence)
            if isinstance(renewed, StepResult):
                return renewed
            return self._step(policy, renewed, dry_run=False)

    def _step(
        self, policy: Policy, renewed: "RenewedDecision", *, dry_run: bool
    ) -> StepResult | tuple[Decision, Facts]:
        decision, facts = renewed.decision, renewed.facts
        self.context.pulse("decided again")
        cluster = self.context.cluster
        reads = CachedCluster(cluster)
        intent = self._intent(decision, reads)
        self.context.pulse("intended")
        why = self._explain_unfit(policy, facts, decision, intent, cluster)
        if why:
            return self._refuse(decision, *why, dry_run=dry_run)
        require_undo_rights(intent, self.context.cluster)
        if decision.step == "snapshot":
            return self._snapshot(policy, renewed, intent, dry_run=dry_run)
        decide_again = partial(self._decide_writes_again, policy, facts, decision)
        confirmation = Confirmation(intent, reads, cluster, decide_again)
        refusal = self.context.sender.dry_run(intent.changes, confirmation)
        if refusal is not None:
            return self._refuse(decision, refusal, dry_run=dry_run)
        self.context.pulse("rehearsed")
        if dry_run:
            return StepResult(decision, "would act", intent=intent)
        return self._act(policy, renewed, intent, confirmation)

    def _decide_writes_again(
        self, policy: Policy, facts: Facts, decision: Decision, cluster: CachedCluster
    ) -> tuple[Intent, tuple[Reason, ...]]:
        """Return the writes by objects read again, and why they must not be sent any more."""
        intent = self._intent(decision, cluster)
        # A write of a status may raise the generation; every other field is compared anyway.
        facts = msgspec.structs.replace(facts, generation=None)
        return intent, self._explain_unfit(policy, facts, decision, intent, cluster)

    def _intent(self, decision: Decision, cluster: ClusterReader) -> Intent:
        """Return what the executor would write; its exception becomes a refusal."""
        executor = self.choose(decision)
        try:
            return executor.writes(decision, cluster)
        except FallowError:
            raise
        except Exception as error:
            name = get_name(executor)
            why = log_failure("executor", name, error)
            raise _ExecutorError(PluginRun("executor", name, "failed", why)) from error

    def _explain_hold(self) -> tuple[Reason, ...]:
        return self.context.halted() or self._explain_busy()

    def _read_evidence(self, facts: Facts) -> "RenewedEvidence | None":
        """Read the sources again: minutes may have passed. None = it is no case any more."""
        context = self.context
        fresh = self.evidence.again(facts, context.clock())
        context.pulse("read again")
        if fresh is None:
            return None
        now = context.clock()
        fresh = self.same(fresh)
        if self._explain_stale(fresh, now):
            return RenewedEvidence(fresh, Recheck(), BudgetUsage())
        readings = self.evidence.recheck(fresh, now)
        context.pulse("checked the last readings")
        return RenewedEvidence(fresh, readings, self.evidence.fleet(now))

    def _decide_again(
        self, policy: Policy, decision: Decision, evidence: "RenewedEvidence | None"
    ) -> "StepResult | RenewedDecision":
        """Decide again by evidence of now; `evidence` None = there is no case any more."""
        context = self.context
        if why := self._explain_hold():
            return StepResult(decision, "held", why)
        if evidence is None:
            return self._refuse(
                decision, Reason("evidence", "judged again, there is no case any more")
            )
        now = context.clock()
        history = context.record.catch_up().history(policy.name, evidence.facts.finding)
        facts = msgspec.structs.replace(evidence.facts, history=history)
        if (why_not := self._check_signals(decision, facts, evidence.readings, now)) is not None:
            return why_not
        usage = self.read_usage(evidence.fleet, now)
        renewed = self.decider(policy, facts, usage, now)
        if renewed.ruling == "allow" and renewed.step == decision.step:
            return RenewedDecision(renewed, facts, usage)
        reasons = renewed.reasons or (Reason("evidence", f"the next step is {renewed.step} now"),)
        return (
            StepResult(renewed, "held", reasons)
            if renewed.ruling == "hold"
            else self._refuse(renewed, *reasons)
        )

    def _check_signals(
        self, decision: Decision, facts: Facts, readings: Recheck, now: datetime
    ) -> StepResult | None:
        """Return which last readings are stale (hold) or active (refuse); None = none is."""
        if stale := self._explain_stale(facts, now):
            return StepResult(decision, "held", stale)
        if readings.active:
            return self._refuse(decision, *(Reason("awake", text) for text in readings.active))
        if readings.stale:
            stale = tuple(Reason("evidence", text) for text in readings.stale)
            return StepResult(decision, "held", stale)
        return None

    def _explain_busy(self) -> tuple[Reason, ...]:
        limit = self.context.settings.concurrent
        if self.context.record.count_open() < limit:
            return ()
        return (Reason("concurrent", f"{limit} actions are under way already"),)

    def _explain_stale(self, facts: Facts, now: datetime) -> tuple[Reason, ...]:
        max_age = self.context.settings.evidence_age
        if facts.seen_until is not None and abs(now - facts.seen_until) <= max_age:
            return ()
        last_seen = "never" if facts.seen_until is None else f"at {facts.seen_until:%H:%M:%S}"
        limit_s = max_age.total_seconds()
        if facts.seen_until is not None and facts.seen_until > now:
            # The clock was set back, or another host's is ahead: nobody knows how old it is.
            ahead_s = (facts.seen_until - now).total_seconds()
            text = f"its devices were last sampled {last_seen}, {ahead_s:.0f} s ahead of this clock"
            return (Reason("evidence", f"{text}: its age is unknown"),)
        text = f"its devices were last sampled at {last_seen}: older than {limit_s:.0f} s"
        return (Reason("evidence", text),)

    def _explain_unfit(
        self,
        policy: Policy,
        facts: Facts,
        decision: Decision,
        intent: Intent,
        cluster: ClusterReader,
    ) -> tuple[Reason, ...]:
        """Return why the object is not the one of the evidence, or must not be changed."""
        if excess := find_excess(decision, intent):
            return excess
        if why := _explain_identity(facts, intent):
            return (Reason("identity", why),)
        if scope_reason := find_mismatch(facts, intent):
            return (scope_reason,)
        obj = self._object(intent, cluster)
        if why := _explain_unready(facts, intent, obj) or self._explain_mark(obj):
            return (Reason("identity", why),)
        if not any(c.becomes or c.method == "POST" for c in intent.changes):
            return (Reason("nothing", f"{decision.verb} would change nothing"),)
        why_not = self.guard(intent, obj, cluster, self.context.clock())
        return why_not or find_held(intent, facts, policy.allow.held_by, cluster)

    def _explain_mark(self, obj: Mapping[str, Any]) -> str | None:
        notes = (obj.get("metadata") or {}).get("annotations") or {}
        action = notes.get(ACTION_KEY)
        if not action or self.context.record.knows(str(action)):
            return None
        return f"action {action} changed it, which the journal lacks: `fallow reconcile`"

    def _object(self, intent: Intent, cluster: ClusterReader) -> Mapping[str, Any]:
        """Return the intent's object as it is now; one outside of Kubernetes is its own proof."""
        target = intent.target
        if not target.api_version:
            return {"metadata": {"uid": target.uid, "name": target.name}, "kind": target.kind}
        return cluster.get(self.context.path(target)) or {}

    def _snapshot(
        self, policy: Policy, before: "RenewedDecision", intent: Intent, *, dry_run: bool
    ) -> StepResult | tuple[Decision, Facts]:
        decision, facts, usage = before
        stage = policy.stage("snapshot")
        kinds = stage.parts if stage else ()
        if dry_run:
            return StepResult(decision, "would keep a snapshot, then act", intent=intent)
        if self.snapshotter is None:
            return self._refuse(
                decision, Reason("snapshot", "nothing is configured to keep one in")
            )
        self.context.pulse("before the snapshot")
        snapshot = self.snapshotter.take(intent, kinds)
        self.context.pulse("kept a snapshot")
        if not snapshot.verified:
            why = "; ".join(snapshot.missing) or "it could not be read back"
            return self._refuse(decision, Reason("snapshot", f"no verified snapshot: {why}"))
        document = {"policy": policy.name, "id": snapshot.id, "snapshot": snapshot}
        self.context.record.append(event_types.SNAPSHOT, facts.finding.id, document)
        history = self.context.record.history(policy.name, facts.finding)
        facts = msgspec.structs.replace(facts, history=history)
        now = self.context.clock()
        renewed = self.decider(policy, facts, self.read_usage(usage, now), now)
        if renewed.ruling != "allow" or renewed.step != "act":
            return StepResult(decision, "kept a snapshot", renewed.reasons)
        return renewed, facts

    def _act(
        self, policy: Policy, renewed: "RenewedDecision", intent: Intent, confirmation: Confirmation
    ) -> StepResult:
        context, (decision, facts, usage) = self.context, renewed
        if why := context.halted():
            return StepResult(decision, "held", why)
        now = context.clock()
        action = Action(
            id=action_id(decision.id, intent.target.uid, now),
            decision=decision,
            intent=intent,
            at=now,
            actor=context.record.journal.actor,
            approved_by=tuple(
                a.name for a in context.record.approvals(policy.name, facts.finding.id)
            ),
            snapshot=context.record.snapshot_of(policy.name, facts.finding.id),
        )
        context.pulse("before the journal")
        # All inputs of the decision: it can be decided again, byte for byte.
        document = {
            "action": action,
            "facts": facts,
            "policy": build_policy_document(policy),
            "spent": usage,
        }
        context.record.append(event_types.INTENT, action.id, document)
        context.pulse("journalled the intent")
        state = context.record.actions[action.id]
        interruption = context.sender.send(state, intent.changes, confirmation)
        if interruption is None or (interruption.verdict == "waiting" and state.writes.took):
            announce_action(context, action, self.link)
            context.pulse("annotated the object")
            waiting = () if interruption is None else (interruption.reason,)
            return StepResult(decision, "acted", waiting, action.id, intent)
        outcome = continue_after(context, state, interruption)
        refused = outcome is not None and outcome.result == "refused"
        result = "refused" if refused else "acted"
        reasons = outcome.reasons if outcome is not None else (interruption.reason,)
        return StepResult(decision, result, reasons, action.id, intent)

    def _refuse(self, decision: Decision, *reasons: Reason, dry_run: bool = False) -> StepResult:
        """Refuse; a repeated refusal is journalled once."""
        text = "; ".join(f"{r.gate}: {r.text}" for r in reasons)
        if not dry_run and self.context.record.last_refusal(decision.id) != text:
            document = {
                "policy": decision.policy,
                "finding": decision.finding,
                "subject": decision.subject,
                "step": decision.step,
                "line": text,
            }
            self.context.record.append(event_types.REFUSED, decision.id, document)
        return StepResult(decision, "refused", reasons)


def _explain_identity(facts: Facts, intent: Intent) -> str | None:
    """Return why the executor's object is not the object of the evidence."""
    target = intent.target
    if facts.uid is None and (intent.frees or intent.capability in WORKLOAD_CAPABILITIES):
        return "the evidence does not say which object it saw"
    if facts.uid is not None and facts.uid != target.uid:
        return f"{target.kind} {target.name} is another object by now"
    if facts.generation is not None and facts.generation != target.generation:
        difference = f"generation {target.generation}, the evidence saw {facts.generation}"
        return f"it was changed since: {difference}"
    return None


def _explain_unready(facts: Facts, intent: Intent, obj: Mapping[str, Any]) -> str | None:
    """Return why the object in its current state must not be written."""
    target, meta = intent.target, obj.get("metadata") or {}
    if meta.get("uid") != target.uid:
        return f"{target.kind} {target.name} is gone, or another by now"
    if meta.get("deletionTimestamp"):
        return f"{target.kind} {target.name} is being deleted"
    by = find_spec_writer(obj, facts.seen_until) if facts.seen_until else None
    return f"{by} changed it after the last sample of its devices" if by else None


def build_policy_document(policy: Policy) -> dict[str, Any]:
    """Return a policy as the journal stores it: its content, and the hash of the content."""
    text: dict[str, Any] = msgspec.to_builtins(policy, enc_hook=str)
    return {"name": policy.name, "fingerprint": policy.fingerprint, "text": text}


def check_protections(
    intent: Intent, obj: Mapping[str, Any], cluster: ClusterReader, now: datetime
) -> tuple[Reason, ...]:
    """Return the protections and obstacles of the object, as the cluster shows them now."""
    target = intent.target
    if not (target.api_version or target.namespace):
        return ()
    # An object without pods of its own: a search for pods would read all of the cluster's.
    skips_pods = intent.capability in {"quota", "warm-pool"}
    chain: Sequence[Mapping[str, Any]] = [] if skips_pods else [*cluster.pods(target)]
    if target.api_version and target.kind != "Node":
        chain = [*chain, obj]
    namespace: Mapping[str, Any] | None = {}
    if target.namespace:
        namespace = cluster.get(f"/api/v1/namespaces/{target.namespace}")
    protections = find_protections(chain, namespace, now)
    if not target.api_version:  # a hub's server: its pods and namespace are the cluster's
        return protections
    return (*protections, *find_obstacles(obj, cluster, intent=intent))

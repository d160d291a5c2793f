"""Carry out one decision, always in the same order.

budgets ─► evidence read again ─► last reading of each signal ─► decided again ─► object, and what
the write would free, as in the evidence ─► protections and rivals ─► dry run ─► journal ─► writes
─► word on the object

Whatever says no before the journal's row leaves nothing behind but a refusal with its reasons.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from actions.executors import name_of
from actions.journal import words
from actions.loop.kit import Kit
from actions.loop.pointers import spec_written
from actions.loop.reconciling import after
from actions.loop.scope import mismatch
from actions.loop.seams import Choose, Decider, Evidence, Guard, Snapshotter, Taken
from actions.loop.telling import tell
from actions.policy.bounds import beyond
from actions.policy.budgets import Spent
from actions.policy.model import Policy
from fallow.acting import Action, Decision, Facts, Intent, Reason, action_id
from fallow.boundary import PluginRun, failed
from fallow.errors import FallowError, RefusedError, TemporaryError
from fallow.seams import Cluster

MOST_RUNGS = 2
"""A snapshot, and the act right after it."""
ON_WORKLOADS = frozenset({"suspend", "scale", "evict", "resize"})
"""Capabilities that need to know which object the evidence saw."""


class Decided(NamedTuple):
    """A decision and what it is a function of, beside its policy and moment."""

    decision: Decision
    facts: Facts
    spent: Spent


class _ExecutorError(FallowError):
    """An executor raised what it should not: `run` says which one."""

    def __init__(self, run: PluginRun) -> None:
        super().__init__(run.reason)
        self.run = run


class Carrier(msgspec.Struct, frozen=True):
    """Takes decided steps."""

    kit: Kit
    evidence: Evidence
    decider: Decider
    choose: Choose
    guard: Guard
    spent: Callable[[datetime], Spent]
    """What was done so far, and to what a fleet."""
    snapshotter: Snapshotter | None = None
    link: str = ""

    def carry(self, policy: Policy, decision: Decision, facts: Facts, *, dry_run: bool) -> Taken:
        """Take a snapshot or act, or say why not; a dry run asks everything and writes nothing."""
        try:
            for _ in range(MOST_RUNGS):
                made = self._step(policy, decision, facts, dry_run=dry_run)
                if isinstance(made, Taken):
                    return made
                decision, facts = made
        except _ExecutorError as error:
            refused = self._no(decision, Reason("failed", error.message), dry_run=dry_run)
            return msgspec.structs.replace(refused, run=error.run)
        except RefusedError as error:
            return self._no(decision, Reason("refused", error.message), dry_run=dry_run)
        except TemporaryError as error:
            return Taken(decision, "held", (Reason("away", error.message),))
        except FallowError as error:
            return self._no(decision, Reason("failed", error.message), dry_run=dry_run)
        return Taken(decision, "held", (Reason("snapshot", "the snapshot is not enough"),))

    def same(self, facts: Facts) -> Facts:
        """Return the facts with their finding as the case that it goes on."""
        return self.kit.record.same([facts])[0]

    def _step(
        self, policy: Policy, decision: Decision, facts: Facts, *, dry_run: bool
    ) -> Taken | tuple[Decision, Facts]:
        spent = Spent()
        if not dry_run:
            checked = self._again(policy, decision, facts)
            if isinstance(checked, Taken):
                return checked
            decision, facts, spent = checked
        self.kit.pulse("decided again")
        intent = self._intent(decision)
        self.kit.pulse("intended")
        why = self._unfit(facts, decision, intent)
        if why:
            return self._no(decision, *why, dry_run=dry_run)
        if decision.step == "snapshot":
            return self._snapshot(policy, decision, facts, intent, dry_run=dry_run)
        refusal = self.kit.writes.rehearse(intent.changes)
        if refusal is not None:
            return self._no(decision, refusal, dry_run=dry_run)
        self.kit.pulse("rehearsed")
        if dry_run:
            return Taken(decision, "would act", intent=intent)
        return self._act(policy, Decided(decision, facts, spent), intent)

    def _intent(self, decision: Decision) -> Intent:
        """Return what the executor would write; its exception is a refusal, nobody else's."""
        executor = self.choose(decision)
        try:
            return executor.intend(decision, self.kit.door)
        except FallowError:
            raise
        except Exception as error:
            name = name_of(executor)
            why = failed("executor", name, error)
            raise _ExecutorError(PluginRun("executor", name, "failed", why)) from error

    def _again(self, policy: Policy, decision: Decision, facts: Facts) -> "Taken | Decided":
        """Look at the sources anew and decide again: minutes may lie between."""
        kit = self.kit
        if why := (kit.halted() or self._busy()):
            return Taken(decision, "held", why)
        found = self.evidence.again(facts, kit.clock())
        kit.pulse("looked again")
        if found is None:
            return self._no(decision, Reason("evidence", "a fresh look finds no case any more"))
        now = kit.clock()
        found = self.same(found)
        history = kit.record.catch_up().history(policy.name, found.finding)
        facts = msgspec.structs.replace(found, history=history)
        if (why_not := self._left_alone(decision, facts, now)) is not None:
            return why_not
        spent = self.spent(now)
        again = self.decider(policy, facts, spent, now)
        if again.ruling == "allow" and again.step == decision.step:
            return Decided(again, facts, spent)
        said = again.reasons or (Reason("evidence", f"the next step is {again.step} now"),)
        return Taken(again, "held", said) if again.ruling == "hold" else self._no(again, *said)

    def _left_alone(self, decision: Decision, facts: Facts, now: datetime) -> Taken | None:
        """Say what of the last readings is old (held) or active (refused); None = nothing is."""
        if old := self._old(facts, now):
            return Taken(decision, "held", old)
        checked = self.evidence.recheck(facts, now)
        self.kit.pulse("checked the last readings")
        if checked.active:
            return self._no(decision, *(Reason("awake", text) for text in checked.active))
        if checked.stale:
            old = tuple(Reason("evidence", text) for text in checked.stale)
            return Taken(decision, "held", old)
        return None

    def _busy(self) -> tuple[Reason, ...]:
        most = self.kit.settings.concurrent
        if len(self.kit.record.open()) < most:
            return ()
        return (Reason("concurrent", f"{most} actions are under way already"),)

    def _old(self, facts: Facts, now: datetime) -> tuple[Reason, ...]:
        most = self.kit.settings.evidence_age
        if facts.seen_until is not None and now - facts.seen_until <= most:
            return ()
        seen = "never" if facts.seen_until is None else f"at {facts.seen_until:%H:%M:%S}"
        text = f"its devices were last looked at {seen}: older than {most.total_seconds():.0f} s"
        return (Reason("evidence", text),)

    def _unfit(self, facts: Facts, decision: Decision, intent: Intent) -> tuple[Reason, ...]:
        """Say why the object is not the one of the evidence, or is not to be touched."""
        if further := beyond(decision, intent):
            return further
        if why := _unlike(facts, intent):
            return (Reason("identity", why),)
        if wrong := mismatch(facts, intent):
            return (wrong,)
        obj = self._object(intent)
        if why := _unready(facts, intent, obj):
            return (Reason("identity", why),)
        if not any(c.becomes or c.method == "POST" for c in intent.changes):
            return (Reason("nothing", f"{decision.verb} would change nothing"),)
        return self.guard(intent, obj, self.kit.door, self.kit.clock())

    def _object(self, intent: Intent) -> Mapping[str, Any]:
        """Return the intent's object as it is; what no Kubernetes door shows speaks for itself."""
        target = intent.target
        if not target.api_version:
            return {"metadata": {"uid": target.uid, "name": target.name}, "kind": target.kind}
        return self.kit.door.get(self.kit.path(target)) or {}

    def _snapshot(
        self, policy: Policy, decision: Decision, facts: Facts, intent: Intent, *, dry_run: bool
    ) -> Taken | tuple[Decision, Facts]:
        rung = policy.rung("snapshot")
        what = rung.what if rung else ()
        if dry_run:
            return Taken(decision, "would keep a snapshot, then act", intent=intent)
        if self.snapshotter is None:
            return self._no(decision, Reason("snapshot", "nothing is configured to keep one in"))
        self.kit.pulse("before the snapshot")
        kept = self.snapshotter.take(intent, what)
        self.kit.pulse("kept a snapshot")
        if not kept.verified:
            why = "; ".join(kept.missing) or "it could not be read back"
            return self._no(decision, Reason("snapshot", f"no verified snapshot: {why}"))
        document = {"policy": policy.name, "id": kept.id, "snapshot": kept}
        self.kit.record.append(words.SNAPSHOT, facts.finding.id, document)
        history = self.kit.record.history(policy.name, facts.finding)
        facts = msgspec.structs.replace(facts, history=history)
        now = self.kit.clock()
        again = self.decider(policy, facts, self.spent(now), now)
        if again.ruling != "allow" or again.step != "act":
            return Taken(decision, "kept a snapshot", again.reasons)
        return again, facts

    def _act(self, policy: Policy, decided: "Decided", intent: Intent) -> Taken:
        kit, (decision, facts, spent) = self.kit, decided
        if why := kit.halted():
            return Taken(decision, "held", why)
        now = kit.clock()
        action = Action(
            id=action_id(decision.id, intent.target.uid, now),
            decision=decision,
            intent=intent,
            at=now,
            actor=kit.record.journal.actor,
            approved_by=kit.record.approvals(policy.name, facts.finding.id),
            snapshot=kit.record.snapshot_of(policy.name, facts.finding.id),
        )
        kit.pulse("before the journal")
        # All that the decision was a function of: it can be decided again, byte for byte.
        document = {
            "action": action,
            "facts": facts,
            "policy": policy_document(policy),
            "spent": spent,
        }
        kit.record.append(words.INTENT, action.id, document)
        kit.pulse("journalled the intent")
        told = kit.record.actions[action.id]
        stopped = kit.writes.send(told, intent.changes)
        if stopped is None or (stopped.verdict == "waiting" and told.writes.took):
            tell(kit, action, self.link)
            kit.pulse("told the object")
            waits = () if stopped is None else (stopped.reason,)
            return Taken(decision, "acted", waits, action.id, intent)
        outcome = after(kit, told, stopped)
        refused = outcome is not None and outcome.result == "refused"
        result = "refused" if refused else "acted"
        reasons = outcome.reasons if outcome is not None else (stopped.reason,)
        return Taken(decision, result, reasons, action.id, intent)

    def _no(self, decision: Decision, *reasons: Reason, dry_run: bool = False) -> Taken:
        """Refuse; the same refusal is written down once."""
        line = "; ".join(f"{r.gate}: {r.text}" for r in reasons)
        if not dry_run and self.kit.record.last_refusal(decision.id) != line:
            document = {
                "policy": decision.policy,
                "finding": decision.finding,
                "subject": decision.subject,
                "step": decision.step,
                "line": line,
            }
            self.kit.record.append(words.REFUSED, decision.id, document)
        return Taken(decision, "refused", reasons)


def _unlike(facts: Facts, intent: Intent) -> str | None:
    """Say why what the executor found is not what the evidence saw."""
    target = intent.target
    if facts.uid is None and (intent.frees or intent.capability in ON_WORKLOADS):
        return "the evidence does not say which object it saw"
    if facts.uid is not None and facts.uid != target.uid:
        return f"{target.kind} {target.name} is another object by now"
    if facts.generation is not None and facts.generation != target.generation:
        changed = f"generation {target.generation}, the evidence saw {facts.generation}"
        return f"it was changed since: {changed}"
    return None


def _unready(facts: Facts, intent: Intent, obj: Mapping[str, Any]) -> str | None:
    """Say why the object as it is now is not to be written."""
    target, meta = intent.target, obj.get("metadata") or {}
    if meta.get("uid") != target.uid:
        return f"{target.kind} {target.name} is gone, or another by now"
    if meta.get("deletionTimestamp"):
        return f"{target.kind} {target.name} is being deleted"
    by = spec_written(obj, facts.seen_until) if facts.seen_until else None
    return f"{by} changed it after the last look at its devices" if by else None


def policy_document(policy: Policy) -> dict[str, Any]:
    """Return a policy as the journal keeps it: what it says, and the hash of that."""
    said: dict[str, Any] = msgspec.to_builtins(policy, enc_hook=str)
    return {"name": policy.name, "fingerprint": policy.fingerprint, "text": said}


def standard_guard(
    intent: Intent, obj: Mapping[str, Any], door: Cluster, now: datetime
) -> tuple[Reason, ...]:
    """Return who protects the object, or would fight for it, as the cluster says now."""
    from actions.cluster.ownership import rivals  # noqa: PLC0415  (heavy only where it acts)
    from actions.cluster.protections import protected  # noqa: PLC0415

    target = intent.target
    if not (target.api_version or target.namespace):
        return ()
    # What has no pods of its own: to look for some would read all of the cluster's.
    without = intent.capability in {"quota", "warm-pool"}
    chain: Sequence[Mapping[str, Any]] = [] if without else [*door.pods(target)]
    if target.api_version and target.kind != "Node":
        chain = [*chain, obj]
    space: Mapping[str, Any] | None = {}
    if target.namespace:
        space = door.get(f"/api/v1/namespaces/{target.namespace}")
    guarded = protected(chain, space, now)
    if not target.api_version:  # a hub's server: its pods and namespace are the cluster's
        return guarded
    return (*guarded, *rivals(obj, door, intent=intent))

"""The actor: one turn of acting, for the service and for `fallow apply` alike.

lease ─► kill switch ─► reconcile what is open ─► watch what was done ─► breaker ─► plan ─► one
decision after the other, the dearest first
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta

import msgspec

from actions.decide import decide
from actions.gates import notice_at
from actions.journal import Record, words
from actions.journal.record import Case
from actions.journal.trust import HAND, standings, with_trust
from actions.loop.carrying import Carrier, standard_guard
from actions.loop.freeze import Freeze
from actions.loop.giving import give_back
from actions.loop.kit import Kit
from actions.loop.lease import Lease
from actions.loop.reconciling import reconcile
from actions.loop.seams import (
    Choose,
    Decider,
    Door,
    Evidence,
    Guard,
    Notice,
    Notifier,
    Planner,
    Proof,
    Reviewer,
    Snapshotter,
    Taken,
    TurnReport,
    Way,
)
from actions.loop.undoing import undo
from actions.loop.watching import Watch, demote, review
from actions.loop.writes import KUBERNETES, Writes
from actions.planning import Plan, plan
from actions.policy.budgets import Spent, horizon
from actions.policy.model import Policy
from fallow.acting import Decision, Facts, History, Outcome, Reason, decision_id
from fallow.action_settings import ActionsSettings
from fallow.errors import FallowError, RefusedError, UsageError

APPROVAL = "approval"
"""The gate that people open."""
LAST = ("snapshot", "act")
"""Steps at which approval is asked for: all that comes before them is over."""
BREAKER = "breaker"
SAID_AGAIN = timedelta(hours=1)
"""A notice that cannot be delivered is written down again after so long."""


class Actor:
    """Acts on one cluster, by policies, through a journal."""

    def __init__(
        self,
        *,
        policies: Sequence[Policy],
        door: Door,
        record: Record,
        lease: Lease,
        freeze: Freeze,
        evidence: Evidence,
        notifier: Notifier,
        choose: Choose,
        clock: Callable[[], datetime],
        settings: ActionsSettings,
        snapshotter: Snapshotter | None = None,
        ways: Mapping[str, Way] | None = None,
        link: str = "",
        planner: Planner = plan,
        decider: Decider = decide,
        guard: Guard = standard_guard,
        reviewer: Reviewer = lambda _action, _now: None,
        pulse: Callable[[str], None] = lambda _step: None,
    ) -> None:
        self.policies = tuple(policies)
        self.record, self.lease, self.freeze = record, lease, freeze
        self.clock, self.settings = clock, settings
        self._evidence, self._notifier, self._planner = evidence, notifier, planner
        self._link, self._reviewer = link, reviewer
        writes = Writes({KUBERNETES: door, **(ways or {})}, record, self._halted, pulse)
        self.kit = Kit(door, record, writes, settings, clock, pulse, self._halted)
        self._watch = Watch(self.kit)
        self._carrier = Carrier(
            kit=self.kit,
            evidence=evidence,
            decider=decider,
            choose=choose,
            guard=guard,
            spent=self._spent,
            snapshotter=snapshotter,
            link=link,
        )

    def turn(self, *, dry_run: bool = True, only: Collection[str] = ()) -> TurnReport:
        """Do one turn. A dry run takes no lease and writes nothing, not even to the journal.

        `only`: findings (or what their ids begin with) to act upon; none = all.

        Raises:
            TemporaryError: the cluster or the journal does not answer.
            RefusedError: the lease may not be written.
        """
        now = self.clock()
        if dry_run:
            self.record.catch_up()
            return self._report(now, dry_run=True, halted=self._frozen(), only=only)
        with self.record.journal.alone():
            self.record.catch_up()
            if held := self.lease.hold():
                return TurnReport(now, dry_run, halted=(Reason("lease", held),))
            closed, notes = self._reconcile()
            closed += self._looked_back()
            notes += self._demote(now) + self._give_back()
        halted = self._frozen()
        if not halted:
            self._evidence.look(self.clock())
            now = self.clock()
            halted = self._break(now)
        return self._report(
            now, dry_run=False, halted=halted, closed=closed, notes=notes, only=only
        )

    def settle(self) -> list[Outcome]:
        """Only find out what became of open actions, and of those that stand."""
        with self.record.journal.alone():
            self.record.catch_up()
            if self.lease.hold():
                return []
            return self._reconcile()[0] + self._looked_back()

    def undo(self, prefix: str, by: str) -> Outcome:
        """Take one action back; see `undoing.undo`. It works while everything is frozen.

        Raises:
            UsageError: no action, or several, begin with `prefix`.
            RefusedError: it cannot be undone, and why.
            TemporaryError: another process is acting, or the API does not answer.
        """
        with self.record.journal.alone():
            self.record.catch_up()
            told = self.record.actions[one_of(prefix, self.record.actions, "action")]
            free = msgspec.structs.replace(self.kit, halted=tuple, writes=self._free())
            return undo(free, told, by)

    def _free(self) -> Writes:
        """Return writes that a freeze does not stop: an undo that people ask for is a way out."""
        old = self.kit.writes
        return Writes(old.ways, self.record, tuple, self.kit.pulse)

    def _report(
        self,
        now: datetime,
        *,
        dry_run: bool,
        halted: tuple[Reason, ...],
        closed: Sequence[Outcome] = (),
        notes: Sequence[str] = (),
        only: Collection[str] = (),
    ) -> TurnReport:
        made: Plan | None = None
        taken: list[Taken] = []
        if not halted or dry_run:
            made, facts = self._planned(now, dry_run=dry_run)
            _all_there(only, facts)
            chosen = [d for d in made.decisions if not only or d.finding.startswith(tuple(only))]
            taken = [] if made.aborted else self._take(chosen, facts, dry_run=dry_run)
            closed = [*closed, *self._over(taken)]
        return TurnReport(
            at=now,
            dry_run=dry_run,
            halted=halted,
            plan=made,
            taken=tuple(taken),
            closed=tuple(closed),
            open=tuple(told.action.id for told in self.record.open()),
            notes=(*notes, *(f"policy {n} is {why}" for n, why in self._by_hand().items())),
        )

    def _by_hand(self) -> dict[str, str]:
        """Return the policies that a person trusts without a proof, with who, when and why."""
        found = standings(self.record, self.policies).values()
        return {s.policy: s.why for s in found if s.how == HAND}

    # Before anything new.

    def _frozen(self) -> tuple[Reason, ...]:
        why = self.freeze.why()
        return (Reason("frozen", why),) if why else ()

    def _halted(self) -> tuple[Reason, ...]:
        """Say why not one more write may be sent: asked before each of them."""
        if frozen := self._frozen():
            return frozen
        try:
            held = self.lease.hold()
        except FallowError as error:
            held = error.message
        return (Reason("lease", held),) if held else ()

    def _break(self, now: datetime) -> tuple[Reason, ...]:
        """Freeze everything where telemetry as a whole is not to be trusted."""
        why = self._evidence.incident(now)
        if why is None:
            return ()
        self.record.append(words.FROZEN, words.FLEET, {"why": why}, actor=BREAKER)
        text = f"Fallow acts no more, until `fallow thaw`: {why}"
        self._notifier.tell([Notice(BREAKER, "", text, operators=True)], now)
        return (Reason(BREAKER, why),)

    def _reconcile(self) -> tuple[list[Outcome], list[str]]:
        closed, notes = [], []
        for told in self.record.open():
            try:
                outcome = reconcile(self.kit, told)
            except FallowError as error:
                notes.append(f"action {told.action.id} is open: {error.message}")
                continue
            if outcome is not None:
                closed.append(outcome)
        self._alarm(closed)
        return closed, notes

    def _looked_back(self) -> list[Outcome]:
        """See what was taken back since, and take back what did harm."""
        changed = self._watch.look() + review(self.kit, self._reviewer)
        self._alarm(changed)
        return changed

    def _give_back(self) -> list[str]:
        """Restore snapshots of what was undone; tell operators of what could not be."""
        keeper = self._carrier.snapshotter
        said = give_back(self.kit, keeper) if keeper is not None else []
        if said:
            notices = [Notice("snapshot", "", text, operators=True) for text in said]
            self._notifier.tell(notices, self.clock())
        return said

    def _over(self, taken: Sequence[Taken]) -> list[Outcome]:
        """Return what came at once of actions just taken."""
        told = [self.record.actions[t.action] for t in taken if t.action is not None]
        closed = [t.outcome for t in told if t.outcome is not None and not t.is_open]
        self._alarm(closed)
        return closed

    def _alarm(self, closed: Sequence[Outcome]) -> None:
        """Tell operators of what did not go well."""
        bad = [o for o in closed if o.result in ("failed", "not sticking", "reverted", "unknown")]
        notices = [
            Notice(
                o.action,
                self.record.actions[o.action].action.decision.policy,
                f"action {o.action} is {o.result}: " + "; ".join(r.text for r in o.reasons),
                operators=True,
            )
            for o in bad
        ]
        if notices:
            self._notifier.tell(notices, self.clock())

    def _demote(self, now: datetime) -> list[str]:
        said = demote(self.record, self.policies, now)
        if said:
            self._notifier.tell([Notice("demoted", "", s, operators=True) for s in said], now)
        return said

    # What is new.

    def _planned(self, now: datetime, *, dry_run: bool) -> tuple[Plan, dict[str, Facts]]:
        facts = self.record.same(self._evidence.cases(now))
        findings = [f.finding for f in facts]
        histories = self.record.histories([p.name for p in self.policies], findings)
        if not dry_run:
            # After the histories were read: what is seen for the first time has none.
            self.record.extend(self.record.sightings(facts))
        made = self._planner(self.policies, facts, self._spent(now), now, histories)
        return made, {f.finding.id: f for f in facts}

    def _spent(self, now: datetime) -> Spent:
        made = msgspec.structs.replace(
            self._evidence.fleet(now),
            uses=self.record.uses(now - horizon(self.policies)),
            concurrent=len(self.record.open()),
            acted=self.record.acted(),
        )
        return with_trust(made, self.record, self.policies)

    def _take(
        self, decisions: Sequence[Decision], facts: Mapping[str, Facts], *, dry_run: bool
    ) -> list[Taken]:
        policies = {p.name: p for p in self.policies}
        if not dry_run:
            self._ask(decisions, policies)
        notify = [d for d in decisions if d.ruling == "allow" and d.step == "notify"]
        taken = self._notify(notify, facts, policies, dry_run=dry_run)
        for decision in decisions:
            if decision.ruling != "allow" or decision.step not in LAST:
                continue
            # One at a time: people who undo something do not wait for a whole turn.
            with nullcontext() if dry_run else self.record.journal.alone():
                case = self._case(decision, facts)
                if case is not None:
                    policy = policies[decision.policy]
                    taken.append(self._carrier.carry(policy, decision, case, dry_run=dry_run))
        return taken

    def _case(self, decision: Decision, facts: Mapping[str, Facts]) -> Facts | None:
        found = facts.get(decision.finding)
        if found is None:
            return None
        history: History = self.record.history(decision.policy, found.finding)
        return msgspec.structs.replace(found, history=history)

    def _notify(
        self,
        decisions: Sequence[Decision],
        facts: Mapping[str, Facts],
        policies: Mapping[str, Policy],
        *,
        dry_run: bool,
    ) -> list[Taken]:
        """Tell owners; only what was proved to be delivered starts their grace."""
        from actions.notices.wording import notice  # noqa: PLC0415  (it words what the loop does)

        if dry_run:
            return [Taken(d, "would notify") for d in decisions]
        asked = {
            (d.policy, d.finding): d
            for d in decisions
            if (case := self._case(d, facts)) is not None and notice_at(case) is None
        }
        notices = [
            notice(d, facts[d.finding], policies[d.policy], self._link) for d in asked.values()
        ]
        proofs = self._notifier.tell(notices, self.clock()) if notices else []
        return [self._proved(asked[(p.notice.policy, p.notice.key)], p) for p in proofs]

    def _proved(self, decision: Decision, proof: Proof) -> Taken:
        key, document = proof.notice.key, {"policy": proof.notice.policy}
        if proof.delivered:
            said = {
                "channels": list(proof.delivered),
                "text": proof.notice.text,
                "verb": decision.verb,
            }
            self.record.append(words.NOTICED, key, document | said)
            return Taken(decision, "notified")
        if proof.waits_until is not None:
            until = f"the notice waits until {proof.waits_until:%Y-%m-%d %H:%M} UTC"
            return Taken(decision, "held", (Reason("notice", until),))
        why = "; ".join(proof.failed) or "nobody to tell"
        before = self.record.unnoticed_at(key)
        if before is None or self.clock() - before >= SAID_AGAIN:
            self.record.append(words.UNNOTICED, key, document | {"why": why})
        return Taken(decision, "held", (Reason("notice", f"not delivered: {why}"),))

    def _ask(self, decisions: Sequence[Decision], policies: Mapping[str, Policy]) -> None:
        """Write down what waits for approval, so that people can approve it by its id."""
        notices = []
        for decision in decisions:
            if decision.step not in LAST or not any(r.gate == APPROVAL for r in decision.reasons):
                continue
            key = decision_id(decision.policy, decision.finding, "act")
            if decision.policy not in policies or key in self.record.asked:
                continue
            document = {
                "policy": decision.policy,
                "finding": decision.finding,
                "subject": decision.subject,
                "verb": decision.verb,
            }
            self.record.append(words.ASKED, key, document)
            whom = "/".join(filter(None, decision.subject[1:]))
            text = f"{decision.verb} {whom} by policy {decision.policy}: fallow approve {key}"
            notices.append(Notice(key, decision.policy, text, operators=True))
        if notices:
            self._notifier.tell(notices, self.clock())


def approve(record: Record, prefix: str, by: str) -> str:
    """Write down that somebody approves an action; return its id. Four eyes, always.

    Raises:
        UsageError: nothing of that name waits for approval.
        RefusedError: the one who approves is the one who asked, or approved it already.
    """
    record.catch_up()
    asked = record.asked[one_of(prefix, record.asked, "request")]
    if by == asked.by:
        raise RefusedError(
            f"{asked.decision} was asked for by {by}: somebody else has to approve it",
            hint="four eyes: whoever asks does not approve",
        )
    case: Case = (asked.policy, asked.finding)
    if by in record.approvals(*case):
        raise RefusedError(f"{asked.decision} was approved by {by} already")
    document = {"policy": asked.policy, "finding": asked.finding}
    record.append(words.APPROVED, asked.decision, document, actor=by)
    return asked.decision


def _all_there(only: Collection[str], facts: Mapping[str, Facts]) -> None:
    """Refuse findings that are no case now."""
    for prefix in only:
        if not any(finding.startswith(prefix) for finding in facts):
            raise UsageError(
                f"no finding {prefix!r} is a case now: it is gone, or recommends nothing",
                hint="fallow plan lists those that are",
            )


def one_of(prefix: str, known: Iterable[str], noun: str) -> str:
    """Return the one id that begins with `prefix`.

    Raises:
        UsageError: none does, or several do.
    """
    found = [key for key in known if key.startswith(prefix)] if prefix else []
    if prefix in found or len(found) == 1:
        return prefix if prefix in found else found[0]
    if not found:
        raise UsageError(
            f"no {noun} {prefix!r} in the journal", hint="`fallow actions` lists the ids"
        )
    raise UsageError(
        f"{prefix!r} begins several {noun}s", hint=f"one of: {', '.join(sorted(found)[:10])}"
    )

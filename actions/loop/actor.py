"""The actor: one evaluation and its actions, for the service and for `fallow apply` alike.

lease ─► kill switch ─► reconcile open actions ─► detect drift ─► breaker ─► plan ─► one decision
after the other, the most expensive first
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from actions.decide import decide
from actions.gates import get_notice_time
from actions.journal import JournalState, event_types
from actions.journal.action_state import CaseKey
from actions.journal.permissions import ApprovalRequest
from actions.journal.trust import HAND, add_trust, read_trust_states
from actions.loop.context import ActionContext
from actions.loop.drift import DriftDetector, demote_policies, undo_harmful
from actions.loop.freeze import Freeze
from actions.loop.lease import Lease
from actions.loop.marks import find_unknown, list_marks
from actions.loop.protocols import (
    ClusterClient,
    Decider,
    EvidenceSource,
    ExecutorChooser,
    Guard,
    Notice,
    NoticeProof,
    Notifier,
    OtherClusters,
    Planner,
    Reviewer,
    SnapshotTaker,
    StepResult,
    Transport,
    TurnReport,
)
from actions.loop.reconcile import reconcile
from actions.loop.restore import restore_snapshots
from actions.loop.runner import ActionRunner, check_protections
from actions.loop.sender import KUBERNETES, ChangeSender
from actions.loop.undo import undo
from actions.notices.notice_text import build_notice
from actions.plan import ActionPlan, plan
from actions.policy.budgets import BudgetUsage, get_horizon, has_fleet_budget
from actions.policy.model import Policy
from fallow.action_models import (
    CaseHistory,
    Decision,
    Facts,
    Outcome,
    Reason,
    compute_decision_id,
    list_case_ids,
)
from fallow.approvals import Approver, is_same_person
from fallow.errors import FallowError, RefusedError, TemporaryError, UsageError, WarehouseError
from fallow.settings.actions import ActionsSettings

APPROVAL = "approval"
"""The gate that people open."""
LAST_STEPS = ("snapshot", "act")
"""Steps that need an approval; all stages before them are complete by then."""
BREAKER = "breaker"
EVIDENCE = "evidence"
"""The gate of a turn whose sources or whose warehouse could not be read."""
_LAGGING = (event_types.OUTDATED, event_types.FROZEN)
REPEAT_AFTER = timedelta(hours=1)
"""A notice that cannot be delivered is journalled again after this time."""


class Actor:
    """Acts on one cluster, by policies, through a journal."""

    def __init__(
        self,
        *,
        policies: Sequence[Policy],
        client: ClusterClient,
        record: JournalState,
        lease: Lease,
        freeze: Freeze,
        evidence: EvidenceSource,
        notifier: Notifier,
        choose: ExecutorChooser,
        clock: Callable[[], datetime],
        settings: ActionsSettings,
        snapshotter: SnapshotTaker | None = None,
        ways: Mapping[str, Transport] | None = None,
        link: str = "",
        others: OtherClusters | None = None,
        planner: Planner = plan,
        decider: Decider = decide,
        guard: Guard = check_protections,
        reviewer: Reviewer = lambda _action, _now: None,
        pulse: Callable[[str], None] = lambda _step: None,
    ) -> None:
        self.policies = tuple(policies)
        self.record, self.lease, self.freeze = record, lease, freeze
        self.clock, self.settings = clock, settings
        self._evidence, self._notifier, self._planner = evidence, notifier, planner
        self._link, self._reviewer, self._others = link, reviewer, others
        self._has_read_marks = False
        lease.renew_anchor = record.renew_anchor
        writes = ChangeSender({KUBERNETES: client, **(ways or {})}, record, self._halted, pulse)
        self.context = ActionContext(client, record, writes, settings, clock, pulse, self._halted)
        self._drift = DriftDetector(self.context)
        self._runner = ActionRunner(
            context=self.context,
            evidence=evidence,
            decider=decider,
            choose=choose,
            guard=guard,
            read_usage=self._read_usage,
            snapshotter=snapshotter,
            link=link,
            others=others,
        )

    def turn(self, *, dry_run: bool = True, only: Collection[str] = ()) -> TurnReport:
        """Run one evaluation. A dry run takes no lease and writes nothing, not even to the journal.

        `only`: findings (or prefixes of their ids) to act upon; none = all.

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
            if refusal := self.lease.hold():
                return TurnReport(now, dry_run, halted=(Reason("lease", refusal),))
            self._check_journal()
            closed, notes = self._reconcile()
            closed += self._review_past()
            notes += self._demote(now) + self._restore_snapshots()
        halted = self._frozen() or self._check_evidence()
        return self._report(
            self.clock(), dry_run=False, halted=halted, closed=closed, notes=notes, only=only
        )

    def settle(self) -> list[Outcome]:
        """Only determine the outcomes of open actions, and of those not reversed."""
        with self.record.journal.alone():
            self.record.catch_up()
            if self.lease.hold():
                return []
            self._check_journal()
            return self._reconcile()[0] + self._review_past()

    def undo(self, prefix: str, by: str) -> Outcome:
        """Undo one action; see `actions.loop.undo.undo`. It works while everything is frozen.

        Raises:
            UsageError: no action, or several, begin with `prefix`.
            RefusedError: it cannot be undone, and why.
            TemporaryError: another process is acting, or the API does not answer.
        """
        with self.record.journal.alone():
            self.record.catch_up()
            state = self.record.actions[find_by_prefix(prefix, self.record.actions, "action")]
            free = msgspec.structs.replace(
                self.context, halted=tuple, sender=self._sender_without_freeze()
            )
            return undo(free, state, by)

    def _sender_without_freeze(self) -> ChangeSender:
        """Return a sender that a freeze does not stop, for undos that people request."""
        sender = self.context.sender
        return ChangeSender(sender.transports, self.record, tuple, self.context.pulse)

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
        plan_now: ActionPlan | None = None
        results: list[StepResult] = []
        if not halted or dry_run:
            plan_now, facts = self._plan(now, dry_run=dry_run)
            _require_cases(only, facts)
            chosen = [
                d
                for d in plan_now.decisions
                if d.subject[0] not in plan_now.aborted
                and (not only or d.finding.startswith(tuple(only)))
            ]
            results = self._take_steps(chosen, facts, dry_run=dry_run)
            closed = [*closed, *self._collect_closed(results)]
        return TurnReport(
            at=now,
            dry_run=dry_run,
            halted=halted,
            plan=plan_now,
            steps=tuple(results),
            closed=tuple(closed),
            open=tuple(state.action.id for state in self.record.list_open()),
            notes=(*notes, *(f"policy {n} is {why}" for n, why in self._by_hand().items())),
        )

    def _by_hand(self) -> dict[str, str]:
        """Return the policies that a person trusts without a proof, with who, when and why."""
        states = read_trust_states(self.record, self.policies).values()
        return {s.policy: s.why for s in states if s.how == HAND}

    # Work on earlier actions comes first.

    def _frozen(self) -> tuple[Reason, ...]:
        why = self.freeze.why()
        return (Reason("frozen", why),) if why else ()

    def _halted(self) -> tuple[Reason, ...]:
        """Return why no further write may be sent; called before each write."""
        if frozen := self._frozen():
            return frozen
        try:
            refusal = self.lease.hold()
        except FallowError as error:
            refusal = error.message
        if refusal:
            return (Reason("lease", refusal),)
        self._check_journal()
        return self._frozen() if self.record.outdated else ()

    def _check_journal(self) -> None:
        """Freeze everything if the Lease or marks show actions that the journal lacks."""
        anchor = self.lease.anchor
        if self.record.outdated or anchor is None:
            return
        why = self.record.explain_lag(anchor) or self._find_unknown_mark(anchor)
        if not why:
            return
        document = {"why": why}
        rows = [(kind, event_types.FLEET, document) for kind in _LAGGING]
        self.record.extend(rows)
        text = f"Fallow acts no more, until `fallow reconcile` and `fallow thaw`: {why}"
        notice = Notice(event_types.OUTDATED, "", text, operators=True)
        self._notifier.tell([notice], self.clock())

    def _find_unknown_mark(self, anchor: str) -> str:
        """Return a mark that a journal without actions does not explain, where no Lease does.

        Kinds that this actor may not list are left to `fallow reconcile`.
        """
        if anchor or self.record.actions or self._has_read_marks:
            return ""
        unknown = find_unknown(self.record, list_marks(self.context.cluster).marks)
        self._has_read_marks = True
        if not unknown:
            return ""
        mark = unknown[0]
        return (
            f"{mark.kind} {mark.namespace}/{mark.name} was changed by action {mark.action}, which "
            "it does not have"
        )

    def _check_evidence(self) -> tuple[Reason, ...]:
        """Read the sources again; return why nothing may act by what is stored.

        A catalog or a store that does not answer halts this turn only. Actions of before are
        reconciled and undone all the same: that needs the journal and the API server alone.
        """
        try:
            self._evidence.read_sources(self.clock())
            return self._check_breaker(self.clock())
        except (TemporaryError, WarehouseError) as error:
            return (Reason(EVIDENCE, error.message),)

    def _check_breaker(self, now: datetime) -> tuple[Reason, ...]:
        """Freeze everything if telemetry as a whole is unreliable."""
        why = self._evidence.incident(now)
        if why is None:
            return ()
        self.record.append(event_types.FROZEN, event_types.FLEET, {"why": why}, actor=BREAKER)
        text = f"Fallow acts no more, until `fallow thaw`: {why}"
        self._notifier.tell([Notice(BREAKER, "", text, operators=True)], now)
        return (Reason(BREAKER, why),)

    def _reconcile(self) -> tuple[list[Outcome], list[str]]:
        closed, notes = [], []
        for state in self.record.list_open():
            try:
                outcome = reconcile(self.context, state)
            except FallowError as error:
                notes.append(f"action {state.action.id} is open: {error.message}")
                continue
            if outcome is not None:
                closed.append(outcome)
        self._alarm(closed)
        return closed, notes

    def _review_past(self) -> list[Outcome]:
        """Find actions that were reversed since, and undo actions that did harm."""
        changed = self._drift.find_changes() + undo_harmful(self.context, self._reviewer)
        self._alarm(changed)
        return changed

    def _restore_snapshots(self) -> list[str]:
        """Restore snapshots of undone actions; notify operators of failures."""
        snapshotter = self._runner.snapshotter
        failures = restore_snapshots(self.context, snapshotter) if snapshotter is not None else []
        if failures:
            notices = [Notice("snapshot", "", text, operators=True) for text in failures]
            self._notifier.tell(notices, self.clock())
        return failures

    def _collect_closed(self, results: Sequence[StepResult]) -> list[Outcome]:
        """Return the outcomes that new actions reached at once."""
        actions = [self.record.actions[t.action] for t in results if t.action is not None]
        closed = [t.outcome for t in actions if t.outcome is not None and not t.is_open]
        self._alarm(closed)
        return closed

    def _alarm(self, closed: Sequence[Outcome]) -> None:
        """Notify operators of failures."""
        failures = [
            o for o in closed if o.result in ("failed", "not sticking", "reverted", "unknown")
        ]
        notices = [
            Notice(
                o.action,
                self.record.actions[o.action].action.decision.policy,
                f"action {o.action} is {o.result}: " + "; ".join(r.text for r in o.reasons),
                operators=True,
            )
            for o in failures
        ]
        if notices:
            self._notifier.tell(notices, self.clock())

    def _demote(self, now: datetime) -> list[str]:
        texts = demote_policies(self.record, self.policies, now)
        if texts:
            self._notifier.tell([Notice("demoted", "", s, operators=True) for s in texts], now)
        return texts

    # New decisions come second.

    def _plan(self, now: datetime, *, dry_run: bool) -> tuple[ActionPlan, dict[str, Facts]]:
        facts = self.record.continue_cases(self._evidence.cases(now))
        findings = [f.finding for f in facts]
        histories = self.record.histories([p.name for p in self.policies], findings)
        if not dry_run:
            # After the histories were read: a case that is seen for the first time has no history.
            self.record.extend(self.record.sightings(facts))
        usage = self._read_usage(self._evidence.fleet(now), now)
        plan_now = self._planner(self.policies, facts, usage, now, histories)
        return plan_now, {f.finding.id: f for f in facts}

    def _read_usage(self, fleet: BudgetUsage, now: datetime) -> BudgetUsage:
        since = now - get_horizon(self.policies)
        if self._others is not None and has_fleet_budget(self.policies):
            fleet = self._others.add_usage(fleet, since)
        usage = msgspec.structs.replace(
            fleet,
            uses=self.record.uses(since),
            concurrent=self.record.count_open(),
            acted=self.record.count_by_policy(),
        )
        return add_trust(usage, self.record, self.policies)

    def _take_steps(
        self, decisions: Sequence[Decision], facts: Mapping[str, Facts], *, dry_run: bool
    ) -> list[StepResult]:
        policies = {p.name: p for p in self.policies}
        if not dry_run:
            self._request_approvals(decisions, policies)
        notify = [d for d in decisions if d.ruling == "allow" and d.step == "notify"]
        results = self._notify(notify, facts, policies, dry_run=dry_run)
        for decision in decisions:
            if decision.ruling != "allow" or decision.step not in LAST_STEPS:
                continue
            # One action at a time: a person who undoes an action does not wait for a whole
            # evaluation.
            case = self._case(decision, facts)
            if case is not None:
                policy = policies[decision.policy]
                results.append(self._runner.run(policy, decision, case, dry_run=dry_run))
        return results

    def _case(self, decision: Decision, facts: Mapping[str, Facts]) -> Facts | None:
        case = facts.get(decision.finding)
        if case is None:
            return None
        history: CaseHistory = self.record.history(decision.policy, case.finding)
        return msgspec.structs.replace(case, history=history)

    def _notify(
        self,
        decisions: Sequence[Decision],
        facts: Mapping[str, Facts],
        policies: Mapping[str, Policy],
        *,
        dry_run: bool,
    ) -> list[StepResult]:
        """Notify owners; only a notice with proved delivery starts the grace period."""
        if dry_run:
            return [StepResult(d, "would notify") for d in decisions]
        wanted_notices = {
            (d.policy, d.finding): d
            for d in decisions
            if (case := self._case(d, facts)) is not None and get_notice_time(case) is None
        }
        notices = [
            build_notice(d, facts[d.finding], policies[d.policy], self._link)
            for d in wanted_notices.values()
        ]
        proofs = self._notifier.tell(notices, self.clock()) if notices else []
        return [
            self._record_notice(wanted_notices[(p.notice.policy, p.notice.key)], p) for p in proofs
        ]

    def _record_notice(self, decision: Decision, proof: NoticeProof) -> StepResult:
        key, document = proof.notice.key, {"policy": proof.notice.policy}
        if proof.delivered:
            details = {
                "channels": list(proof.delivered),
                "text": proof.notice.text,
                "verb": decision.verb,
            }
            self.record.append(event_types.NOTIFIED, key, document | details)
            return StepResult(decision, "notified")
        if proof.waits_until is not None:
            until = f"the notice waits until {proof.waits_until:%Y-%m-%d %H:%M} UTC"
            return StepResult(decision, "held", (Reason("notice", until),))
        why = "; ".join(proof.failed) or "no recipient"
        last_failure = self.record.unnoticed_at(key)
        if last_failure is None or self.clock() - last_failure >= REPEAT_AFTER:
            self.record.append(event_types.NOTIFICATION_FAILED, key, document | {"why": why})
        return StepResult(decision, "held", (Reason("notice", f"not delivered: {why}"),))

    def _request_approvals(
        self, decisions: Sequence[Decision], policies: Mapping[str, Policy]
    ) -> None:
        """Journal the actions that wait for approval, so that people can approve them by id."""
        notices = []
        for decision in decisions:
            if decision.step not in LAST_STEPS or not any(
                r.gate == APPROVAL for r in decision.reasons
            ):
                continue
            key = compute_decision_id(decision.policy, decision.finding, "act")
            if decision.policy not in policies or key in self.record.approval_requests:
                continue
            document = {
                "policy": decision.policy,
                "finding": decision.finding,
                "subject": decision.subject,
                "verb": decision.verb,
            }
            self.record.append(event_types.APPROVAL_REQUESTED, key, document)
            subject = "/".join(filter(None, decision.subject[1:]))
            text = f"{decision.verb} {subject} by policy {decision.policy}: fallow approve {key}"
            notices.append(Notice(key, decision.policy, text, operators=True))
        if notices:
            self._notifier.tell(notices, self.clock())


def approve(record: JournalState, prefix: str, by: str, subject: str = "") -> str:
    """Journal a person's approval of an action; return its id. The approver is not the requester.

    `prefix` begins the id of the request, or of its finding or decision, as plans list them.
    `subject` is that of the person's sign-in; empty = nobody signed in, so names are compared.

    Raises:
        UsageError: no action of that id waits for approval.
        RefusedError: the approver requested the action, or approved it already.
    """
    record.catch_up()
    request = record.approval_requests[find_request(record.approval_requests, prefix)]
    approver = Approver(by, subject)
    if is_same_person(approver, Approver(request.by)):
        raise RefusedError(
            f"{request.decision} was asked for by {by}: somebody else has to approve it",
            hint="four eyes: whoever asks does not approve",
        )
    case: CaseKey = (request.policy, request.finding)
    if any(is_same_person(approver, earlier) for earlier in record.approvals(*case)):
        raise RefusedError(f"{request.decision} was approved by {by} already")
    document = {"policy": request.policy, "finding": request.finding}
    if subject:
        document["oidc_subject"] = subject
    record.append(event_types.APPROVED, request.decision, document, actor=by)
    return request.decision


def find_request(requests: Mapping[str, ApprovalRequest], prefix: str) -> str:
    """Return the request that an id of it, of its finding or of a stage's decision begins.

    Raises:
        UsageError: none does, or several do.
    """
    keys = [
        key
        for key, request in requests.items()
        if any(
            name.startswith(prefix)
            for name in (key, *list_case_ids(request.policy, request.finding))
        )
    ]
    if prefix in requests:
        return prefix
    if not prefix or not keys:
        raise UsageError(
            f"no request {prefix!r} in the journal",
            hint="`fallow actions` lists those that wait; the next turn requests what a plan holds",
        )
    if len(keys) > 1:
        raise UsageError(
            f"{len(keys)} actions on finding {prefix!r} wait for approval",
            hint=f"one of: {', '.join(sorted(keys))}",
        )
    return keys[0]


def _require_cases(only: Collection[str], facts: Mapping[str, Facts]) -> None:
    """Refuse findings that are not a case now."""
    for prefix in only:
        if not any(finding.startswith(prefix) for finding in facts):
            raise UsageError(
                f"no finding {prefix!r} is a case now: it ended, or recommends nothing",
                hint="fallow plan lists those that are",
            )


def find_by_prefix(prefix: str, ids: Iterable[str], thing: str) -> str:
    """Return the one id that begins with `prefix`.

    Raises:
        UsageError: no id does, or several do.
    """
    matches = [key for key in ids if key.startswith(prefix)] if prefix else []
    if prefix in matches or len(matches) == 1:
        return prefix if prefix in matches else matches[0]
    if not matches:
        raise UsageError(
            f"no {thing} {prefix!r} in the journal", hint="`fallow actions` lists the ids"
        )
    raise UsageError(
        f"{prefix!r} begins several {thing}s", hint=f"one of: {', '.join(sorted(matches)[:10])}"
    )

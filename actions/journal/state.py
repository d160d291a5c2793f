"""The journal's state in memory: every case and action, every freeze, and trust in policies.

The state follows a journal: `catch_up` reads the rows that this and other processes wrote since. It
is built from rows only, so after a crash it is the same again.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from actions.journal import event_types
from actions.journal.checkpoint import EVERY, Checkpoint, read_checkpoint, write_checkpoint
from actions.journal.log import GENESIS, Entry, Journal
from actions.policy.budgets import CountedAction, count_action
from actions.policy.reversals import ReversalProof
from fallow import case_identity
from fallow.action_models import Action, CaseHistory, Facts, Outcome, Reason, Result
from fallow.approvals import Approver
from fallow.case_identity import CaseKin, StoredCase, get_judged_part, get_kin
from fallow.clock_steps import ClockSteps
from fallow.errors import UsageError
from fallow.models import Finding

SubjectKey = tuple[str, str, str, str]
"""cluster, kind, namespace, name"""
CaseKey = tuple[str, str]
"""policy, finding"""
CANARY = "canary"
"""Policy and finding of the canary's actions; ids of findings are hashes."""
REWRITE_SHARE = 1 / 4
"""A continuing case is written again after this part of its analyzer's lookback."""
MAX_STORED_CASES = 8
"""Cases of one workload and kind that are kept in memory; a window shows no more of them."""
READ_BACK, SUCCESS = 0, 2
"""Codes of success: 0 stands for an answer that never came while the object shows that the change
was applied."""


class WriteProgress(msgspec.Struct):
    """Progress of the writes of an action, or of its undo, by the number of the change."""

    sending: dict[int, datetime] = {}
    """When each was last about to be sent."""
    sent: dict[int, int] = {}
    """The answer to each: an HTTP code, or 0 where only reading the object back showed the result.
    """

    @property
    def open(self) -> dict[int, datetime]:
        """Return the changes that may have been sent and were never answered."""
        return {n: at for n, at in self.sending.items() if n not in self.sent}

    @property
    def took(self) -> set[int]:
        """Return the changes that the API applied, by its answer or as read back."""
        return {n for n, code in self.sent.items() if code == READ_BACK or code // 100 == SUCCESS}

    @property
    def last(self) -> datetime | None:
        """Return when the last change was about to be sent."""
        return max(self.sending.values(), default=None)


class Reversal(msgspec.Struct, frozen=True):
    """The reversal of an action: by a person (a reversal) or by a controller (a revert)."""

    at: datetime
    by: str
    person: bool


class UndoState(msgspec.Struct, frozen=True):
    """The start of an undo: by whom, when, and whether a person requested it."""

    by: str
    at: datetime
    requested: bool
    ends: Result = "undone"
    """The intended outcome."""
    why: tuple[Reason, ...] = ()


class ActionState(msgspec.Struct):
    """The state of one action by the journal."""

    action: Action
    facts: Facts | None = None
    policy: dict[str, Any] = {}
    writes: WriteProgress = msgspec.field(default_factory=WriteProgress)
    undo_progress: WriteProgress = msgspec.field(default_factory=WriteProgress)
    undo_state: UndoState | None = None
    outcomes: list[Outcome] = []
    order: tuple[int, int] = (0, 0)
    """Numbers of the rows of its last outcome and of its last undo."""
    restored: "Reversal | None" = None
    ended: datetime | None = None
    """When its object was observed to be gone."""
    reviewed: bool = False
    """Stored rows show that it did no harm."""
    snapshot_restored: bool = False
    """The contents of its snapshot were restored, or cannot be."""

    @property
    def outcome(self) -> Outcome | None:
        """Return its last outcome; None = not known yet."""
        return self.outcomes[-1] if self.outcomes else None

    @property
    def is_open(self) -> bool:
        """Return whether its outcome, or that of its undo, is still open."""
        concluded, undoing = self.order
        return self.outcome is None or undoing > concluded

    @property
    def is_canary(self) -> bool:
        """Return whether it is a run of the canary, which saves nothing and uses no budget."""
        return self.action.decision.finding == CANARY

    @property
    def has_written(self) -> bool:
        """Return whether any of its changes was applied, or may have been."""
        return bool(self.writes.took or self.writes.open)

    @property
    def workload(self) -> SubjectKey:
        """Return the workload that it acted on."""
        return self.action.decision.subject


class ApprovalRequest(msgspec.Struct, frozen=True):
    """An action that waits for approval."""

    decision: str
    policy: str
    finding: str
    subject: SubjectKey
    verb: str
    by: str
    at: datetime


class KeptWorkload(msgspec.Struct, frozen=True):
    """The request of an owner to keep a workload."""

    until: datetime
    by: str


class ActiveFreeze(msgspec.Struct, frozen=True):
    """A freeze of all actions: since when, by whom, and why."""

    at: datetime
    by: str
    why: str


class PolicyTrust(msgspec.Struct, frozen=True):
    """The permission for a policy of this text to do more than notify, since a given time."""

    fingerprint: str
    since: datetime
    by: str = ""
    reason: str = ""
    by_hand: bool = False
    """True: a person trusts it by hand; False: its back-test proved what it declares."""

    @property
    def text(self) -> str:
        """Return trust by hand as text."""
        return f"trusted by hand by {self.by} on {self.since:%Y-%m-%d}: {self.reason}"


class CanaryState(msgspec.Struct, frozen=True):
    """The last run of the canary: when it ended, its action, and when a run last passed."""

    ended_at: datetime | None = None
    action: str = ""
    last_success: datetime | None = None


class LastBacktest(msgspec.Struct, frozen=True):
    """The result of the last back-test of a policy."""

    fingerprint: str
    at: datetime
    proof: ReversalProof


class StoredState(msgspec.Struct):
    """The fields of `JournalState` in a checkpoint; names without the underscore."""

    actions: dict[str, ActionState]
    approval_requests: dict[str, ApprovalRequest]
    frozen: ActiveFreeze | None
    outdated: str
    reconciled_lease: str
    foreign: set[str]
    keeps: dict[SubjectKey, KeptWorkload]
    snoozed: dict[str, datetime]
    trusted: dict[str, PolicyTrust]
    replays: dict[str, LastBacktest]
    demoted: set[str]
    canary: CanaryState
    seen: dict[str, datetime]
    stretches: dict[CaseKin, dict[str, StoredCase]]
    noticed: dict[CaseKey, list[tuple[datetime, str]]]
    approved: dict[CaseKey, list[tuple[Approver, datetime]]]
    snapshots: dict[CaseKey, tuple[datetime, str]]
    backed_off: dict[SubjectKey, datetime]
    refused: dict[str, str]
    unnoticed: dict[str, datetime]


class JournalState:
    """The state of the journal in memory."""

    def __init__(self, journal: Journal, steps: ClockSteps | None = None) -> None:
        self.journal = journal
        self.steps = steps or ClockSteps()
        """The steps of the clock that wrote the rows: see `history`."""
        self.actions: dict[str, ActionState] = {}
        self.approval_requests: dict[str, ApprovalRequest] = {}
        self.frozen: ActiveFreeze | None = None
        self.outdated = ""
        """Why the journal may lack what was done in the cluster; empty: it does not."""
        self._reconciled_lease = ""
        self._foreign: set[str] = set()
        self.keeps: dict[SubjectKey, KeptWorkload] = {}
        self.snoozed: dict[str, datetime] = {}
        self.trusted: dict[str, PolicyTrust] = {}
        self.replays: dict[str, LastBacktest] = {}
        self.demoted: set[str] = set()
        self.canary = CanaryState()
        self._seen: dict[str, datetime] = {}
        self._stretches: dict[CaseKin, dict[str, StoredCase]] = defaultdict(dict)
        self._noticed: dict[CaseKey, list[tuple[datetime, str]]] = defaultdict(list)
        self._approved: dict[CaseKey, dict[Approver, datetime]] = defaultdict(dict)
        self._snapshots: dict[CaseKey, tuple[datetime, str]] = {}
        self._backed_off: dict[SubjectKey, datetime] = {}
        self._by_subject: dict[SubjectKey, list[ActionState]] = defaultdict(list)
        self._refused: dict[str, str] = {}
        self._unnoticed: dict[str, datetime] = {}
        self._last_read = (0, GENESIS)
        self._checkpoint_seq = 0

    def catch_up(self) -> "JournalState":
        """Read the rows that were written since the last call.

        Raises:
            WarehouseError: a row is not what was written.
        """
        if not self._last_read[0] and (checkpoint := read_checkpoint(self.journal)):
            self._load(checkpoint)
        for entry in self.journal.follow(*self._last_read):
            self._last_read = (entry.seq, entry.hash)
            handler = _HANDLERS.get(entry.kind)
            if handler is not None:
                handler(self, entry)
        seq, row_hash = self._last_read
        if self.journal.writable and seq - self._checkpoint_seq >= EVERY:
            self._checkpoint_seq = seq
            write_checkpoint(self.journal, seq, row_hash, self._dump())
        return self

    def _load(self, checkpoint: Checkpoint) -> None:
        """Take over the state of a checkpoint."""
        stored = msgspec.msgpack.decode(checkpoint.state, type=StoredState, strict=False)
        for name in _STORED_FIELDS:
            setattr(self, _name_attribute(name), getattr(stored, name))
        self._stretches = defaultdict(dict, stored.stretches)
        self._noticed = defaultdict(list, stored.noticed)
        self._approved = defaultdict(dict, {k: dict(v) for k, v in stored.approved.items()})
        for state in self.actions.values():
            self._by_subject[state.workload].append(state)
        self._last_read = (checkpoint.seq, checkpoint.hash)
        self._checkpoint_seq = checkpoint.seq

    def _dump(self) -> bytes:
        fields = {name: getattr(self, _name_attribute(name)) for name in _STORED_FIELDS}
        fields["approved"] = {key: [*people.items()] for key, people in self._approved.items()}
        return msgspec.msgpack.encode(fields, enc_hook=str)

    def append(self, kind: str, key: str, document: Any, *, actor: str = "") -> Entry:
        """Write a row, and update the state."""
        entry = self.journal.append(kind, key, document, actor=actor or None)
        self.catch_up()
        return entry

    def extend(self, rows: Iterable[tuple[str, str, Any]]) -> None:
        """Write rows in one transaction, and update the state."""
        self.journal.extend(rows)
        self.catch_up()

    def knows(self, action: str) -> bool:
        """Return whether the journal has an action, or a reconciliation named it."""
        return action in self.actions or action in self._foreign

    def explain_lag(self, anchor: str) -> str | None:
        """Return why the Lease's anchor shows rows that this journal lacks; None = it has them."""
        if anchor in ("", self._reconciled_lease):
            return None
        try:
            why = self.journal.explain_anchor(anchor)
        except UsageError as error:
            why = error.message
        return f"it is not the journal that the Lease names: {why}" if why else None

    def renew_anchor(self, anchor: str) -> str:
        """Return the anchor to write into the Lease instead of one; empty: leave that one.

        An outdated journal leaves it: it is evidence of what the journal lacks.
        """
        if self.outdated or self.explain_lag(anchor):
            return ""
        return self.journal.anchor()

    def history(self, policy: str, finding: Finding) -> CaseHistory:
        """Return the history of a case under a policy.

        Notices and the last action are as long ago as they really are: where the clock was set
        forward since, their timestamps are later than in the journal.
        """
        subject = finding.subject
        key = (subject.cluster, subject.workload_kind, subject.namespace, subject.workload)
        case = (policy, finding.id)
        keep, actions = self.keeps.get(key), self._by_subject.get(key, [])
        open_ = [t.action.id for t in actions if t.is_open]
        snapshot, snoozed_until = self._snapshots.get(case), self._snoozed_until(finding)
        return CaseHistory(
            first_seen=self._seen.get(finding.id),
            notified_at=self.notified_at(policy, finding),
            announced=self.announced(policy, finding),
            approved_by=tuple(a.name for a in self._approved.get(case, {})),
            approved_subjects=tuple(a.subject for a in self._approved.get(case, {})),
            kept_until=max(
                filter(None, (keep.until if keep else None, snoozed_until)), default=None
            ),
            snapshot_at=snapshot[0] if snapshot else None,
            last_action_at=max(
                (self.steps.shift(t.action.at) for t in actions if t.has_written), default=None
            ),
            restored_at=tuple(t.restored.at for t in actions if t.restored and t.restored.person),
            contested_until=self._backed_off.get(key),
            open_action=open_[0] if open_ else None,
        )

    def histories(
        self, policies: Iterable[str], findings: Sequence[Finding]
    ) -> dict[CaseKey, CaseHistory]:
        """Return the histories of all cases, by policy and finding."""
        return {(p, f.id): self.history(p, f) for p in policies for f in findings}

    def notified_at(self, policy: str, finding: Finding) -> datetime | None:
        """Return when delivery of a notice of a case was first proved; None = never.

        A notice from before the case began was about another stretch.
        """
        return min((at for at, _ in self._notices(policy, finding)), default=None)

    def announced(self, policy: str, finding: Finding) -> dict[str, datetime]:
        """Return what the last notices announced, and since when: at most one verb.

        A notice that announces another verb withdraws the one before it.
        """
        announced_verbs: dict[str, datetime] = {}
        for at, verb in sorted(self._notices(policy, finding)):
            if verb and verb not in announced_verbs:
                announced_verbs = {verb: at}
        return announced_verbs

    def _notices(self, policy: str, finding: Finding) -> list[tuple[datetime, str]]:
        proofs = self._noticed.get((policy, finding.id), [])
        recent = ((at, verb) for at, verb in proofs if at >= finding.window.start)
        return [(self.steps.shift(at), verb) for at, verb in recent]

    def case(self, finding: Finding) -> str:
        """Return the id under which a case was first seen."""
        return case_identity.resolve([finding], self.stretches([finding]))[0].id

    def continue_cases(self, facts: Sequence[Facts]) -> list[Facts]:
        """Return facts whose findings carry the case that they continue: id, start, figures.

        A case that lasts longer than its analyzer looks back begins a little later in each finding.
        It is the same case as long as each finding overlaps the one before.
        """
        findings = [f.finding for f in facts]
        uids = {n: f.uid for n, f in enumerate(facts) if f.uid is not None}
        cases = case_identity.resolve(findings, self.stretches(findings), uids)
        return [
            f if f.finding == case else msgspec.structs.replace(f, finding=case)
            for f, case in zip(facts, cases, strict=True)
        ]

    def stretches(self, findings: Iterable[Finding]) -> dict[CaseKin, list[StoredCase]]:
        """Return the cases of the findings' workloads as of their last evaluation."""
        kins = dict.fromkeys(get_kin(f) for f in findings)
        return {kin: [*self._stretches[kin].values()] for kin in kins if kin in self._stretches}

    def sightings(self, facts: Iterable[Facts]) -> list[tuple[str, str, Any]]:
        """Return the rows to write for cases that are new, or were written long ago."""
        rows: list[tuple[str, str, Any]] = []
        for finding, uid in ((f.finding, f.uid) for f in facts):
            kin, until = get_kin(finding), finding.window.end
            stored = self._stretches.get(kin, {}).get(finding.id)
            rewrite_after = (until - get_judged_part(finding).start) * REWRITE_SHARE
            if finding.id in self._seen and stored and until - stored.end < rewrite_after:
                continue
            document = {
                "kin": list(kin),
                "start": finding.window.start.isoformat(),
                "until": until.isoformat(),
                "uid": uid,
                "gpu_hours": finding.gpu_hours,
                "usd": None if finding.usd is None else str(finding.usd),
            }
            rows.append((event_types.SEEN, finding.id, document))
        return rows

    def _snoozed_until(self, finding: Finding) -> datetime | None:
        """Return until when a person snoozed a case, under its finding's id or its own."""
        ids = {finding.id, self.case(finding)}
        return max((self.snoozed[i] for i in ids if i in self.snoozed), default=None)

    def snapshot_of(self, policy: str, finding: str) -> str | None:
        """Return the id of the last verified snapshot of a case."""
        snapshot = self._snapshots.get((policy, finding))
        return snapshot[1] if snapshot else None

    def approvals(self, policy: str, finding: str) -> tuple[Approver, ...]:
        """Return who approved an action on a case."""
        return tuple(self._approved.get((policy, finding), {}))

    def last_refusal(self, decision: str) -> str | None:
        """Return the last journalled reasons for a decision, in one line."""
        return self._refused.get(decision)

    def unnoticed_at(self, finding: str) -> datetime | None:
        """Return when delivery of a notice last failed."""
        return self._unnoticed.get(finding)

    def list_open(self) -> list[ActionState]:
        """Return the actions whose outcome is still open, oldest first."""
        return [state for state in self.actions.values() if state.is_open]

    def count_open(self) -> int:
        """Return how many actions count as concurrent: the canary's do not."""
        return sum(not state.is_canary for state in self.list_open())

    def list_unrestored(self) -> list[ActionState]:
        """Return undone actions whose snapshot is still to be restored."""
        return [
            state
            for state in self.actions.values()
            if state.action.snapshot is not None
            and not state.snapshot_restored
            and not state.is_open
            and state.outcome is not None
            and state.outcome.result == "undone"
        ]

    def read_snapshot(self, state: ActionState) -> dict[str, Any] | None:
        """Return the snapshot of an action as it was journalled."""
        for entry in reversed(self.journal.entries(event_types.SNAPSHOT)):
            if entry.document["id"] == state.action.snapshot:
                document: dict[str, Any] = entry.document["snapshot"]
                return document
        return None

    def list_standing(self, since: datetime) -> list[ActionState]:
        """Return the actions since a given time that were neither undone nor reversed."""
        return [
            state
            for state in self.actions.values()
            if state.outcome is not None
            and state.outcome.result in ("done", "not sticking")
            and state.restored is None
            and state.ended is None
            and state.action.at >= since
            and not state.is_open
        ]

    def uses(self, since: datetime) -> tuple[CountedAction, ...]:
        """Return what counts against budgets since a given time.

        These are all actions that may have affected an owner.
        """
        return tuple(
            count_action(state.action.decision, state.action.at)
            for state in self.actions.values()
            if state.has_written and state.action.at >= since and not state.is_canary
        )

    def count_by_policy(self) -> dict[str, int]:
        """Return how many actions each policy ever took."""
        counts: dict[str, int] = defaultdict(int)
        for state in self.actions.values():
            if state.has_written:
                counts[state.action.decision.policy] += 1
        return dict(counts)

    def count_reversals(self, policy: str, within: timedelta, since: datetime) -> tuple[int, int]:
        """Return how many of a policy's actions owners reversed in time, and how many it took.

        The actions are those since a given time that stopped something. An action is reversed if
        its owner restored the workload, or it was undone, within `within` of the act.
        """
        acted = [
            state
            for state in self.actions.values()
            if state.action.decision.policy == policy
            and state.action.at >= since
            and any(o.result in _STOPPED for o in state.outcomes)
        ]
        reversed_actions = [t for t in acted if _is_reversed(t, within)]
        return len(reversed_actions), len(acted)

    def count_reversals_of(self, key: SubjectKey) -> int:
        """Return how many times the actions on a workload were reversed."""
        return sum(state.restored is not None for state in self._by_subject.get(key, []))

    # How each type of row changes the state.

    def _on_seen(self, entry: Entry) -> None:
        self._seen.setdefault(entry.key, entry.at)
        if kin := tuple(entry.document.get("kin", ())):
            self._store_case(kin, entry)

    def _store_case(self, kin: Any, entry: Entry) -> None:
        """Store the progress of a case.

        Older rows have no start: the time of the row is an upper bound.
        """
        document, cases = entry.document, self._stretches[kin]
        stored = cases.pop(entry.key, None)
        start = document.get("start")
        usd = document.get("usd")
        cases[entry.key] = StoredCase(
            id=entry.key,
            start=datetime.fromisoformat(start)
            if start
            else (stored.start if stored else self._seen[entry.key]),
            end=datetime.fromisoformat(document["until"]),
            uid=document.get("uid") or (stored.uid if stored else None),
            gpu_hours=document.get("gpu_hours"),
            usd=None if usd is None else Decimal(usd),
        )
        while len(cases) > MAX_STORED_CASES:
            cases.pop(next(iter(cases)))

    def _on_notified(self, entry: Entry) -> None:
        verb = entry.document.get("verb", "")
        self._noticed[entry.document["policy"], entry.key].append((entry.at, verb))

    def _on_notification_failed(self, entry: Entry) -> None:
        self._unnoticed[entry.key] = entry.at

    def _on_approval_requested(self, entry: Entry) -> None:
        fields = {**entry.document, "decision": entry.key, "by": entry.actor, "at": entry.at}
        self.approval_requests[entry.key] = msgspec.convert(fields, ApprovalRequest)

    def _on_approved(self, entry: Entry) -> None:
        case = (entry.document["policy"], entry.document["finding"])
        approver = Approver(entry.actor, entry.document.get("oidc_subject", ""))
        self._approved[case].setdefault(approver, entry.at)

    def _on_keep(self, entry: Entry) -> None:
        until = datetime.fromisoformat(entry.document["until"])
        self.keeps[_parse_subject_key(entry)] = KeptWorkload(until, entry.actor)

    def _on_snoozed(self, entry: Entry) -> None:
        self.snoozed[entry.key] = datetime.fromisoformat(entry.document["until"])

    def _on_refused(self, entry: Entry) -> None:
        self._refused[entry.key] = entry.document["line"]

    def _on_snapshot(self, entry: Entry) -> None:
        self._snapshots[(entry.document["policy"], entry.key)] = (entry.at, entry.document["id"])

    def _on_intent(self, entry: Entry) -> None:
        document = entry.document
        state = ActionState(
            action=msgspec.convert(document["action"], Action, strict=False),
            facts=msgspec.convert(document["facts"], Facts, strict=False)
            if document.get("facts")
            else None,
            policy=document.get("policy", {}),
        )
        self.actions[entry.key] = state
        self._by_subject[state.workload].append(state)

    def _on_sending(self, entry: Entry) -> None:
        writes = self.actions[entry.key].writes
        writes.sending[entry.document["change"]] = entry.at
        writes.sent.pop(entry.document["change"], None)

    def _on_sent(self, entry: Entry) -> None:
        self.actions[entry.key].writes.sent[entry.document["change"]] = entry.document["code"]

    def _on_withdrawn(self, entry: Entry) -> None:
        state = self.actions[entry.key]
        progress = state.undo_progress if entry.document.get("undo") else state.writes
        progress.sending.pop(entry.document["change"], None)
        progress.sent.pop(entry.document["change"], None)

    def _on_undo_started(self, entry: Entry) -> None:
        state = self.actions[entry.key]
        fields = {**entry.document, "by": entry.actor, "at": entry.at}
        state.undo_state = msgspec.convert(fields, UndoState)
        state.undo_progress = WriteProgress()
        state.order = (state.order[0], entry.seq)

    def _on_undo_sending(self, entry: Entry) -> None:
        self.actions[entry.key].undo_progress.sending[entry.document["change"]] = entry.at

    def _on_undo_sent(self, entry: Entry) -> None:
        self.actions[entry.key].undo_progress.sent[entry.document["change"]] = entry.document[
            "code"
        ]

    def _on_outcome(self, entry: Entry) -> None:
        outcome = msgspec.convert(entry.document, Outcome, strict=False)
        state = self.actions[entry.key]
        state.outcomes.append(outcome)
        state.order = (entry.seq, state.order[1])

    def _on_reversed(self, entry: Entry) -> None:
        fields = {"at": entry.at, "by": entry.document["by"], "person": entry.document["person"]}
        self.actions[entry.key].restored = msgspec.convert(fields, Reversal)

    def _on_object_gone(self, entry: Entry) -> None:
        self.actions[entry.key].ended = entry.at

    def _on_snapshot_restored(self, entry: Entry) -> None:
        self.actions[entry.key].snapshot_restored = True

    def _on_reviewed(self, entry: Entry) -> None:
        self.actions[entry.key].reviewed = True

    def _on_backed_off(self, entry: Entry) -> None:
        self._backed_off[_parse_subject_key(entry)] = datetime.fromisoformat(
            entry.document["until"]
        )

    def _on_frozen(self, entry: Entry) -> None:
        if self.frozen is None:
            self.frozen = ActiveFreeze(entry.at, entry.actor, entry.document["why"])

    def _on_thawed(self, _entry: Entry) -> None:
        self.frozen = None

    def _on_outdated(self, entry: Entry) -> None:
        """Forget what permits an action: notices, approvals, snapshots and trust of before."""
        self.outdated = entry.document["why"]
        for permissions in (
            self._noticed,
            self._approved,
            self._snapshots,
            self.approval_requests,
            self.trusted,
        ):
            permissions.clear()

    def _on_reconciled(self, entry: Entry) -> None:
        self.outdated = ""
        self._reconciled_lease = entry.document["lease"]
        self._foreign.update(mark["action"] for mark in entry.document["missing"])

    def _on_checkpoint(self, _entry: Entry) -> None:
        """Derive nothing: the row is for `read_checkpoint`."""

    def _on_trusted(self, entry: Entry) -> None:
        document = entry.document
        if document.get("by") == "backtest" and "upper_end" not in document:
            return  # written when 0 of 3 reversals counted as a proof of 1 %
        by_hand = document.get("by") == "hand"
        author = entry.actor if by_hand else str(document.get("by", ""))
        reason = str(document.get("reason", ""))
        self.trusted[entry.key] = PolicyTrust(
            document["fingerprint"], entry.at, author, reason, by_hand
        )
        self.demoted.discard(entry.key)

    def _on_revoked(self, entry: Entry) -> None:
        self.trusted.pop(entry.key, None)

    def _on_backtested(self, entry: Entry) -> None:
        document = entry.document
        since, until = (datetime.fromisoformat(document[k]) for k in ("since", "until"))
        days = (until - since) / timedelta(days=1)
        proof = ReversalProof(document["reversed"], document["judged"], document["declared"], days)
        self.replays[entry.key] = LastBacktest(document["fingerprint"], entry.at, proof)

    def _on_canary(self, entry: Entry) -> None:
        result = entry.document["result"]
        if result in ("passed", "failed"):
            last_success = entry.at if result == "passed" else self.canary.last_success
            self.canary = CanaryState(entry.at, entry.document["action"], last_success)

    def _on_demoted(self, entry: Entry) -> None:
        self.demoted.add(entry.key)


_STORED_FIELDS = StoredState.__struct_fields__
_PUBLIC_FIELDS = frozenset(
    {
        "actions", "approval_requests", "frozen", "outdated", "keeps", "snoozed", "trusted",
        "replays", "demoted", "canary",
    }
)  # fmt: skip
_STOPPED = frozenset({"done", "not sticking", "reverted"})
_HANDLERS: dict[str, Callable[[JournalState, Entry], None]] = {
    kind: getattr(JournalState, "_on_" + kind.replace("-", "_"))
    for kind in event_types.event_types()
}


def _is_reversed(state: ActionState, within: timedelta) -> bool:
    reversal = state.restored
    return reversal is not None and reversal.person and reversal.at - state.action.at <= within


def _name_attribute(field: str) -> str:
    return field if field in _PUBLIC_FIELDS else f"_{field}"


def format_subject_key(key: SubjectKey) -> str:
    """Format a workload as the key of a row."""
    return "/".join(key)


def _parse_subject_key(entry: Entry) -> SubjectKey:
    cluster, kind, namespace, name = entry.key.split("/", 3)
    return cluster, kind, namespace, name

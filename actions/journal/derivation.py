"""How each type of row changes the journal's state, and the state as a checkpoint stores it."""

from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from actions.journal import event_types
from actions.journal.action_state import (
    ActionState,
    CaseKey,
    Reversal,
    SubjectKey,
    UndoState,
    WriteProgress,
    parse_subject_key,
)
from actions.journal.log import ODD_VALUES, Entry, explain_odd_row, parse_time
from actions.journal.permissions import (
    ActiveFreeze,
    ApprovalRequest,
    CanaryState,
    KeptWorkload,
    LastBacktest,
    PolicyTrust,
)
from actions.policy.reversals import ReversalProof
from fallow.action_models import Action, Facts, Outcome, PendingResume
from fallow.approvals import Approver
from fallow.case_identity import CaseKin, StoredCase

MAX_STORED_CASES = 8
"""Cases of one workload and kind that are kept in memory; a window shows no more of them."""


class StoredState(msgspec.Struct):
    """The fields of `DerivedState` in a checkpoint; names without the underscore."""

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


class DerivedState:
    """What follows from the rows of a journal, and from nothing else."""

    def __init__(self) -> None:
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

    def apply(self, entry: Entry) -> None:
        """Change the state by one row; rows of unknown types change nothing.

        Raises:
            WarehouseError: no Fallow writes such a row.
        """
        handler = _HANDLERS.get(entry.kind)
        if handler is None:
            return
        try:
            handler(self, entry)
        except ODD_VALUES as error:
            raise explain_odd_row(entry.seq, entry.kind, error) from error

    def load(self, document: msgspec.Raw) -> None:
        """Take over the state that `dump` returned."""
        stored = msgspec.msgpack.decode(document, type=StoredState, strict=False)
        for name in _STORED_FIELDS:
            setattr(self, _name_attribute(name), getattr(stored, name))
        self._stretches = defaultdict(dict, stored.stretches)
        self._noticed = defaultdict(list, stored.noticed)
        self._approved = defaultdict(dict, {k: dict(v) for k, v in stored.approved.items()})
        for state in self.actions.values():
            self._by_subject[state.workload].append(state)

    def dump(self) -> bytes:
        """Return the state as a document for a checkpoint."""
        fields = {name: getattr(self, _name_attribute(name)) for name in _STORED_FIELDS}
        fields["approved"] = {key: [*people.items()] for key, people in self._approved.items()}
        return msgspec.msgpack.encode(fields, enc_hook=str)

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
            start=parse_time(start)
            if start
            else (stored.start if stored else self._seen[entry.key]),
            end=parse_time(document["until"]),
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
        until = parse_time(entry.document["until"])
        self.keeps[parse_subject_key(entry)] = KeptWorkload(until, entry.actor)

    def _on_snoozed(self, entry: Entry) -> None:
        self.snoozed[entry.key] = parse_time(entry.document["until"])

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

    def _on_resume_requested(self, entry: Entry) -> None:
        state = self.actions[entry.key]
        if state.pending_resume is None:
            state.pending_resume = PendingResume(entry.actor, entry.at)

    def _on_object_gone(self, entry: Entry) -> None:
        self.actions[entry.key].ended = entry.at

    def _on_snapshot_restored(self, entry: Entry) -> None:
        self.actions[entry.key].snapshot_restored = True

    def _on_reviewed(self, entry: Entry) -> None:
        self.actions[entry.key].reviewed = True

    def _on_backed_off(self, entry: Entry) -> None:
        self._backed_off[parse_subject_key(entry)] = parse_time(entry.document["until"])

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
        since, until = (parse_time(document[k]) for k in ("since", "until"))
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
_HANDLERS: dict[str, Callable[[DerivedState, Entry], None]] = {
    kind: getattr(DerivedState, "_on_" + kind.replace("-", "_"))
    for kind in event_types.read_event_types()
}


def _name_attribute(field: str) -> str:
    return field if field in _PUBLIC_FIELDS else f"_{field}"

"""What the journal has about cases: notices, approvals, snapshots, and how long they last."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from actions.journal import event_types
from actions.journal.action_state import CaseKey
from actions.journal.derivation import DerivedState
from fallow import case_identity
from fallow.action_models import CaseHistory, Facts
from fallow.approvals import Approver
from fallow.case_identity import CaseKin, StoredCase, get_judged_part, get_kin
from fallow.models import Finding
from fallow.system.clock_steps import ClockSteps

REWRITE_SHARE = 1 / 4
"""A continuing case is written again after this part of its analyzer's lookback."""


class JournalledCases(DerivedState):
    """The cases of a journal, with the steps of the clock that wrote its rows (see `history`)."""

    def __init__(self, steps: ClockSteps | None = None) -> None:
        super().__init__()
        self.steps = steps or ClockSteps()

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

        A case that lasts longer than the window of its analyzer begins a little later in each
        finding. It is the same case as long as each finding overlaps the one before.
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
        if not self.snoozed:
            return None
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

"""Choose the workloads that an evaluation of a replay decides about.

A replay of a service that acted decides about every workload with a finding, as the service did. A
replay of one policy over a long history decides only where the answer may differ from the last one:
the results are the same (`tests/actions/backtest/test_backtest.py`).
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

from actions.backtest.case_rows import CaseRows
from actions.backtest.result import AbortedEvaluation
from actions.plan import (
    NO_WAITING,
    ActionPlan,
    RefusedCase,
    Subject,
    Waiting,
    get_subject,
    is_ready,
)
from actions.policy.budgets import BudgetUsage, find_excesses
from actions.policy.model import Policy
from capacity.placement.fleet_state import FleetState, WorkloadKey, get_workload_key, to_micros
from fallow.action_models import Decision, Facts
from fallow.case_identity import CASE
from fallow.idle_details import list_vetoes

_FLEETING = frozenset(
    {"first-sight", "notice", "pressure", "benefit", "open", "frozen", "concurrent"}
)
"""Gates that may open at the next evaluation although nothing about the case changes."""


class DueWorkloads:
    """The workloads, by number, that each evaluation decides about."""

    def __init__(
        self,
        rows: CaseRows,
        fleet_state: FleetState,
        at: Sequence[int],
        policies: Sequence[Policy],
        *,
        sparse: bool,
    ) -> None:
        self._rows, self._fleet_state, self._at = rows, fleet_state, at
        self._policy = policies[0] if sparse else None
        self._numbers = {key: number for number, key in enumerate(rows.workloads)}
        self._later: dict[int, set[int]] = defaultdict(set)
        self._ready: dict[int, str] = {}
        """The cluster of each workload that only budgets, or an aborted evaluation, hold."""
        self._parked: set[str] = set()
        """Clusters whose last evaluation was aborted."""
        self.waiting: Waiting = NO_WAITING
        self.aborted: list[AbortedEvaluation] = []
        """The evaluations that did nothing, and why."""

    def select(self, k: int, now: datetime, usage: BudgetUsage) -> list[int]:
        """Return the workloads to decide about at an evaluation; the others stay as they are."""
        due = self._rows.changes[k] | self._later.pop(k, set())
        if self._policy is None:
            return sorted(due)
        self._ready = {
            number: cluster
            for number, cluster in self._ready.items()
            if number not in due and self._rows.rows_at(number, k)
        }
        aborted = find_excesses(self._policy, Counter(self._ready.values()), usage)
        self.aborted += [AbortedEvaluation(now, why, c) for c, why in aborted.items()]
        for cluster in self._parked - aborted.keys():
            due |= {number for number, place in self._ready.items() if place == cluster}
        self._parked &= aborted.keys()
        self._postpone(k, {n for n in due if self._rows.workloads[n][0] in aborted})
        due = {n for n in due if self._rows.workloads[n][0] not in aborted}
        others = (c for n, c in self._ready.items() if n not in due and c not in aborted)
        self.waiting = {self._policy.name: Counter(others)}
        return sorted(due)

    def plan_again(
        self, k: int, now: datetime, plan_now: ActionPlan, facts: Collection[Facts]
    ) -> None:
        """Find when the answer about each workload of a plan may differ."""
        if self._policy is None:
            return
        self.aborted += [AbortedEvaluation(now, why, c) for c, why in plan_now.aborted.items()]
        self._parked |= plan_now.aborted.keys()
        cases: dict[Subject, list[Facts]] = defaultdict(list)
        for case in facts:
            cases[get_subject(case)].append(case)
        answers: Iterable[Decision | RefusedCase] = (*plan_now.decisions, *plan_now.refused)
        for answer in answers:
            self._plan_workload(k, answer, cases[answer.subject], plan_now.aborted)

    def leave(self, key: WorkloadKey, until: datetime | None) -> None:
        """Decide about a stopped workload again when it is in use again."""
        self._ready.pop(self._numbers[key], None)
        if until is not None:
            self._wake(self._numbers[key], to_micros(until))

    def _plan_workload(
        self,
        k: int,
        answer: Decision | RefusedCase,
        cases: Sequence[Facts],
        aborted: Collection[str],
    ) -> None:
        key = get_workload_key(cases[0].finding.subject)
        number, cluster = self._numbers[key], answer.subject[0]
        if (
            isinstance(answer, Decision)
            and is_ready(answer)
            and (answer.reasons or cluster in aborted)
        ):
            self._ready[number] = cluster
        if cluster in aborted:
            self._postpone(k, {number} - self._ready.keys())
        elif len(cases) > 1 or CASE in cases[0].finding.details:
            # One answer is about several cases, or the case is longer than its row.
            self._postpone(k, {number})
        elif isinstance(answer, Decision) and answer.ruling == "allow":
            if answer.step == "notify":
                # Nothing changes before the grace ends; wait for at least one evaluation.
                grace = self._stage_wait()
                self._wake(number, self._at[k] + max(grace, 1))
        else:
            self._wake_held(k, number, answer, cases[0])

    def _wake_held(self, k: int, number: int, answer: Decision | RefusedCase, case: Facts) -> None:
        if isinstance(answer, Decision) and answer.next_at is not None:
            self._wake(number, to_micros(answer.next_at))
        elif self._may_open(answer, case):
            self._postpone(k, {number})
        edge = self._fleet_state.next_edge(self._rows.workloads[number], self._at[k])
        if edge is not None:
            # Strictly after: a change at an evaluation's own time is known only at the next
            # evaluation.
            self._wake(number, edge + 1)

    def _may_open(self, answer: Decision | RefusedCase, case: Facts) -> bool:
        """Return whether a step may be allowed at the next evaluation with the same row.

        A finding's vetoes refuse every step, and another row of its case is due by itself. Who is
        over its nominal quota changes without a change in any row of a case.
        """
        if list_vetoes(case.finding) or self._policy is None:
            return False
        fleeting = _FLEETING | ({"match"} if self._policy.match.over_quota else set())
        return any(reason.gate in fleeting for reason in answer.reasons)

    def _stage_wait(self) -> int:
        grace = self._policy.stage("grace") if self._policy is not None else None
        return grace.wait // timedelta(microseconds=1) if grace is not None else 0

    def _postpone(self, k: int, numbers: set[int]) -> None:
        if numbers:
            self._later[k + 1] |= numbers

    def _wake(self, number: int, at: float) -> None:
        """Decide about a workload again at the first evaluation that is not before `at`."""
        self._later[bisect_left(self._at, at)].add(number)

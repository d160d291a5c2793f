"""Compare what a backtest promises with what the service did, turn by turn, on the same rows.

The service runs in a world. Then it is backtested, with all its policies, on the rows of that run,
at the same turns. What it stopped is stopped in these rows, so up to each turn both had the same
rows, and the steps have to be the same.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from actions.backtest import service_replay
from actions.backtest.service_replay import ACT_TIME_GATES
from actions.backtest.stepwise import replay_analyzer
from actions.loop.breaker import find_incident
from fallow.protocols import Replayable
from fallow.settings import Settings
from fallow.window import Window
from runtime.experiments.simulation.turns import ActorTurn
from runtime.operations.accounting import windows
from runtime.operations.analysis import analyzer_runs
from simulator.workload_scripts import Key

if TYPE_CHECKING:
    from actions.plan import ActionPlan, Subject
    from actions.policy.model import Policy
    from fallow.action_models import Decision
    from fallow.protocols import PastFindings
    from warehouse.lake import Warehouse

IDLE = ("idle",)
STEP_OF_RESULT = {"notified": "notify", "acted": "act"}


class CaseStep(msgspec.Struct, frozen=True, order=True):
    """A step of one case at one turn."""

    at: datetime
    policy: str
    key: Key
    step: str


class Difference(msgspec.Struct, frozen=True):
    """A step that only one of the two has, and the reason as far as it is known."""

    step: CaseStep
    promised: bool
    """Whether the backtest has it; otherwise the service took it."""
    why: str

    def __str__(self) -> str:
        step = self.step
        who = "promised" if self.promised else "lived"
        return (
            f"{step.at:%d %H:%M} {step.policy} {'/'.join(step.key)} {step.step} {who}: {self.why}"
        )


class PromiseComparison(msgspec.Struct, frozen=True):
    """Steps (notices and actions) that a backtest of the service promises, and that it took."""

    promised: int
    lived: int
    both: int
    refused: int
    """Actions that a gate refused at the time of acting. No history has such refusals: the backtest
    names the gate and does not count it as fulfilled."""
    differences: list[str]
    steps: dict[str, dict[str, int]]
    """Steps that the service took, by policy and step."""


def compare(
    warehouse: "Warehouse",
    settings: Settings,
    policies: "Sequence[Policy]",
    turns: Sequence[ActorTurn],
    begin: datetime,
    *,
    lag: timedelta,
    analyzers: Sequence[str] = IDLE,
) -> PromiseComparison:
    """Backtest the service over its turns with all its policies, and compare the steps.

    `lag`: time from a turn to its actions. For gates without history, the results are those that
    the service got.
    """
    times = [turn.at for turn in turns]
    window = Window(begin, times[-1])

    def incident(at: datetime) -> str | None:
        idle, breaker = settings.ledger.idle_threshold, settings.actions.breaker
        return find_incident(warehouse, breaker, at, idle=idle, cluster=settings.cluster)

    lived = list_taken_steps(turns)
    replay = service_replay.replay(
        policies,
        read_pasts(warehouse, settings, analyzers, window, times),
        warehouse,
        window,
        service_replay.ServiceTurns(
            times, settings.actions, cache(incident), lag,
            service_replay.ReplayAnswers(approves=True, shut=ShutGates(turns)),
        ),
    )  # fmt: skip
    promised = {CaseStep(p.at, p.policy, _build_key(p.subject), p.step) for p in replay.promises}
    plans = dict(replay.plans)
    differences = [
        *(_explain_missing(step, turns) for step in promised - lived),
        *(_explain_extra(step, plans.get(step.at)) for step in lived - promised),
    ]
    return PromiseComparison(
        promised=len(promised),
        lived=len(lived),
        both=len(lived & promised),
        refused=ShutGates(turns).count,
        differences=[*map(str, sorted(differences, key=lambda d: d.step))],
        steps=_count_steps(lived),
    )


def _count_steps(lived: Iterable[CaseStep]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for step in sorted(lived):
        mine = counts.setdefault(step.policy, {})
        mine[step.step] = mine.get(step.step, 0) + 1
    return dict(sorted(counts.items()))


def read_pasts(
    warehouse: "Warehouse",
    settings: Settings,
    names: Sequence[str],
    window: Window,
    times: Sequence[datetime],
) -> "dict[str, PastFindings]":
    """Return what each analyzer found at each turn, from earlier rows."""
    pasts: dict[str, PastFindings] = {}
    for name, analyzer in analyzer_runs.load_analyzers(settings, names).items():
        if isinstance(analyzer, Replayable):
            pasts[name] = analyzer.replay(warehouse, window, times)
        else:
            pasts[name] = replay_analyzer(
                analyzer, warehouse, window, times, windows.DEFAULT_LENGTH
            )
    return pasts


class ShutGates:
    """The gates that refused the service at the time of acting, by turn, policy and object."""

    def __init__(self, turns: Iterable[ActorTurn]) -> None:
        self._gates: dict[tuple[datetime, str, Key], tuple[str, ...]] = {}
        for turn in turns:
            keys = {(r.policy, r.finding): r.key for r in turn.rulings}
            for policy, finding, outcome in turn.results:
                result, _, gate_text = outcome.partition(": ")
                gates = tuple(gate_text.split("; ")) if gate_text else ()
                if result not in STEP_OF_RESULT and gates and set(gates) <= {*ACT_TIME_GATES}:
                    self._gates[turn.at, policy, keys[policy, finding]] = gates
        self.count = len(self._gates)

    def __call__(self, decision: "Decision") -> tuple[str, ...]:
        """Return the gates that refused an action; empty = none did."""
        return self._gates.get((decision.at, decision.policy, _build_key(decision.subject)), ())


def list_taken_steps(turns: Iterable[ActorTurn]) -> set[CaseStep]:
    """Return the notices and actions that were really sent and done."""
    steps = set()
    for turn in turns:
        keys = {(r.policy, r.finding): r.key for r in turn.rulings}
        for policy, finding, outcome in turn.results:
            step = STEP_OF_RESULT.get(outcome.partition(":")[0])
            if step is not None and (policy, finding) in keys:
                steps.add(CaseStep(turn.at, policy, keys[policy, finding], step))
    return steps


def _explain_missing(step: CaseStep, turns: Sequence[ActorTurn]) -> Difference:
    """Return why the service did not take a step that the backtest promises."""
    turn = next(t for t in turns if t.at == step.at)
    if turn.halted:
        return Difference(step, promised=True, why=f"halted: {', '.join(turn.halted)}")
    if turn.aborted:
        return Difference(step, promised=True, why=f"aborted: {turn.aborted}")
    ruled = [r for r in turn.rulings if r.key == step.key]
    findings = {r.finding for r in ruled}
    for policy, finding, outcome in turn.results:
        if policy == step.policy and finding in findings:
            return Difference(step, promised=True, why=outcome)
    rulings = "; ".join(
        f"{r.policy or 'no policy'} {r.step or 'deny'} {r.ruling} ({', '.join(r.gates)})"
        for r in ruled
    )
    return Difference(step, promised=True, why=rulings or "no case")


def _explain_extra(step: CaseStep, plan: "ActionPlan | None") -> Difference:
    """Return why the backtest does not promise a step that the service took."""
    if plan is None:
        return Difference(step, promised=False, why="halted")
    if plan.aborted:
        why = "; ".join(reason.text for reason in plan.aborted.values())
        return Difference(step, promised=False, why=f"aborted: {why}")
    rulings = [
        f"{d.policy} {d.step} {d.ruling} ({', '.join(r.gate for r in d.reasons)})"
        for d in plan.decisions
        if _build_key(d.subject) == step.key
    ]
    rulings += [
        f"{r.policy or 'no policy'} deny ({', '.join(reason.gate for reason in r.reasons)})"
        for r in plan.refused
        if _build_key(r.subject) == step.key
    ]
    return Difference(step, promised=False, why="; ".join(rulings) or "no case")


def _build_key(subject: "Subject") -> Key:
    _, kind, namespace, name = subject
    return kind, namespace, name

"""Hold what a back-test promises against what the service did, turn by turn, on the same rows.

The service lives through a world; then it is back-tested, with all its policies, on the rows that
this left, at the turns that it had. What it stopped is stopped in these rows, so up to each turn
both saw the same, and the steps have to be the same.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from fallow.settings import Settings
from fallow.window import Window
from runtime.simulation.turns import Turn
from simulator.cast import Key

if TYPE_CHECKING:
    from actions.planning import Plan, Subject
    from actions.policy.model import Policy
    from fallow.acting import Decision
    from fallow.seams import Past
    from warehouse.lake import Warehouse

IDLE = ("idle",)
TAKEN = {"notified": "notify", "acted": "act"}


class Step(msgspec.Struct, frozen=True, order=True):
    """A step of one case at one turn."""

    at: datetime
    policy: str
    key: Key
    step: str


class Difference(msgspec.Struct, frozen=True):
    """A step that one of the two has and the other has not, and why as far as that is known."""

    step: Step
    promised: bool
    """By the back-test; else the service took it."""
    why: str

    def __str__(self) -> str:
        step = self.step
        who = "promised" if self.promised else "lived"
        return (
            f"{step.at:%d %H:%M} {step.policy} {'/'.join(step.key)} {step.step} {who}: {self.why}"
        )


class Compared(msgspec.Struct, frozen=True):
    """Promises and life of one world."""

    promised: int
    lived: int
    both: int
    refused: int
    """Acts that a gate of their moment refused, whose answer no history tells."""
    differences: tuple[Difference, ...]
    taken: dict[str, dict[str, int]]
    """Steps that the service took, by policy and step."""


def compare(
    warehouse: "Warehouse",
    settings: Settings,
    policies: "Sequence[Policy]",
    turns: Sequence[Turn],
    begin: datetime,
    *,
    lag: timedelta,
    analyzers: Sequence[str] = IDLE,
) -> Compared:
    """Back-test the service over its turns with all its policies, and compare the steps.

    `lag`: from a turn to its acts. The answers of gates that no history tells are those that the
    service got.
    """
    from actions.backtest import service  # noqa: PLC0415
    from actions.loop.breaker import tripped  # noqa: PLC0415

    moments = [turn.at for turn in turns]
    window = Window(begin, moments[-1])

    def incident(at: datetime) -> str | None:
        idle, breaker = settings.ledger.idle_threshold, settings.actions.breaker
        return tripped(warehouse, breaker, at, idle=idle, cluster=settings.cluster)

    lived = steps(turns)
    made = service.replay(
        policies,
        pasts(warehouse, settings, analyzers, window, moments),
        warehouse,
        window,
        service.Turns(
            moments, settings.actions, cache(incident), lag,
            service.Answers(approves=True, shut=Shut(turns)),
        ),
    )  # fmt: skip
    promised = {Step(p.at, p.policy, _key(p.subject), p.step) for p in made.promises}
    said = dict(made.plans)
    differences = [
        *(_unkept(step, turns) for step in promised - lived),
        *(_unpromised(step, said.get(step.at)) for step in lived - promised),
    ]
    return Compared(
        promised=len(promised),
        lived=len(lived),
        both=len(lived & promised),
        refused=Shut(turns).count,
        differences=tuple(sorted(differences, key=lambda d: d.step)),
        taken=_counted(lived),
    )


def _counted(lived: Iterable[Step]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for step in sorted(lived):
        mine = found.setdefault(step.policy, {})
        mine[step.step] = mine.get(step.step, 0) + 1
    return dict(sorted(found.items()))


def pasts(
    warehouse: "Warehouse",
    settings: Settings,
    names: Sequence[str],
    window: Window,
    moments: Sequence[datetime],
) -> "dict[str, Past]":
    """Return what each analyzer found at each turn, from rows of before it."""
    from actions.backtest.slow import remembered  # noqa: PLC0415
    from fallow.seams import Remembering  # noqa: PLC0415
    from runtime import analyzing, windows  # noqa: PLC0415

    found: dict[str, Past] = {}
    for name, analyzer in analyzing.chosen(settings, names).items():
        if isinstance(analyzer, Remembering):
            found[name] = analyzer.past(warehouse, window, moments)
        else:
            found[name] = remembered(analyzer, warehouse, window, moments, windows.LAST)
    return found


class Shut:
    """Which gates of the moment of an act said no to the service, by turn, policy and object."""

    def __init__(self, turns: Iterable[Turn]) -> None:
        from actions.backtest.replaying import MOMENT  # noqa: PLC0415

        self._gates: dict[tuple[datetime, str, Key], tuple[str, ...]] = {}
        for turn in turns:
            keys = {(r.policy, r.finding): r.key for r in turn.ruled}
            for policy, finding, came in turn.done:
                result, _, said = came.partition(": ")
                gates = tuple(said.split("; ")) if said else ()
                if result not in TAKEN and gates and set(gates) <= {*MOMENT}:
                    self._gates[turn.at, policy, keys[policy, finding]] = gates
        self.count = len(self._gates)

    def __call__(self, decision: "Decision") -> tuple[str, ...]:
        """Return the gates that were shut for an act; nothing = none was."""
        return self._gates.get((decision.at, decision.policy, _key(decision.subject)), ())


def steps(turns: Iterable[Turn]) -> set[Step]:
    """Return the notices and acts that really were given and done."""
    found = set()
    for turn in turns:
        keys = {(r.policy, r.finding): r.key for r in turn.ruled}
        for policy, finding, came in turn.done:
            step = TAKEN.get(came.partition(":")[0])
            if step is not None and (policy, finding) in keys:
                found.add(Step(turn.at, policy, keys[policy, finding], step))
    return found


def _unkept(step: Step, turns: Sequence[Turn]) -> Difference:
    """Say why the service did not take a step that the back-test promises."""
    turn = next(t for t in turns if t.at == step.at)
    if turn.halted:
        return Difference(step, promised=True, why=f"halted: {', '.join(turn.halted)}")
    if turn.aborted:
        return Difference(step, promised=True, why=f"aborted: {turn.aborted}")
    ruled = [r for r in turn.ruled if r.key == step.key]
    findings = {r.finding for r in ruled}
    for policy, finding, came in turn.done:
        if policy == step.policy and finding in findings:
            return Difference(step, promised=True, why=came)
    said = "; ".join(
        f"{r.policy or 'no policy'} {r.step or 'deny'} {r.ruling} ({', '.join(r.gates)})"
        for r in ruled
    )
    return Difference(step, promised=True, why=said or "no case")


def _unpromised(step: Step, made: "Plan | None") -> Difference:
    """Say why the back-test does not promise a step that the service took."""
    if made is None:
        return Difference(step, promised=False, why="halted")
    if made.aborted is not None:
        return Difference(step, promised=False, why=f"aborted: {made.aborted.text}")
    said = [
        f"{d.policy} {d.step} {d.ruling} ({', '.join(r.gate for r in d.reasons)})"
        for d in made.decisions
        if _key(d.subject) == step.key
    ]
    said += [
        f"{r.policy or 'no policy'} deny ({', '.join(reason.gate for reason in r.reasons)})"
        for r in made.refused
        if _key(r.subject) == step.key
    ]
    return Difference(step, promised=False, why="; ".join(said) or "no case")


def _key(subject: "Subject") -> Key:
    _, kind, namespace, name = subject
    return kind, namespace, name

"""Collect the actor's decisions about every case at every turn, for backtests and tuning."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from simulator.workload_scripts import Key

if TYPE_CHECKING:
    from actions.loop.protocols import TurnReport

NO_CASE = "no case"
"""In place of a workload's gates: there was no finding to decide about."""


class CaseRuling(msgspec.Struct, frozen=True):
    """One decision of one turn."""

    at: datetime
    policy: str
    finding: str
    key: Key
    step: str
    ruling: str
    gates: tuple[str, ...]
    """Which gates refuse, in their order."""


class ActorTurn(msgspec.Struct, frozen=True):
    """One turn: what was decided, and what was really done."""

    at: datetime
    rulings: tuple[CaseRuling, ...]
    results: tuple[tuple[str, str, str], ...]
    """Policy, finding and result of each step that was taken."""
    halted: tuple[str, ...] = ()
    aborted: str = ""


def read_turn(report: "TurnReport") -> ActorTurn:
    """Return the decisions in a report about the cases of its turn."""
    plan = report.plan
    ruled: list[CaseRuling] = []
    for decision in plan.decisions if plan else ():
        _, kind, namespace, name = decision.subject
        gates = tuple(dict.fromkeys(r.gate for r in decision.reasons))
        key = (kind, namespace, name)
        ruled.append(
            CaseRuling(
                report.at,
                decision.policy,
                decision.finding,
                key,
                decision.step,
                decision.ruling,
                gates,
            )
        )
    for refused in plan.refused if plan else ():
        _, kind, namespace, name = refused.subject
        gates = tuple(dict.fromkeys(r.gate for r in refused.reasons))
        key = (kind, namespace, name)
        ruled.append(CaseRuling(report.at, refused.policy, refused.finding, key, "", "deny", gates))
    return ActorTurn(
        at=report.at,
        rulings=tuple(ruled),
        results=tuple(
            (t.decision.policy, t.decision.finding, _format_result(t)) for t in report.steps
        ),
        halted=tuple(r.gate for r in report.halted),
        aborted="; ".join(reason.text for reason in plan.aborted.values()) if plan else "",
    )


def count_gates(turns: Iterable[ActorTurn], keys: Iterable[Key]) -> dict[str, int]:
    """Return which gates blocked the action on some workloads, and for how many of their turns."""
    wanted = set(keys)
    counts: Counter[str] = Counter()
    for turn in turns:
        for ruled in turn.rulings:
            if ruled.key in wanted and not (ruled.ruling == "allow" and ruled.step == "act"):
                counts.update(ruled.gates)
    return dict(counts.most_common())


def _format_result(step: object) -> str:
    result = str(getattr(step, "result", ""))
    reasons = getattr(step, "reasons", ())
    return ": ".join(filter(None, (result, "; ".join(r.gate for r in reasons))))

"""What the actor said about every case at every turn: for back-tests and for those who tune."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from simulator.cast import Key

if TYPE_CHECKING:
    from actions.loop.seams import TurnReport

NO_CASE = "no case"
"""Where the gates of a workload should stand: nothing was found to decide about."""


class Ruled(msgspec.Struct, frozen=True):
    """One decision of one turn."""

    at: datetime
    policy: str
    finding: str
    key: Key
    step: str
    ruling: str
    gates: tuple[str, ...]
    """Which gates refuse, in their order."""


class Turn(msgspec.Struct, frozen=True):
    """One turn: what was decided, and what of it was really done."""

    at: datetime
    ruled: tuple[Ruled, ...]
    done: tuple[tuple[str, str, str], ...]
    """Policy, finding and what came of it, of each step that was taken."""
    halted: tuple[str, ...] = ()
    aborted: str = ""


def turn_of(report: "TurnReport") -> Turn:
    """Return what a report says about the cases of its turn."""
    made = report.plan
    ruled: list[Ruled] = []
    for decision in made.decisions if made else ():
        _, kind, namespace, name = decision.subject
        gates = tuple(dict.fromkeys(r.gate for r in decision.reasons))
        key = (kind, namespace, name)
        ruled.append(
            Ruled(
                report.at,
                decision.policy,
                decision.finding,
                key,
                decision.step,
                decision.ruling,
                gates,
            )
        )
    for refused in made.refused if made else ():
        _, kind, namespace, name = refused.subject
        gates = tuple(dict.fromkeys(r.gate for r in refused.reasons))
        key = (kind, namespace, name)
        ruled.append(Ruled(report.at, refused.policy, refused.finding, key, "", "deny", gates))
    return Turn(
        at=report.at,
        ruled=tuple(ruled),
        done=tuple((t.decision.policy, t.decision.finding, _came(t)) for t in report.taken),
        halted=tuple(r.gate for r in report.halted),
        aborted=made.aborted.text if made and made.aborted else "",
    )


def gates_of(turns: Iterable[Turn], keys: Iterable[Key]) -> dict[str, int]:
    """Return which gates kept some workloads from an act, and for how many turns of theirs."""
    wanted = set(keys)
    found: Counter[str] = Counter()
    for turn in turns:
        for ruled in turn.ruled:
            if ruled.key in wanted and not (ruled.ruling == "allow" and ruled.step == "act"):
                found.update(ruled.gates)
    return dict(found.most_common())


def by_key(turns: Iterable[Turn]) -> dict[Key, list[Ruled]]:
    """Return what was said about each workload, in order."""
    found: dict[Key, list[Ruled]] = defaultdict(list)
    for turn in turns:
        for ruled in turn.ruled:
            found[ruled.key].append(ruled)
    return found


def _came(taken: object) -> str:
    result = str(getattr(taken, "result", ""))
    reasons = getattr(taken, "reasons", ())
    return ": ".join(filter(None, (result, "; ".join(r.gate for r in reasons))))

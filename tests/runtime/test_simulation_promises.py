"""What a back-test of a service promises beside what that did: the sets of steps are equal."""

from datetime import UTC, datetime

import pytest

from fallow.action_models import Decision
from runtime.experiments.simulation.promises import (
    CaseStep,
    Difference,
    ShutGates,
    _explain_missing,
    list_taken_steps,
)
from runtime.experiments.simulation.turns import ActorTurn, CaseRuling, count_gates

AT = datetime(2026, 11, 2, 4, tzinfo=UTC)
KEY = ("Notebook", "lab", "nb")


def turn(*gates: str, came: str = "", policy: str = "p", halted: tuple[str, ...] = ()) -> ActorTurn:
    ruling = "hold" if gates else "allow"
    ruled = CaseRuling(AT, policy, "f1", KEY, "act", ruling, gates)
    return ActorTurn(AT, (ruled,), ((policy, "f1", came),) if came else (), halted)


def act(policy: str) -> Decision:
    return Decision("d", policy, "f1", ("c", *KEY), "stop", "act", "allow", (), AT)


def missed(lived: ActorTurn) -> Difference:
    return _explain_missing(CaseStep(AT, "p", KEY, "act"), [lived])


def test_only_what_was_really_done_is_a_step() -> None:
    done = [turn(came="acted"), turn(came="notified"), turn(came="held: concurrent")]
    assert {s.step for s in list_taken_steps(done)} == {"act", "notify"}


def test_a_difference_tells_what_the_service_said_at_that_turn() -> None:
    assert missed(turn(came="held: concurrent")).why == "held: concurrent"
    assert missed(turn("grace", policy="other")).why == "other act hold (grace)"
    assert missed(turn(halted=("breaker",))).why == "halted: breaker"
    assert missed(ActorTurn(AT, (), ())).why == "no case"


@pytest.mark.parametrize(
    ("came", "answer"),
    [
        ("refused: awake", ("awake",)),
        ("held: evidence; away", ("evidence", "away")),
        # A back-test knows these: that they said no is its to foresee.
        ("held: concurrent", ()),
        ("held: evidence; budget", ()),
        ("acted", ()),
    ],
)
def test_only_gates_that_no_history_tells_are_answered_by_what_the_service_was_told(
    came: str, answer: tuple[str, ...]
) -> None:
    shut = ShutGates([turn(came=came)])
    assert shut(act("p")) == answer
    assert shut(act("other")) == ()
    assert shut.count == bool(answer)


def test_gates_are_counted_by_turns_and_an_act_that_is_allowed_by_none() -> None:
    turns = [turn("grace", "approval"), turn("approval"), turn()]
    assert count_gates(turns, [KEY]) == {"approval": 2, "grace": 1}
    assert count_gates(turns, [("Job", "lab", "j")]) == {}
